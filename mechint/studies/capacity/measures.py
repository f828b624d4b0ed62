"""What a run of the regressions shows: features held, as predicted or not, and the frequent tasks'
residual.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Num

from mechint.studies.core.claims import Part
from mechint.studies.core.study import Runs, model_of, task_of
from mechint.training import Run

HALF = 0.5
"""A feature counts as held from half of it on, and a prediction as met within half a feature:
counts are whole numbers.
"""


def held(run: Run) -> Num[np.ndarray, " task"]:
    """(task,) features of every task in the encoder at the end."""
    return np.array([run.final[f"test.features.{t}"] for t in range(task_of(run).n_tasks)])


def kept(
    task: Any, width: int, scores: Float[np.ndarray, "task feature"]
) -> Num[np.ndarray, " task"]:
    """(task,) features kept by a width that fills up in the order of `scores` (task, feature); ties
    go to the first task.

    >>> kept(None, 3, np.array([[3.0, 1.0], [2.0, 0.5]])).tolist()
    [2, 1]
    """
    order = np.argsort(-scores, axis=None, kind="stable")[:width]
    return np.bincount(order // scores.shape[1], minlength=len(scores))


def margin(task: Any, width: int) -> float:
    """By what share the last utility that a width keeps exceeds the first that it leaves; the less,
    the less Theorem 3 prefers the one feature to the other.

    >>> from mechint.registry import TASKS
    >>> one = {"n": 4, "n_tasks": 2, "rank": 2, "alpha": 1.0, "beta": 1.0}
    >>> [round(margin(TASKS["regression-mixture"](**one), width), 6) for width in (1, 2)]
    [1.0, 0.0]
    """
    ordered = np.sort(task.utilities.numpy(), axis=None)[::-1]
    return float(ordered[width - 1] / ordered[width] - 1)


def share_as_predicted(group: list[Run], order: str = "utility") -> float:
    """Share of cells (run, task) that hold a number of features within HALF of the order's:
    utility, frequency or spectrum.
    """
    right = []
    for run in group:
        task = task_of(run)
        scores = {
            "utility": task.utilities,
            "frequency": task.priors[:, None].expand(-1, task.rank),
            "spectrum": task.spectra,
        }[order].numpy()
        right.append(np.abs(held(run) - kept(task, model_of(run).width, scores)) <= HALF)
    return float(np.mean(right))


def energy_widths(task: Any, share: float) -> list[int]:
    """Smallest width at which the best encoder holds at least `share` of a task's energy Σ λ, task
    by task.

    >>> from mechint.registry import TASKS
    >>> one = {"n": 4, "n_tasks": 2, "rank": 2, "alpha": 1.0, "beta": 1.0}
    >>> energy_widths(TASKS["regression-mixture"](**one), 0.6)
    [1, 3]
    """
    total = task.spectra.sum(-1)
    return [
        next(
            width
            for width in range(1, task.n + 1)
            if float(total[t] - task.task_losses(width)[t]) >= (share - 1e-12) * float(total[t])
        )
        for t in range(task.n_tasks)
    ]


def width_filled(groups: list[list[Run]], share: float) -> Part:
    """The control of what is read from an optimum: in at least `share` of the runs, one list per
    seed, the features held add up to the width, within HALF.
    """
    runs = [run for group in groups for run in group]
    full = [abs(held(run).sum() - model_of(run).width) <= HALF for run in runs]
    shown = f"{np.mean(full):.0%} of {len(full)} runs"
    return Part("width filled", float(np.mean(full)) >= share, shown, len(groups))


def residual_of(run: Run, mass: float) -> float:
    """ρ_C of the frequent tasks at the end of the run."""
    from mechint.models.linear_bottleneck import residual

    return float(
        residual(
            run.weights if run.weights else _weights(run), task_of(run), task_of(run).common(mass)
        )
    )


def _weights(run: Run) -> Any:
    return {name: value.detach() for name, value in run.subject().model.weights().items()}


def by_seed(runs: Runs, **labels: Any) -> list[list[Run]]:
    """The runs with these labels, one list per seed, the narrowest first."""
    seeds = runs.values_of("seed", **labels)
    return [
        sorted(runs.select(**labels, seed=seed), key=lambda run: model_of(run).width)
        for seed in seeds
    ]


def critical_share(group: list[Run]) -> float:
    """Share of the tasks that are first held at the first trained width from the critical one on,
    in one seed's runs of all widths.
    """
    task, widths = task_of(group[0]), [model_of(run).width for run in group]
    table = np.stack([held(run) for run in group])  # (width, task)
    right = []
    for t in range(table.shape[1]):
        wanted = next((width for width in widths if width >= task.critical_width(t)), None)
        pairs = zip(widths, table[:, t], strict=True)
        found = next((width for width, value in pairs if value >= HALF), None)
        right.append(found == wanted)
    return float(np.mean(right))


def threshold_kept(run: Run, mass: float, slack: float) -> list[tuple[bool, bool]]:
    """(held, residual below the threshold) for every rare task."""
    task, result = task_of(run), []
    rho, values, spectrum = residual_of(run, mass), held(run), task.common_spectrum(mass)
    for t in range(task.n_tasks):
        if t not in task.common(mass):
            below = float(spectrum[spectrum < task.utilities[t, 0]].sum())
            limit = below + slack * float(spectrum.sum())
            result.append((bool(values[t] >= HALF), rho <= limit))
    return result


def residual_counts(group: list[Run], mass: float, slack: float = 0.05) -> tuple[int, int, bool]:
    """Rare (task, run) that are held; of these, with the residual above the threshold; whether
    every rare task is held somewhere.
    """
    table = [threshold_kept(run, mass, slack) for run in group]
    cells = [cell for row in table for cell in row]
    somewhere = all(any(row[t][0] for row in table) for t in range(len(table[0])))
    above = sum(holds and not below for holds, below in cells)
    return sum(holds for holds, _ in cells), above, somewhere


BURSTS = 4
"""Bursts over which the weight of the rare task is measured."""


def rare_weight(run: Run) -> float:
    """Weight of the rarest task in the mean update, all tasks together 1, measured on batches after
    the last step.

    An example counts with its weight in its batch's loss times what clipping leaves of that batch's
    gradient. An enlarged batch that is averaged over its own size counts for less, and so does one
    that is clipped. Adam's scale of each coordinate changes far more slowly than batches alternate,
    so it moves no optimum and is left out. The prior where no batch is enlarged.
    """
    task, train = task_of(run), run.spec.train
    if task.gap == 1:
        return float(task.priors[-1])
    totals = np.zeros(2)  # common, rare
    first = -(-train.steps // task.gap) * task.gap  # the start of a cycle
    for cycle in range(BURSTS):
        burst = first + (cycle + 1) * task.gap - 1
        for step, times in ((burst - 1, task.gap - 1), (burst, 1)):
            stream = task.stream("train", run.spec.data_seed, train.batch_size, start=step)
            totals += times * _weights_in(run, next(iter(stream)))
    return float(totals[1] / totals.sum())


def _weights_in(run: Run, batch: Any) -> Num[np.ndarray, " 2"]:
    """Weight of all other tasks and of the rarest in one clipped update."""
    import torch

    from mechint.models.linear_bottleneck import losses

    rare = (batch.masks["task"] == task_of(run).n_tasks - 1).double()
    each = 1.0 if batch.weights is None else batch.weights.double()
    shares = np.array([float(((1 - rare) * each).mean()), float((rare * each).mean())])
    clip = run.spec.train.clip
    if clip is None:
        return shares
    weights = {
        name: value.detach().clone().requires_grad_()
        for name, value in (run.weights or _weights(run)).items()
    }
    loss = losses(weights, model_of(run), batch)
    found = torch.autograd.grad(loss, list(weights.values()))
    norm = float(torch.cat([one.flatten() for one in found]).norm())
    return shares * min(1.0, clip / norm) if norm > 0 else shares


def allowed(run: Run) -> int:
    """Features of the rarest task that the width holds at `rare_weight`, by Theorem 3: what
    capacity alone leaves, however long ago the task was shown.
    """
    task, weight = task_of(run), rare_weight(run)
    priors = task.priors.numpy().copy()
    priors[:-1] *= (1 - weight) / priors[:-1].sum()
    priors[-1] = weight
    scores = priors[:, None] * task.spectra.numpy()
    return int(kept(task, model_of(run).width, scores)[-1])


def rare_features(runs: Runs, **labels: Any) -> list[float]:
    """Features of the rarest task at the end, one value per seed."""
    return [float(held(run)[-1]) for run in runs.select(**labels)]
