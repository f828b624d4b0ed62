"""Measures of a run on regressions: features held, as predicted or not, and the frequent tasks'
residual along training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Num

from mechint.training import Run

HALF = 0.5
"""A feature counts as held from half of it on, a prediction as met within half a feature."""

MASS = 0.75
"""Prior that the most frequent tasks, taken as "the frequent ones", have together, at least."""

SLACK = 0.05
"""Of the frequent tasks' total signal: what unfinished features may leave above the threshold."""

BURSTS = 4
"""Bursts over which the weight of the rare task is measured."""


def measure(run: Run, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Features held of every task at the end; on the population gradient the shares of tasks as
    predicted by three orders, the loss over Theorem 3's, the tie at the width and every task's
    critical width; along training who is held above the threshold; with gaps what capacity leaves.
    """
    task: Any = run.spec.task
    width, features = labels["width"], held(run)
    row: dict[str, Any] = {
        "held": features.tolist(),
        **({"allowed": allowed(run)} if labels["arm"] in ("retention", "weighted") else {}),
        "critical": [task.critical_width(t) for t in range(task.n_tasks)],
    }
    if run.spec.train.batch_size is not None:
        return {**row, "random": task.rank * width / task.n}
    orders = {
        "utility": task.utilities,
        "frequency": task.priors[:, None].expand(-1, task.rank),
        "spectrum": task.spectra,
    }
    kept_by = {name: kept(width, scores.numpy()) for name, scores in orders.items()}
    near = {name: np.abs(features - n) <= HALF for name, n in kept_by.items()}
    least = task.residual(width)  # 0 where every feature has room
    over = float(run.final["test.loss"]) - least
    return {
        **row,
        **{f"by_{name}": float(flags.mean()) for name, flags in near.items()},
        "excess": over / (least or float(task.utilities.sum())),
        "tie": tie(task, width),
        **(along_training(run) if labels["arm"] == "training" else {}),
    }


def held(run: Run) -> Num[np.ndarray, " task"]:
    """Features of every task in the encoder at the end."""
    n_tasks = cast(Any, run.spec.task).n_tasks
    return np.array([run.final[f"test.features.{t}"] for t in range(n_tasks)], dtype=float)


def kept(width: int, scores: Float[np.ndarray, "task feature"]) -> Num[np.ndarray, " task"]:
    """Features of every task kept by a width that fills up in the order of `scores`; ties go to the
    first task.

    >>> kept(3, np.array([[3.0, 1.0], [2.0, 0.5]])).tolist()
    [2, 1]
    """
    order = np.argsort(-scores, axis=None, kind="stable")[:width]
    return np.bincount(order // scores.shape[1], minlength=len(scores))


def tie(task: Any, width: int) -> float:
    """By what share the last utility that a width keeps exceeds the first that it leaves.

    >>> from mechint.registry import TASKS
    >>> one = TASKS["regression-mixture"](n=4, n_tasks=2, rank=2, alpha=1.0, beta=1.0)
    >>> [round(tie(one, width), 6) for width in (1, 2)]
    [1.0, 0.0]
    """
    ordered = np.sort(task.utilities.numpy(), axis=None)[::-1]
    return float(ordered[width - 1] / ordered[width] - 1) if width < len(ordered) else float("inf")


def along_training(run: Run) -> dict[str, int]:
    """Over kept checkpoints and rare tasks: pairs held, by HALF of a feature more than the run's
    own initial encoder holds; pairs held while the frequent tasks' residual is above the threshold
    Σ μ_i over their utilities μ_i below the task's first one; pairs held before the last
    checkpoint; and pairs whose residual is above, held or not.
    """
    from mechint.models.linear_bottleneck import features_held, task_losses

    task: Any = run.spec.task
    common, spectrum = task.common(MASS), task.common_spectrum(MASS)
    rare = sorted(set(range(task.n_tasks)) - set(common))
    first = task.utilities[rare, :1]
    limits = np.array([float(spectrum[spectrum < one].sum()) for one in first])
    subject, start, found = run.subject(), None, []
    for step in sorted(subject.series):
        encoder = cast(Any, subject.at_step(step).model).weights()["W_enc"].detach().double()
        weights = {"W_enc": encoder}
        left = task_losses(weights, task) * task.priors  # of each task's signal
        features = features_held(weights, task)[rare]
        start = features if start is None else start
        above = float(left[list(common)].sum()) > limits + SLACK * float(spectrum.sum())
        holds = np.asarray(features - start) >= HALF
        found.append([holds, holds & above, holds & (step < run.step), above])
    names = ("rare_held", "held_above", "held_early", "above")
    return dict(zip(names, np.sum(found, (0, 2)).tolist(), strict=True))


def allowed(run: Run) -> int:
    """Features of the rarest task that the width holds at the task's weight in the mean clipped
    update, by Theorem 3: what capacity alone leaves, however long ago the task was shown.
    """
    task, weight = cast(Any, run.spec.task), rare_weight(run)
    priors = task.priors.numpy().copy()
    priors[:-1] *= (1 - weight) / priors[:-1].sum()
    priors[-1] = weight
    scores = priors[:, None] * task.spectra.numpy()
    return int(kept(cast(Any, run.spec.model).width, scores)[-1])


def rare_weight(run: Run) -> float:
    """Weight of the rarest task in the mean update, all tasks together 1, measured on batches after
    the last step: its prior where no batch is enlarged.

    An example counts with its weight in its batch's loss times what clipping leaves of that batch's
    gradient. Adam's scale of each coordinate changes far more slowly than batches alternate.
    """
    task, train = cast(Any, run.spec.task), run.spec.train
    if task.gap == 1:
        return float(task.priors[-1])
    weights = cast(Any, run.subject().model).weights()
    totals = np.zeros(2)  # common, rare
    first = -(-train.steps // task.gap) * task.gap  # the start of a cycle
    for cycle in range(BURSTS):
        burst = first + (cycle + 1) * task.gap - 1
        for step, times in ((burst - 1, task.gap - 1), (burst, 1)):
            stream = task.stream("train", run.spec.data_seed, train.batch_size, start=step)
            totals += times * _weights_in(run, weights, next(iter(stream)))
    return float(totals[1] / totals.sum())


def _weights_in(run: Run, weights: Mapping[str, Any], batch: Any) -> Num[np.ndarray, " 2"]:
    """Weight of all other tasks and of the rarest in one clipped update."""
    from mechint.models.linear_bottleneck import losses

    rare = (batch.masks["task"] == cast(Any, run.spec.task).n_tasks - 1).double()
    each = 1.0 if batch.weights is None else batch.weights.double()
    shares = np.array([float(((1 - rare) * each).mean()), float((rare * each).mean())])
    clip = run.spec.train.clip
    if clip is None:
        return shares
    leaves = {name: value.detach().clone().requires_grad_() for name, value in weights.items()}
    loss = losses(leaves, cast(Any, run.spec.model), batch)
    found = torch.autograd.grad(loss, list(leaves.values()))
    norm = float(torch.cat([one.flatten() for one in found]).norm())
    return shares * min(1.0, clip / norm) if norm > 0 else shares
