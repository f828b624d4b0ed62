"""The model size at which a task is learned: a logistic curve of accuracy against the logarithm of
the parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from mechint.errors import DataError, ParameterError
from mechint.task import rng

Array = NDArray[np.float64]

STEEPEST = 40.0
"""Largest slope per factor e of parameters: between two widths any steeper curve fits as well."""

SHALLOWEST = 1e-3
"""Smallest slope that is looked for: over a millionfold of sizes it raises accuracy by 0.003."""

FLAT = 1e-9
"""Slope of a curve that is the same over all sizes, as far as numbers tell."""


class GroupRuns(NamedTuple):
    """Runs of one group.

    sizes, values (n,): of each run its size, and whether it passed or its score.
    """

    sizes: NDArray[np.float64]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, sizes: ArrayLike, values: ArrayLike) -> GroupRuns:
        """A group of runs.

        Raises:
            DataError: no run, not one value for each size, or a size that is not above 0.
        """
        s, v = (np.asarray(each, dtype=np.float64) for each in (sizes, values))
        if s.ndim != 1 or s.shape != v.shape or not len(s):
            raise DataError(
                f"sizes of shape {s.shape} and values of shape {v.shape}; "
                "expected one value for each size, and a run"
            )
        if len(wrong := s[~(np.isfinite(s) & (s > 0))]):
            raise DataError(f"a size: {wrong[0]:g}: expected a number above 0")
        return cls(s, v)

    def at(self, size: float) -> Float[np.ndarray, " run"]:
        """Values of the runs of a size."""
        return self.values[self.sizes == size]

    @property
    def levels(self) -> Float[np.ndarray, " level"]:
        """The different sizes, ascending."""
        return np.unique(self.sizes)


@dataclass(frozen=True)
class Transition:
    """A fitted curve accuracy = 1 / (1 + exp(−slope · (ln parameters − middle))), and where it
    passes a level.

    parameters, accuracies (n,): the runs; samples (m, 2): middle and slope fitted to runs drawn
    again with replacement, each size on its own. Slopes lie between SHALLOWEST and STEEPEST; the
    middle of a shallow curve may lie far beyond the sizes. A level that lies above the largest
    model, where the runs never pass it, is at infinity. Where no rising curve describes the runs
    better than their mean does, the curve passes no level: it is flat (slope `FLAT`), at that mean
    or, where it is lower, at the mean of the largest models.

    Levels lie between 0 and 1, without them; ParameterError otherwise.
    """

    parameters: Array
    accuracies: Array
    middle: float
    slope: float
    samples: Array

    def at(self, level: float = 0.5) -> float:
        """Parameters at which the curve passes `level`; infinite beyond the largest model, 0 where
        all lie above it.
        """
        found = self._solve(level, self.middle, self.slope)
        low, high = math.log(self.parameters.min()), math.log(self.parameters.max())
        return math.inf if found > high else math.exp(found) if found > low else 0.0

    def interval(self, level: float = 0.5) -> tuple[float, float]:
        """95% bootstrap interval of the parameters at which the curve passes `level`; from 0 where
        that may be anywhere below the smallest model, and to infinity where anywhere above the
        largest.
        """
        least, most = self.bounds(level).T
        low = np.quantile(least, 0.025, method="nearest")
        return float(low), float(np.quantile(most, 0.975, method="nearest"))

    def draws(self, level: float = 0.5) -> Float[np.ndarray, " draw"]:
        """(draw,) `at` over the bootstrap, the largest model where the level lies beyond it."""
        return self.bounds(level)[:, 0].clip(self.parameters.min())

    def bounds(self, level: float = 0.5) -> Float[np.ndarray, "draw 2"]:
        """(draw, 2) the least and the most parameters at which each curve of the bootstrap may pass
        `level`: 0 to the smallest model where it lies below that, the largest to infinity where it
        lies above, and one number twice in between.
        """
        found = np.array([self._solve(level, *sample) for sample in self.samples])
        low, high = self.parameters.min(), self.parameters.max()
        below, above = found <= math.log(low), found > math.log(high)
        at = np.exp(found.clip(math.log(low), math.log(high)))
        return np.stack([np.where(below, 0.0, at), np.where(above, math.inf, at)], 1)

    def to_dict(self) -> dict[str, float]:
        """The size at one half with its 95% interval, the slope, and the ends of the sizes."""
        low, high = self.interval()
        ends = {"smallest": float(self.parameters.min()), "largest": float(self.parameters.max())}
        return {"at": self.at(), "low": low, "high": high, "slope": self.slope, **ends}

    def said(self, over: str) -> str:
        """The value of `over` at which it passes one half, in words."""
        shown = {name: f"{value:,.3g}" for name, value in self.to_dict().items()}
        ends = f"{shown['low']} to {shown['high']}".replace("to inf", "and beyond")
        interval = f"(95% interval {ends})"
        if math.isinf(self.at()):
            return f"does not pass one half up to {over} {shown['largest']} {interval}"
        if not self.at():
            return f"passes one half below {over} {shown['smallest']}, the smallest {interval}"
        return f"passes one half at {over} {shown['at']} {interval}"

    @staticmethod
    def _solve(level: float, middle: float, slope: float) -> float:
        if not 0 < level < 1:
            raise ParameterError(f"transition: level={level}: expected a number between 0 and 1")
        return middle + math.log(level / (1 - level)) / slope


def logistic(
    x: Float[np.ndarray, " ..."], middle: float | Array, slope: float | Array
) -> Float[np.ndarray, " ..."]:
    """1 / (1 + exp(−slope (x − middle))), without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * slope * (x - middle)))


