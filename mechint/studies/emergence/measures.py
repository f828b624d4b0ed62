"""What a run of the emergence study shows: when each direction was learned, which ones are fitted,
the loss with its tail.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int, Num

from mechint.errors import TrainingError
from mechint.studies.core.claims import Part
from mechint.studies.core.study import Runs, model_of, task_of
from mechint.training import Run

THRESHOLD = 0.5
"""Alignment at which a direction counts as learned: half of its final value, where the curves are
steepest.
"""

SAFETY = 1.5
"""A direction is fitted when its predicted time, this many times over, lies inside the run."""

LOST = 0.1
"""Share of its fitted directions that a run may leave unlearned where times or losses are read."""

FIRST = 2
"""The first direction that is fitted: the first one's time is dominated by where the neurons happen
to start.
"""


def curve(run: Run, name: str) -> Num[np.ndarray, " evaluation"]:
    """A metric of the test log at every evaluation."""
    return np.array([row[f"test.{name}"] for row in run.metrics])


def steps_of(run: Run) -> Num[np.ndarray, " evaluation"]:
    """The steps of the evaluations."""
    return np.array([row["step"] for row in run.metrics], dtype=float)


def passing(
    steps: Num[np.ndarray, " evaluation"],
    curve: Num[np.ndarray, " evaluation"],
    threshold: float,
) -> float:
    """The step at which `curve` first reaches `threshold`, between evaluations by interpolation;
    NaN when it never does.

    >>> passing(np.array([0.0, 10.0, 20.0]), np.array([0.0, 0.4, 0.6]), 0.5)
    15.0
    """
    reached = np.flatnonzero(curve >= threshold)
    if not len(reached):
        return math.nan
    at = reached[0]
    if at == 0:
        return float(steps[0])
    share = (threshold - curve[at - 1]) / (curve[at] - curve[at - 1])
    return float(steps[at - 1] + share * (steps[at] - steps[at - 1]))


def emergence(run: Run, threshold: float = THRESHOLD) -> Num[np.ndarray, " direction"]:
    """(direction,) the step at which each direction is learned."""
    steps = steps_of(run)
    return np.array(
        [
            passing(steps, curve(run, f"alignment.{p}"), threshold)
            for p in range(task_of(run).n_directions)
        ]
    )


def predicted(run: Run) -> Num[np.ndarray, " direction"]:
    """(direction,) the emergence times that the theory gives in the dimension the neurons were
    drawn in.
    """
    model, task = model_of(run), task_of(run)
    lr, norm, width = run.spec.train.lr, model.init_norm, model.width
    return task.emergence_times(lr, norm, width, model.ambient).numpy()


def fitted(run: Run, share: float = 1.0) -> Int[np.ndarray, " fitted"]:
    """Indices of the directions that are fitted, fixed by the prediction; `share`: only the first
    ones, up to so much of all.
    """
    inside = int((SAFETY * predicted(run) <= run.spec.train.steps).sum())
    return np.arange(FIRST - 1, min(inside, round(share * task_of(run).n_directions)))


def exponent(x: Num[np.ndarray, " point"], y: Num[np.ndarray, " point"]) -> float:
    """Slope of log y over log x; TrainingError where a value is missing or not positive.

    >>> round(exponent(np.array([1.0, 2.0, 4.0]), np.array([3.0, 12.0, 48.0])), 6)
    2.0
    """
    if len(x) < 2 or not (np.isfinite(y).all() and (y > 0).all()):
        raise TrainingError(
            "a fit over directions or widths of which some were not reached in the run"
        )
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def time_exponent(run: Run, threshold: float = THRESHOLD, share: float = 1.0) -> float:
    """Slope of log T_p over log p, of the fitted directions that were learned; `censored` counts
    the others.
    """
    inside = fitted(run, share)
    times = emergence(run, threshold)[inside]
    return exponent((inside + 1)[np.isfinite(times)], times[np.isfinite(times)])


def predicted_exponent(run: Run, share: float = 1.0) -> float:
    """Slope of log T_p over log p of the same directions, with T_p as the theory predicts it."""
    inside = fitted(run, share)
    return exponent(inside + 1, predicted(run)[inside])


def bounded_time_exponent(run: Run) -> float:
    """The same with every censored direction counted as learned at the last step, which is sooner
    than it can be.
    """
    inside = fitted(run)
    times = np.nan_to_num(emergence(run)[inside], nan=float(run.spec.train.steps))
    return exponent(inside + 1, times)


def censored(run: Run) -> int:
    """How many fitted directions were not learned within the run."""
    return int(np.isnan(emergence(run)[fitted(run)]).sum())


def by_seed(arms: Mapping[float, Sequence[Run]]) -> list[list[Run]]:
    """The mixtures of every seed. Those of one seed draw their starts from the same random numbers,
    whatever β is, so that they count as one independent run.
    """
    seeds: dict[int, list[Run]] = {
        run.spec.train.seed: [] for group in arms.values() for run in group
    }
    for group in arms.values():
        for run in group:
            seeds[run.spec.train.seed].append(run)
    return list(seeds.values())


def left_over(arms: Mapping[float, Sequence[Run]], most: float) -> Part:
    """The control of what is read from times or losses: no run leaves more than the share `most` of
    its fitted directions unlearned.
    """
    shares = [censored(run) / len(fitted(run)) for group in arms.values() for run in group]
    worst, n = max(shares), len(by_seed(arms))
    return Part("directions not learned", worst <= most, f"at most {worst:.1%}", n)


def rise(run: Run) -> float:
    """Time from alignment 0.1 to 0.9 over the time until 0.1, the median of the fitted directions
    that do both.
    """
    start, end = (emergence(run, level)[fitted(run)] for level in (0.1, 0.9))
    return float(np.nanmedian((end - start) / start))


def window(run: Run, share: float = 1.0) -> Bool[np.ndarray, " evaluation"]:
    """Which evaluations lie between the predicted times of the first and the last fitted
    direction.
    """
    times, steps = predicted(run)[fitted(run, share)], steps_of(run)
    if len(times) < 2:
        raise TrainingError(
            "fewer than two directions are predicted to be learned well inside the run"
        )
    return (steps >= times[0]) & (steps <= times[-1])


def full_loss(run: Run) -> Num[np.ndarray, " evaluation"]:
    """The loss with the directions beyond the last one of the power law."""
    return curve(run, "loss") + task_of(run).tail


def loss_exponent(run: Run, share: float = 1.0, tail: bool = True) -> float:
    """Slope of log loss over log time in the window, with the power law's tail or without."""
    inside, losses = window(run, share), full_loss(run) if tail else curve(run, "loss")
    return exponent(steps_of(run)[inside], losses[inside])


