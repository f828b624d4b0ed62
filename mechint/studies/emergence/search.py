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
    """Slope of log median over log d, and (draw,) the same on seeds drawn again within each d; nan
    where a median of the draw is infinite or not positive, so that it has no slope.

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
    medians = np.stack(again, axis=1)  # (draw, d)
    read = np.isfinite(medians).all(1) & (medians > 0).all(1)
    drawn = np.full(draws, math.nan)
    drawn[read] = [exponent(at, row) for row in medians[read]]
    return slope, drawn


def exponent_interval(drawn: Num[np.ndarray, " draw"]) -> tuple[float, float]:
    """The 95% interval of exponents drawn again: their 2.5% and 97.5% quantiles. A draw without
    one, nan, counts as smaller than all others at the lower end and as larger at the upper one,
    since a time that was not reached in the run may be of any length.

    >>> exponent_interval(np.array([0.0, 1.0]))
    (0.025, 0.975)
    >>> exponent_interval(np.array([0.5] * 98 + [math.nan] * 2))
    (0.5, 0.5)
    >>> exponent_interval(np.array([0.5] * 90 + [math.nan] * 10))
    (-inf, inf)
    """
    least, most = (np.where(np.isnan(drawn), end, drawn) for end in (-math.inf, math.inf))
    # between a number and infinity there is nothing to interpolate
    below, above = ("lower", "higher") if np.isnan(drawn).any() else ("linear", "linear")
    return (
        float(np.quantile(least, 0.025, method=below)),
        float(np.quantile(most, 0.975, method=above)),
    )
