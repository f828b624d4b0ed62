"""Measures of a run of the emergence study: times, exponents, floors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Int, Num

from mechint.run_table.dynamics import passing
from mechint.studies.statistics import exponent
from mechint.training import Run

THRESHOLD = 0.5
"""Alignment at which a direction counts as learned: half of its final value, where curves are
steepest.
"""

SAFETY = 1.5
"""A direction is fitted when its predicted time, this many times over, lies inside the run."""

FIRST = 2
"""The first direction that is fitted: the first one's time depends on where neurons start."""

WINDOWS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the directions over which exponents are fitted."""


def measure(run: Run, labels: Mapping[str, Any]) -> dict[str, Any]:
    """The measures of the run's arm."""
    return {
        "mixture": mixture,
        "floor": floor,
        "search": search,
        "online": online,
        "online fixed": online,
    }[labels["arm"]](run)


def curve(run: Run, name: str) -> Num[np.ndarray, " evaluation"]:
    """A metric of the test log at every evaluation."""
    return np.array([row[f"test.{name}"] for row in run.metrics])


def steps_of(run: Run) -> Num[np.ndarray, " evaluation"]:
    """The steps of the evaluations."""
    return np.array([row["step"] for row in run.metrics], dtype=float)


def emergence(run: Run, threshold: float = THRESHOLD) -> Num[np.ndarray, " direction"]:
    """The step at which each direction is learned; infinite where never."""
    task: Any = run.spec.task
    steps, directions = steps_of(run), range(task.n_directions)
    return np.array([passing(steps, curve(run, f"alignment.{p}"), threshold) for p in directions])


def predicted(run: Run) -> Num[np.ndarray, " direction"]:
    """The emergence times of the theory, in the dimension in which the neurons were drawn."""
    model, task = cast(Any, run.spec.model), cast(Any, run.spec.task)
    lr = run.spec.train.lr
    return task.emergence_times(lr, model.init_norm, model.width, model.ambient).numpy()


def fitted(run: Run, share: float = 1.0) -> Int[np.ndarray, " fitted"]:
    """Indices of the directions that are fitted, fixed by the prediction; `share`: only the first
    ones, up to so much of all.
    """
    inside = int((SAFETY * predicted(run) <= run.spec.train.steps).sum())
    return np.arange(FIRST - 1, min(inside, round(share * cast(Any, run.spec.task).n_directions)))


def full_loss(run: Run) -> Num[np.ndarray, " evaluation"]:
    """The loss with the directions beyond the last one of the power law, Σ_{p>P} a_p²."""
    return curve(run, "loss") + cast(Any, run.spec.task).tail


def window(run: Run) -> Bool[np.ndarray, " evaluation"]:
    """The evaluations between the predicted times of the first and last fitted directions."""
    times, steps = predicted(run)[fitted(run)], steps_of(run)
    if len(times) < 2:
        return np.zeros(len(steps), dtype=bool)
    return (steps >= times[0]) & (steps <= times[-1])


def mixture(run: Run) -> dict[str, Any]:
    """Exponent of T_p over p by fit window (of the directions that were learned), and as predicted;
    how many fitted directions were not learned; rise over plateau; exponent of the loss over time;
    the factor between the loss and the sum of steps at predicted times; times and loss as drawn.
    """
    task: Any = run.spec.task
    times, theory, losses, steps = emergence(run), predicted(run), full_loss(run), steps_of(run)
    whole, inside = fitted(run), window(run)
    parts = {f"{share:g}": fitted(run, share) for share in WINDOWS}
    learned = {name: part[np.isfinite(times[part])] for name, part in parts.items()}
    windows = {name: exponent(part + 1, times[part]) for name, part in learned.items()}
    begun, ended = (emergence(run, level)[whole] for level in (0.1, 0.9))
    both = np.isfinite(begun) & np.isfinite(ended)
    rises = (ended[both] - begun[both]) / begun[both]
    stairs = task.predicted_loss(torch.from_numpy(steps), torch.from_numpy(theory)).numpy()
    ratio = np.abs(np.log(losses[inside] / (stairs + task.tail)[inside]))
    at = np.unique(np.geomspace(1, len(steps) - 1, 60).astype(int))
    return {
        "fitted": len(whole),
        "window": windows,
        "time_exponent": windows["1"],
        "theory_exponent": exponent(whole + 1, theory[whole]),
        "lost": int(np.isinf(times[whole]).sum()),
        "rise": float(np.median(rises)) if len(rises) else math.inf,
        "loss_exponent": exponent(steps[inside], losses[inside]),
        "factor": float(np.exp(np.median(ratio))) if len(ratio) else math.inf,
        "times": times.tolist(),
        "curve": [steps[at].tolist(), losses[at].tolist()],
    }


def floor(run: Run) -> dict[str, Any]:
    """The last loss, tail added, and the share by which it fell over the last fifth of the run."""
    losses = full_loss(run)
    before = losses[int(0.8 * (len(losses) - 1))]
    return {"floor": float(losses[-1]), "late_fall": float(1 - losses[-1] / before)}


def search(run: Run) -> dict[str, Any]:
    """Search time of a single direction: its emergence time less the growth of a neuron that points
    along it; infinite where it was not learned; and the steps between evaluations.
    """
    growth = growth_time(run.spec.train.lr, cast(Any, run.spec.model).init_norm)
    every = run.spec.train.evaluate_every
    return {"search_time": float(emergence(run)[0]) - growth, "every": every}


def growth_time(lr: float, init_norm: float) -> float:
    """Steps in which one neuron that points along the only direction (amplitude 1) is learned:
    descent on 1 - 2n² + n⁴ from norm `init_norm`, until n² passes THRESHOLD.

    >>> round(growth_time(0.1, 0.01), 2)
    13.24
    """
    norm, squares = init_norm, [init_norm**2]
    while squares[-1] < THRESHOLD:
        norm += 4 * lr * norm * (1 - norm**2)
        squares.append(norm**2)
    return passing(np.arange(len(squares), dtype=float), np.array(squares), THRESHOLD)


def online(run: Run) -> dict[str, Any]:
    """Samples until every direction was learned, and the loss then, tail added."""
    times, steps, losses = emergence(run), steps_of(run), full_loss(run)
    finite = np.where(np.isfinite(times), times, 0.0)
    loss = np.where(np.isfinite(times), np.interp(finite, steps, losses), math.inf)
    samples = times * (run.spec.train.batch_size or 1)
    return {"samples": samples.tolist(), "loss_then": loss.tolist()}