def fit_transition(
    parameters: ArrayLike, accuracies: ArrayLike, *, bootstrap: int = 200, seed: int = 0
) -> Transition:
    """Least squares of the logistic curve over ln parameters, with a bootstrap over the runs of
    each size.

    Args:
        parameters: (n,) weights of each model; accuracies: (n,) 0–1, one per run.

    Raises:
        DataError: fewer than two different sizes, a size that is not a number above 0, an accuracy
            outside 0–1, or not as many of the one as of the other.

    >>> fit_transition([1e3, 1e4, 1e5, 1e6], [0.0, 0.1, 0.9, 1.0],
    ...     bootstrap=5).at(0.5).__round__(-3)
    32000.0
    """
    runs = GroupRuns.of(parameters, accuracies)
    x, y = np.log(runs.sizes), runs.values
    if len(runs.levels) < 2:
        raise DataError(f"transition: runs of {len(runs.levels)} size; expected at least two sizes")
    if len(wrong := y[~((y >= 0) & (y <= 1))]):
        raise DataError(f"transition: accuracy {wrong[0]:g}: expected a share between 0 and 1")
    generator = rng("transition", seed)
    members = [np.flatnonzero(runs.sizes == size) for size in runs.levels]
    spread = y.copy()
    # runs drawn again vary less than runs by the factor (n - 1) / n, much where a size has few
    for index in members:
        wider = math.sqrt(len(index) / max(len(index) - 1, 1))
        spread[index] = y[index].mean() + wider * (y[index] - y[index].mean())
    drawn = (
        np.concatenate([generator.choice(index, len(index)) for index in members])
        for _ in range(bootstrap)
    )
    samples = np.array([_least_squares(x[index], spread[index]) for index in drawn]).reshape(-1, 2)
    return Transition(np.exp(x), y, *_least_squares(x, y), samples)


def _least_squares(x: Array, y: Array) -> tuple[float, float]:
    """Middle and slope of the best curve; flat where the mean is better than any that rises.

    Curves with their middle near the sizes are searched first, and where the best of them is at the
    edge of what was searched, shallow ones too, whose middle may lie anywhere.
    """
    around_mean = ((y - y.mean()) ** 2).sum()
    middle, slope, error, inside = _best(x, y, 0.2, 0.0)
    if not inside or around_mean < error:
        shallow = _best(x, y, SHALLOWEST, 10.0)
        middle, slope, error = min(shallow[:3], (middle, slope, error), key=lambda one: one[2])
    if around_mean < error - 1e-9:
        # larger models that do worse have not passed a level that smaller ones had
        height = min(float(y.mean()), float(y[x == x.max()].mean()))
        return _flat(height, float(x.max())), FLAT
    return middle, slope


def _best(x: Array, y: Array, least: float, logit: float) -> tuple[float, float, float, bool]:
    """Middle, slope and squared error of the best curve of slope `least` or more, and whether it
    lies inside the grid: a coarse one, then refined about its best point, so that no start value
    can mislead it. Middles lie one range of sizes around them, or as far away as a curve has its
    `logit` at the middle of the sizes.
    """
    low, high = x.min(), x.max()
    places, slopes = np.linspace(-1, 1, 61), np.geomspace(least, STEEPEST, 49 if logit else 25)
    inside, found = True, (0.0, 0.0, 0.0)
    for turn in range(4):
        reach = np.maximum(1.5 * (high - low), logit / slopes)
        middles = (low + high) / 2 + places[:, None] * reach  # (place, slope)
        errors = ((logistic(x, middles[..., None], slopes[:, None]) - y) ** 2).sum(-1)
        i, j = np.unravel_index(errors.argmin(), errors.shape)
        if turn == 0:
            inside = 0 < i < len(places) - 1 and j > 0
        found = float(middles[i, j]), float(slopes[j]), float(errors[i, j])
        step, factor = places[1] - places[0], slopes[1] / slopes[0]
        places = np.linspace(places[i] - step, places[i] + step, 21)
        slopes = np.geomspace(slopes[j] / factor, slopes[j] * factor, 11).clip(least, STEEPEST)
    return *found, bool(inside)


def _flat(height: float, largest: float) -> float:
    """The middle of the curve of slope `FLAT` that has `height` just above the size `largest`, both
    sizes as logarithms.
    """
    height = min(max(height, 1e-6), 1 - 1e-6)  # draws that were spread may leave 0–1
    return largest + 1 - math.log(height / (1 - height)) / FLAT