def mixtures(runs: Runs) -> dict[float, list[Run]]:
    """β → the seeds of its mixture."""
    return {
        beta: finished(runs, arm="mixture", beta=beta)
        for beta in runs.values_of("beta", arm="mixture")
    }


def finished(runs: Runs, **labels: object) -> list[Run]:
    """The finished runs with these labels; TrainingError where there is none yet."""
    found = runs.finished(**labels)
    if not found:
        raise TrainingError(f"no run with {labels} has finished")
    return found


def floor_runs(runs: Runs, beta: float) -> dict[int, list[Run]]:
    """Width → the seeds of its narrow students."""
    widths = runs.values_of("width", arm="floor", beta=beta)
    return {width: finished(runs, arm="floor", beta=beta, width=width) for width in widths}


def floor_losses(runs: Runs, beta: float) -> dict[int, list[float]]:
    """Width → last loss of each seed, tail added."""
    return {
        width: [float(full_loss(run)[-1]) for run in group]
        for width, group in floor_runs(runs, beta).items()
    }


def floor_exponents(losses: dict[int, list[float]]) -> list[float]:
    """(seed,) the exponent of the last loss over the width, seed by seed: their mean is that of the
    geometric means.
    """
    widths = np.array(list(losses))
    return [exponent(widths, np.array(row)) for row in zip(*losses.values(), strict=True)]


def last_fall(run: Run) -> float:
    """Share by which the loss still fell over the last fifth of the run."""
    losses = full_loss(run)
    return float(1 - losses[-1] / losses[int(0.8 * (len(losses) - 1))])


def additive_factor(run: Run, times: Num[np.ndarray, " direction"]) -> float:
    """Median over the window of the factor between the loss and Σ a_p² of the directions whose
    `times` (direction,) lie ahead, the tail of the power law added to both.
    """
    task, steps = task_of(run), steps_of(run)
    ahead = torch.from_numpy(np.nan_to_num(times, nan=math.inf))
    stairs = task.predicted_loss(torch.from_numpy(steps), ahead).numpy() + task.tail
    inside = window(run)
    return float(np.exp(np.median(np.abs(np.log(full_loss(run)[inside] / stairs[inside])))))
