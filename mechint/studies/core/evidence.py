"""From numbers of independent runs to the parts of a finding: intervals and exact tests.

Every function returns a `Part`. It is met or missed only where the 95% interval, or the test,
decides, or, of what is asked of every run, one that does not show it; with fewer than MIN_RUNS runs
nothing is decided.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from mechint.intervals import CONFIDENCE, clopper_pearson
from mechint.studies.core.claims import Part

LEVEL = CONFIDENCE
"""Of every interval."""

MIN_RUNS = 3
"""Fewer independent runs decide nothing: their spread is not known."""

NO_RUN = "no run"
"""Shown of a part that no run says anything of."""


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's interval of the mean at LEVEL; the whole line with fewer than two values.

    >>> tuple(round(end, 3) for end in t_interval([1.0, 2.0, 3.0]))
    (-0.484, 4.484)
    """
    from scipy import stats

    if len(values) < 2:
        return -math.inf, math.inf
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * error
    return float(np.mean(values)) - half, float(np.mean(values)) + half


def mean_within(
    name: str, values: Sequence[float], low: float = -math.inf, high: float = math.inf
) -> Part:
    """The mean lies between `low` and `high`: met where its interval does, missed where its
    interval lies outside.

    >>> mean_within("x", [0.99, 1.0, 1.01], 0.9, 1.1).met, mean_within("x", [0.5] * 2, 0.4).met
    (True, None)
    """
    below, above = t_interval(values)
    met = _inside(below, above, low, high, len(values))
    return Part(name, met, _mean(values, below, above), len(values))


def _inside(below: float, above: float, low: float, high: float, n: int) -> bool | None:
    """Whether an interval from n runs lies within `low` and `high`; None where it spans an end."""
    if n < MIN_RUNS:
        return None
    if low <= below and above <= high:
        return True
    return False if above < low or below > high else None


def _mean(values: Sequence[float], below: float, above: float) -> str:
    interval = f" [{below:.3g}, {above:.3g}]" if math.isfinite(below) else ""
    return f"{np.mean(values):.3g}{interval} (n = {len(values)})" if len(values) else NO_RUN


def every(name: str, flags: Sequence[bool], shown: str = "") -> Part:
    """All runs show it: of at least MIN_RUNS, met where all do, missed where one does not.

    >>> every("learned", [True] * 3).met, every("learned", [True] * 2).met
    (True, None)
    """
    hits, n = sum(map(bool, flags)), len(flags)
    met = hits == n if n >= MIN_RUNS else None
    text = _proportion(hits, n)
    return Part(name, met, f"{text}; {shown}" if shown else text, n)


def share_within(name: str, hits: int, n: int, low: float = 0.0, high: float = 1.0) -> Part:
    """The share of runs that show it lies between `low` and `high`, by Clopper and Pearson's exact
    interval.

    >>> share_within("learned", 12, 12, low=0.7).met, share_within("learned", 5, 5, low=0.7).met
    (True, None)
    """
    met = _inside(*clopper_pearson(hits, n), low, high, n)
    return Part(name, met, _proportion(hits, n), n)


def _proportion(hits: int, n: int) -> str:
    low, high = clopper_pearson(hits, n)
    return f"{hits} of {n} runs, 95% interval [{low:.2f}, {high:.2f}]" if n else NO_RUN


def more_often(
    name: str, first: tuple[int, int], second: tuple[int, int], alpha: float = 0.05
) -> Part:
    """The first group (hits, n) shows it more often than the second, by Fisher's exact one-sided
    test.

    Missed where the upper end of the 95% interval of the difference (Newcombe's) is below 0.2, a
    difference that would matter; undecided in between.

    >>> more_often("solved", (12, 12), (3, 12)).met, more_often("solved", (3, 3), (1, 3)).met
    (True, None)
    """
    from scipy import stats

    fewest = min(first[1], second[1])
    if not fewest:
        return Part(name, None, NO_RUN, 0)
    table = [[hits, n - hits] for hits, n in (first, second)]
    # scipy has no types, and its result is a tuple class made at run time
    tested = stats.fisher_exact(table, alternative="greater")
    p_value = float(tested[1])  # pyright: ignore[reportArgumentType]
    shares = [hits / n for hits, n in (first, second)]
    difference = shares[0] - shares[1]
    upper = difference + math.hypot(_wilson(*first)[1] - shares[0], shares[1] - _wilson(*second)[0])
    shown = (
        f"{first[0]} of {first[1]} against {second[0]} of {second[1]}, difference "
        f"{difference:+.2f}, exact p = {p_value:.2g}"
    )
    return Part(name, _tested(p_value, alpha, upper < WORTHWHILE, fewest), shown, fewest)


