"""The factor by which one group of models must be larger than another, where no run, or every run,
may pass.

Runs of groups A and B at sizes s, each with a flag that it passed, or a score. Assumed: the chance
to pass does not fall with size. With ratio ρ, A at size ρ s does as B at s: the whole curve is
shifted, so that no level has to be reached by anyone. H(r), that ρ ≤ r: A at any size ≥ r s passes
at least as often as B at s. Each size of A is a stratum with the runs of B just below size / r; p
is that of Fisher's exact test over the strata, by convolution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Num
from numpy.typing import NDArray
from scipy import stats

from mechint.decide import YES, Decision, all_of
from mechint.run_table.transitions import GroupRuns
from mechint.task import rng

LEVEL = 0.025
"""Of each one-sided test."""
SLOPES = np.geomspace(0.5, 40, 22)
"""Slopes per factor e of size that two curves may share."""
REACH = 4.0
"""Logarithms of size beyond the runs where a middle is looked for."""
FAR = stats.chi2.ppf(0.95, 1) / 2
"""Drop of the log likelihood at the ends of a 95% interval."""
FLAT = 1e-3
"""Drop that is none."""


def strata(a: GroupRuns, b: GroupRuns, ratio: float) -> list[tuple[NDArray[np.float64], ...]]:
    """Values of A at each of its sizes, and of the runs of B that are smaller by `ratio` or more
    but were not held against a smaller size; sizes without such are left out.
    """
    found, before = [], -math.inf
    for size in a.levels:
        end = size * (1 + 1e-9)
        picked = b.values[(b.sizes * ratio > before) & (b.sizes * ratio <= end)]
        if len(picked):
            found.append((a.at(size), picked))
        before = end
    return found


def at_most(a: GroupRuns, b: GroupRuns, ratio: float) -> float:
    """p-value of H(ratio): A needs at most `ratio` times the size of B; values are passes.

    >>> a, b = GroupRuns.of([2] * 4, [0] * 4), GroupRuns.of([1] * 4, [1] * 4)
    >>> round(at_most(a, b, 2) * 70, 9)
    1.0
    """
    chances, passed = np.ones(1), 0
    for first, second in strata(a, b, ratio):
        passes, total = int(first.sum() + second.sum()), len(first) + len(second)
        own = np.arange(len(second) + 1)
        chances = np.convolve(chances, stats.hypergeom.pmf(own, total, passes, len(second)))
        passed += int(second.sum())
    return float(min(1.0, chances[passed:].sum()))


def at_least(a: GroupRuns, b: GroupRuns, ratio: float) -> float:
    """p-value of: A needs at least `ratio` times the size of B."""
    return at_most(b, a, 1 / ratio)


def at_most_by_rank(
    a: GroupRuns, b: GroupRuns, ratio: float, draws: int = 9999, seed: int = 0
) -> float:
    """p-value of H(ratio) with scores in place of passes: van Elteren's rank sum over the strata,
    its null by permutation within each. No level is chosen; assumed: scores do not fall,
    stochastically, with size.

    >>> a, b = GroupRuns.of([2] * 6, range(6)), GroupRuns.of([1] * 6, range(10, 16))
    >>> at_most_by_rank(a, b, 2, 999) < 0.01
    True
    """
    draw, seen, drawn = rng("shift", seed), 0.0, np.zeros(draws)
    for first, second in strata(a, b, ratio):
        ranks = stats.rankdata(np.concatenate([second, first])) / (len(first) + len(second) + 1)
        seen += ranks[: len(second)].sum()
        shuffled = draw.permuted(np.tile(ranks, (draws, 1)), axis=1)
        drawn += shuffled[:, : len(second)].sum(1)
    return float((1 + (drawn >= seen - 1e-9).sum()) / (1 + draws))


@dataclass(frozen=True)
class Ratio:
    """The ratio of the sizes at which two groups pass half of the time, with its 95% interval; an
    end is 0 or infinite where the runs bound nothing there.
    """

    value: float
    low: float
    high: float


def estimate_ratio(a: GroupRuns, b: GroupRuns) -> Ratio:
    """Profile likelihood of two logistic curves with one slope between the ends of SLOPES, over the
    logarithm of size. Where the curves have plateaus of different height it is wrong, and the exact
    test is not.

    >>> sizes = [1, 2, 4, 8] * 5
    >>> a, b = GroupRuns.of(sizes, [0, 0, 0, 1] * 5), GroupRuns.of(sizes, [0, 1, 1, 1] * 5)
    >>> found = estimate_ratio(a, b)
    >>> 1 < found.low < found.value < found.high < 17
    True
    """
    logs = [np.log(group.sizes) for group in (a, b)]
    low, high = min(map(np.min, logs)) - REACH, max(map(np.max, logs)) + REACH
    middles = np.linspace(low, high, 161)
    first, second = (
        _log_likelihood(x, group.values, middles) for x, group in zip(logs, (a, b), strict=True)
    )  # (middle, slope)
    n = len(middles)
    both = (first[:, None] + second[None]).max(-1)
    shift = np.subtract.outer(np.arange(n), np.arange(n))
    profile = np.full(2 * n - 1, -math.inf)
    np.maximum.at(profile, shift + n - 1, both)
    near = profile.max() - FAR
    inside = np.flatnonzero(profile >= near)
    step = middles[1] - middles[0]
    ends = np.exp((inside[[0, -1]] - (n - 1) + np.array([-1, 1])) * step)
    top = [curves.max(0) for curves in (first, second)]  # (slope,)
    least, most = (
        float(max((first[end] + top[1]).max(), (second[-1 - end] + top[0]).max()))
        for end in (0, -1)
    )  # with a middle beyond all sizes, so that the ratio is 0 or infinite
    best = np.flatnonzero(profile >= profile.max() - FLAT).mean() - (n - 1)
    unbounded = [one >= profile.max() - FLAT for one in (least, most)]
    value = math.inf if unbounded[1] else 0.0 if unbounded[0] else float(np.exp(best * step))
    return Ratio(
        value if unbounded.count(True) < 2 else math.nan,
        0.0 if least >= near else float(ends[0]),
        math.inf if most >= near else float(ends[1]),
    )


def _log_likelihood(
    x: Float[np.ndarray, " run"], passed: Num[np.ndarray, " run"], middles: Float[np.ndarray, " m"]
) -> Float[np.ndarray, "m slope"]:
    """Of passes under a logistic curve of each middle and each of SLOPES."""
    sign = np.where(passed > 0, 1.0, -1.0)[:, None, None]
    z = SLOPES * (x[:, None, None] - middles[:, None])
    return np.asarray(-np.logaddexp(0, -sign * z).sum(0))


def falling(group: GroupRuns) -> float:
    """Fisher's one-sided p-value that the largest size passes less often than a smaller one, after
    Holm: the least of them; 1 for one size.
    """
    *smaller, largest = (group.at(size) for size in group.levels)
    passes, total = largest.sum(), len(largest)
    p_values = [
        float(stats.hypergeom.sf(at.sum() - 1, len(at) + total, at.sum() + passes, len(at)))
        for at in smaller
    ]
    return min(1.0, min(p_values, default=1.0) * len(p_values))


def has_plateau(group: GroupRuns) -> bool:
    """Return whether runs of the largest size pass, but no more often than those of the next: then
    more size would not help, and a factor of sizes says nothing.
    """
    if len(group.levels) < 2:
        return False
    before, last = (float(group.at(size).mean()) for size in group.levels[-2:])
    return 0 < last <= before < 1


def why_incomparable(a: GroupRuns, b: GroupRuns, *ratios: float) -> list[str]:
    """Reasons for which a factor of the sizes of A over those of B says nothing: no runs of both so
    far apart, a larger model that does worse, A on a plateau.
    """
    found = [f"no runs of both {end:g} apart" for end in ratios if not strata(a, b, end)]
    found += ["a larger model does worse"] * (min(falling(a), falling(b)) <= 0.05)
    return found + ["size is not its limit"] * has_plateau(a)


def decide_ratio(a: GroupRuns, b: GroupRuns, bar: tuple[float, float], estimate: Ratio) -> Decision:
    """Decide whether the factor by which A must be larger lies within `bar`, of which an end may be
    infinite: on the side of an end that the exact test shows, and the estimate's interval with it.
    """
    held = []
    for end, side in zip(bar, ("above", "below"), strict=True):
        if not math.isfinite(end):
            continue
        above = at_most(a, b, end) <= LEVEL and estimate.low > end
        under = at_least(a, b, end) <= LEVEL and estimate.high < end
        yes, no = (above, under) if side == "above" else (under, above)
        reason = f"neither above nor below {end:g}" if not no else f"not {side} {end:g}"
        held.append(YES if yes else Decision("no" if no else "unclear", reason))
    return all_of(held)
