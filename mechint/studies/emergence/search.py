"""How long the search for a single direction takes, and how that grows with the dimension."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Num

from mechint.studies.core.study import Runs, model_of
from mechint.studies.emergence.measures import (
    THRESHOLD,
    emergence,
    exponent,
    finished,
    passing,
)
from mechint.task import rng

SEARCH = {3: 0.5, 4: 1.0}
"""Information exponent k → exponent k/2 - 1 of the search time in d."""


def growth_time(lr: float, init_norm: float) -> float:
    """Steps in which one neuron that points along the only direction (amplitude 1) is learned:
    descent on 1 - 2n² + n⁴ from norm `init_norm`, until n² passes THRESHOLD.

    The flow's ln(√½ / n₀) / 4η is shorter: steps of η > 0 lag behind it, and so does the norm where
    it nears its end.

    >>> round(growth_time(0.1, 0.01), 2)
    13.24
    """
    norm, squares = init_norm, [init_norm**2]
    while squares[-1] < THRESHOLD:
        norm += 4 * lr * norm * (1 - norm**2)
        squares.append(norm**2)
    return passing(np.arange(len(squares), dtype=float), np.array(squares), THRESHOLD)


def search_times(runs: Runs, k: int) -> dict[int, list[float]]:
    """d → search time of each seed: the emergence time less `growth_time`; infinite where the
    direction was not learned.
    """
    times = {}
    for d in runs.values_of("d", arm="search"):
        group = finished(runs, arm="search", k=k, d=d)
        growth = [growth_time(run.spec.train.lr, model_of(run).init_norm) for run in group]
        found = [float(np.nan_to_num(emergence(run)[0], nan=math.inf)) for run in group]
        times[d] = [time - less for time, less in zip(found, growth, strict=True)]
    return times


def search_resolution(runs: Runs, k: int) -> float:
    """The shortest median search time over d, in steps between evaluations."""
    every = runs.finished(arm="search", k=k)[0].spec.train.evaluate_every
    return min(search_medians(runs, k).values()) / every


def search_medians(runs: Runs, k: int) -> dict[int, float]:
    """d → median search time over the seeds, those not learned counted as infinite."""
    return {d: float(np.median(each)) for d, each in search_times(runs, k).items()}


def search_exponents(
    times: dict[int, list[float]], draws: int = 1000
) -> tuple[float, Num[np.ndarray, " draw"]]:
    """Slope of log median over log d, and (draw,) the same on seeds drawn again within each d.

    Raises:
        TrainingError: at some d half of the seeds or more did not learn the direction.

    >>> slope, drawn = search_exponents({d: [d**0.5] * 4 for d in (16, 64, 256)}, 5)
    >>> round(slope, 6), drawn.round(6).tolist()
    (0.5, [0.5, 0.5, 0.5, 0.5, 0.5])
    """
    generator, at = rng("emergence search", 0), np.array(list(times))
    slope = exponent(at, np.array([np.median(each) for each in times.values()]))
    again = [
        np.median(generator.choice(each, (draws, len(each))), axis=1) for each in times.values()
    ]
    medians = np.stack(again, axis=1)
    medians = medians[np.isfinite(medians).all(1) & (medians > 0).all(1)]
    return slope, np.array([exponent(at, row) for row in medians])
