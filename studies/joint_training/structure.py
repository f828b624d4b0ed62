"""Estimators of the joint-training study: ratios of sizes, layouts of the digits, parity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mechint.decide import YES, Decision
from mechint.groups.layouts import agreement, align, find_layouts
from mechint.run_table.shifts import (
    LEVEL,
    GroupRuns,
    at_most,
    at_most_by_rank,
    decide_ratio,
    estimate_ratio,
    why_incomparable,
)
from mechint.studies.claims import PositiveControl
from mechint.studies.joint_training.measures import SOLVED, parity_separation
from mechint.studies.rows import NoRunsError, Row
from mechint.studies.statistics import Bar, Estimate, bootstrap

Array = NDArray[np.float64]
Pairs = Sequence[tuple[float, float]]
"""The size of each run, and whether it passes or its accuracy."""
PERMUTATIONS, FITTINGS, DRAWS = 199, 40, 200
"""Permuted tokens of a layout; of fitting alone; draws of the bootstrap over models."""
ORDERS = 199
"""Orders of the digits against which a separation is judged; ten have 126 different ones."""
ENOUGH = 10
"""Models of which an average says something."""


def solved(row: Row) -> bool:
    """Return whether a run has learned its operation."""
    return row["accuracy"] >= SOLVED


# --- ratios of sizes ------------------------------------------------------------------------------
def ratio(bar: Bar) -> Callable[[Pairs, Pairs], Estimate]:
    """The factor by which runs of the first group must be larger, by profile likelihood; the exact
    shift test decides.
    """

    def estimate(*pairs: Pairs) -> Estimate:
        first, second = (GroupRuns.of(*zip(*each, strict=True)) for each in pairs)
        found = estimate_ratio(first, second)
        ends = [end for end in bar if math.isfinite(end)]
        exact = ", ".join(f"{at_most(first, second, end):.2g} that at most {end:g}" for end in ends)
        decided = decide_ratio(first, second, bar, found)
        n = min(map(len, pairs))
        reason = replace(decided, reason=f"exact p {exact}")
        return Estimate(found.value, found.low, found.high, n, decision=reason)

    return estimate


def comparable(bar: Bar) -> Callable[[Pairs, Pairs], PositiveControl]:
    """Met where both groups have runs a bar apart, no larger model does worse, and the first group
    is not on a plateau, where size is not its limit.
    """

    def check(*pairs: Pairs) -> PositiveControl:
        first, second = (GroupRuns.of(*zip(*each, strict=True)) for each in pairs)
        wrong = why_incomparable(first, second, *filter(math.isfinite, bar))
        return PositiveControl(not wrong, "; ".join(wrong) or "none falls, no plateau")

    return check


def better_smaller(least: float) -> Callable[[Pairs, Pairs], Estimate]:
    """The share of pairs in which the first runs, of smaller models, do better than the second;
    the rank sum at `least` times the size decides.
    """

    def estimate(*pairs: Pairs) -> Estimate:
        smaller, larger = (GroupRuns.of(*zip(*each, strict=True)) for each in pairs)
        better = bootstrap(_share_above, list(smaller.values), list(larger.values), draws=500)
        most = at_most_by_rank(larger, smaller, least)
        worse = at_most_by_rank(smaller, larger, smaller.sizes.max() / larger.sizes.min())
        means = f"means {smaller.values.mean():.2f} and {larger.values.mean():.2f}"
        reason = f"{means}; p {most:.2g} that at most {least:g}"
        decided = YES if most <= LEVEL else Decision("no" if worse <= LEVEL else "unclear")
        return replace(better, decision=replace(decided, reason=reason))

    return estimate


def apart(least: float) -> Callable[[Pairs, Pairs], PositiveControl]:
    """Met where the second runs are of models at least so many times larger than the first."""

    def check(*pairs: Pairs) -> PositiveControl:
        found = min(size for size, _ in pairs[1]) / max(size for size, _ in pairs[0])
        return PositiveControl(found >= least, f"sizes {found:.2g} apart")

    return check


def _share_above(first: Sequence[float], second: Sequence[float]) -> float:
    """Share of pairs in which the first is larger, ties half."""
    apart = np.subtract.outer(np.asarray(first), np.asarray(second))
    return float(((apart > 0) + (apart == 0) / 2).mean())


# --- layouts of the digits ------------------------------------------------------------------------
def over_models(
    statistic: Callable[[Array, Sequence[int]], float], found: Sequence[Array]
) -> Estimate:
    """A statistic of several models' matrices: bootstrap over models; the statistic gets which of
    them each is, since a model drawn twice is no pair.
    """

    def of(drawn: Sequence[tuple[int, Array]]) -> float:
        return statistic(np.array([one for _, one in drawn]), [i for i, _ in drawn])

    return bootstrap(of, list(enumerate(found)), draws=DRAWS)


def gain_of_fitting(found: Sequence[Array]) -> Estimate:
    """Agreement of models up to the symmetries of addition, less that of models as they stand."""
    return over_models(lambda each, own: agreement(align(each), own) - agreement(each, own), found)


def beyond_fitting(found: Sequence[Array]) -> PositiveControl:
    """Met where ENOUGH models agree more than fitting gives to models of permuted tokens."""
    draw, fits = np.random.default_rng(0), []
    for _ in range(FITTINGS if found else 0):
        orders = (draw.permutation(len(found[0])) for _ in found)
        shuffled = [one[np.ix_(order, order)] for one, order in zip(found, orders, strict=True)]
        fits.append(agreement(align(np.array(shuffled))))
    fitted = agreement(align(np.array(found))) if found else math.nan
    met = len(found) >= ENOUGH and fitted > float(np.quantile(fits, 0.95))
    shown = (
        f"{len(found)} models, {fitted:.2f} after fitting, {np.mean(fits or [0]):.2f} of it alone"
    )
    return PositiveControl(met, shown)


def best_effect(row: Row) -> float:
    """The largest effect of a layout in one model."""
    found = find_layouts(np.array(row["beyond_isotropy"]), PERMUTATIONS)
    return max(found.effects.values())


def effect_of_average(found: Sequence[Array]) -> Estimate:
    """The largest effect of a layout in the average of models."""
    whole = find_layouts(np.mean(found, 0), PERMUTATIONS)
    name = max(whole.effects, key=lambda one: whole.effects[one])
    effect = over_models(lambda each, _: whole.effect_of(each.mean(0))[name], found)
    return replace(effect, shown=name)


def line_before_half(row: Row) -> bool:
    """Return whether a line's effect is at 0.5 before the accuracy is."""
    half = next(step for step, at in zip(*row["curve"], strict=True) if at >= 0.5)
    before = [effect for step, effect in zip(*row["line"], strict=True) if step < half]
    return max(before, default=0.0) >= 0.5


def parity(kept: Sequence[Array]) -> Estimate:
    """The p-value of the separation of even from odd in the averaged similarity."""
    if not kept:
        raise NoRunsError("no embedding of a model that learned is kept")
    half = len(kept[0]) // 2
    found, at, p = parity_separation(np.mean(kept, 0), half, ORDERS)
    again = bootstrap(
        lambda each: parity_separation(np.mean(each, 0), half, ORDERS)[2], kept, draws=80
    )
    words = f"share {found:.2f} of component {at}"
    return Estimate(p, again.low, again.high, len(kept), words)