WORTHWHILE = 0.2
"""The least difference of two shares that would matter."""


def _tested(p_value: float, alpha: float, refuted: bool, n: int) -> bool | None:
    """Whether a one-sided test of n runs finds the effect; missed where that is refuted: that a
    test finds none tells nothing against it.
    """
    if n < MIN_RUNS:
        return None
    # 1/20 comes out of scipy as 0.05000000000000001
    return True if p_value <= alpha * (1 + 1e-9) else (False if refuted else None)


Z = 1.959964
"""Normal quantile of LEVEL, two-sided."""


def _wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's interval of a share at LEVEL."""
    z, p = Z, hits / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def earlier(
    name: str, first: Sequence[float], second: Sequence[float], alpha: float = 0.05
) -> Part:
    """Values of `first` lie below those of `second`, by the one-sided Mann–Whitney test; infinities
    come last.

    Exact, ties included, by counting the ways to deal the values to the two groups; where there are
    too many, asymptotic. The effect is the share of pairs with first < second, ties half. Missed
    where the upper end of its 95% interval (Newcombe's) is below 0.6: where the pairs in order
    exceed those in the reverse one by less than 0.2 of all, a difference that would matter.

    >>> earlier("first", [1, 2, 3, 4], [5, 6, 7, 8, 9]).shown
    '100% of 20 pairs, exact p = 0.0079'
    """
    from scipy import stats

    fewest = min(len(first), len(second))
    if not fewest:
        return Part(name, None, NO_RUN, 0)
    pairs = len(first) * len(second)
    ranks = stats.rankdata([*first, *second])
    least = len(first) * (len(first) + 1) / 2
    share = 1 - (ranks[: len(first)].sum() - least) / pairs
    ways = math.comb(len(ranks), len(first))
    if ways <= MAX_DEALS:
        observed = ranks[: len(first)].sum() + 1e-9
        sums = (sum(deal) for deal in itertools.combinations(ranks.tolist(), len(first)))
        p_value, kind = sum(one <= observed for one in sums) / ways, "exact"
    else:
        groups = ranks[: len(first)], ranks[len(first) :]
        found = stats.mannwhitneyu(*groups, alternative="less", method="asymptotic")
        p_value, kind = float(found.pvalue), "asymptotic"
    refuted = pairs_at_most(share, len(first), len(second)) < (1 + WORTHWHILE) / 2
    shown = f"{share:.0%} of {pairs} pairs, {kind} p = {p_value:.2g}"
    return Part(name, _tested(p_value, alpha, refuted, fewest), shown, fewest)


def pairs_at_most(share: float, n: int, m: int) -> float:
    """Upper end of the interval at LEVEL of the share of the n × m pairs that are in order, by
    Newcombe's fifth method, whose width does not vanish where all pairs agree.

    Source: Newcombe, Confidence intervals for an effect size measure based on the Mann–Whitney
    statistic, part 2, Statistics in Medicine 25 (2006).

    >>> round(pairs_at_most(0.0, 3, 3), 3), round(pairs_at_most(0.5, 80, 80), 3)
    (0.499, 0.588)
    """
    from scipy import optimize

    def beyond(theta: float) -> float:
        spread = (1 - theta) / (2 - theta) + theta / (1 + theta)
        variance = theta * (1 - theta) / (n * m) * (1 + ((n + m) / 2 - 1) * spread)
        return theta - share - Z * math.sqrt(variance)

    if share >= 1:
        return 1.0
    found = optimize.brentq(beyond, share + 1e-9, 1.0)  # at 0 itself there is no spread
    return float(found)  # pyright: ignore[reportArgumentType]


MAX_DEALS = 200_000
"""Ways to deal values to two groups that are counted one by one."""


def ratio_within(
    name: str, ratio: float, interval: tuple[float, float], low: float, high: float, n: int
) -> Part:
    """A ratio with its bootstrap interval lies between `low` and `high`; an interval without an
    upper end says what the ratio is at least.
    """
    below, above = interval
    end = f"{above:.3g}]" if math.isfinite(above) else "∞)"
    met = _inside(below, above, low, high, n)
    return Part(name, met, f"{ratio:.3g} [{below:.3g}, {end} (n = {n})", n)
