"""Estimates with 95% intervals from independent runs, and the power that a number of runs has.

Shares have Clopper and Pearson's exact interval, means Student's, differences of shares Newcombe's,
everything else the percentile bootstrap's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Real
from scipy import optimize, stats

from mechint.decide import Bound, Decision, Evidence, all_of, decide
from mechint.decide.evidence import CONFIDENCE, clopper_pearson, wilson

MIN_RUNS = 3
"""Fewer independent runs have no interval of a mean: their spread is not known."""

Bar = tuple[float, float]
"""The values that bear a statement out; an end is infinite where there is none."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95% interval, from `n` independent runs.

    shown: in words, where a number alone does not say it ("13 of 16"); decision: of an exact test,
    where one decides in place of the interval, with its p-values as the reason.
    """

    value: float
    low: float
    high: float
    n: int
    shown: str = ""
    decision: Decision | None = None

    def __str__(self) -> str:
        ends = f"[{self.low:.3g}, {self.high:.3g}]" if math.isfinite(self.low) else "no interval"
        return f"{f'{self.shown}, ' if self.shown else ''}{self.value:.3g} {ends}"

    def held_to(self, bar: Bar) -> Decision:
        """The decision whether the value lies inside the bar, by the rule of `mechint.decide` where
        no exact test made it: "no" where the interval lies outside, "unclear" where it spans an end
        of the bar.

        >>> [Estimate(x, x - 1, x + 1, 5).held_to((0, math.inf)).verdict for x in (3, 0.5, -2)]
        ['yes', 'unclear', 'no']
        """
        if self.decision is not None:
            return self.decision
        evidence = Evidence(value=self.value, n=self.n, given=(self.low, self.high))
        ends = (Bound(bar[0], "above"), Bound(bar[1], "below"))
        return all_of(decide(evidence, bound=end) for end in ends if math.isfinite(end.value))


def share(flags: Sequence[Any]) -> Estimate:
    """The share of runs that show it.

    >>> print(share([True] * 5))
    5 of 5, 1 [0.478, 1]
    """
    hits, n = sum(map(bool, flags)), len(flags)
    if not n:
        return Estimate(math.nan, 0.0, 1.0, 0, "0 of 0")
    return Estimate(hits / n, *clopper_pearson(hits, n), n, f"{hits} of {n}")


def mean(values: Sequence[float], bounds: Bar = (-math.inf, math.inf)) -> Estimate:
    """The mean over runs; the whole line for fewer than MIN_RUNS. bounds: of what it can be.

    >>> print(mean([1.0, 2.0, 3.0]))
    2 [-0.484, 4.48]
    """
    n = len(values)
    middle = float(np.mean(values)) if n else math.nan
    if n < MIN_RUNS or not np.isfinite(values).all():
        return Estimate(middle, -math.inf, math.inf, n)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * stats.sem(values))
    low, high = max(bounds[0], middle - half), min(bounds[1], middle + half)
    return Estimate(middle, low, high, n)


def difference(first: Sequence[Any], second: Sequence[Any]) -> Estimate:
    """Share of the first runs less that of the second.

    >>> print(difference([True] * 12, [True] * 3 + [False] * 9))
    12 of 12 against 3 of 12, 0.75 [0.378, 0.911]
    """
    one, other = share(first), share(second)
    low, high = (
        wilson(round(each.value * each.n) if each.n else 0, each.n) for each in (one, other)
    )
    value = one.value - other.value
    return Estimate(
        value,
        value - math.hypot(one.value - low[0], high[1] - other.value),
        value + math.hypot(low[1] - one.value, other.value - high[0]),
        min(one.n, other.n),
        f"{one.shown} against {other.shown}",
    )


def pooled_difference(*groups: Sequence[Any]) -> Estimate:
    """The difference of shares between the first, third, … groups and the others, all together."""
    return difference(*([flag for each in groups[side::2] for flag in each] for side in (0, 1)))


def bootstrap(
    statistic: Callable[..., float], *groups: Sequence[Any], draws: int = 1000, seed: int = 0
) -> Estimate:
    """A statistic of groups of runs, each drawn again with replacement; draws without a finite
    value count as infinitely far on either side.

    >>> bootstrap(lambda x: float(np.median(x)), [1.0, 1.0, 1.0]).low
    1.0
    """
    n = min(map(len, groups))
    if not n:
        return Estimate(math.nan, -math.inf, math.inf, 0)
    value = statistic(*groups)
    generator = np.random.default_rng(seed)
    drawn = [
        statistic(
            *(
                [group[i] for i in generator.integers(len(group), size=len(group))]
                for group in groups
            )
        )
        for _ in range(draws)
    ]
    finite = np.isfinite(drawn)
    if n < MIN_RUNS or finite.mean() < CONFIDENCE:
        return Estimate(value, -math.inf, math.inf, n)
    tail = (1 - CONFIDENCE) / 2 * 100
    low = np.percentile(np.where(finite, drawn, -math.inf), tail, method="lower")
    high = np.percentile(np.where(finite, drawn, math.inf), 100 - tail, method="higher")
    return Estimate(value, float(low), float(high), n)


def mean_difference(first: Sequence[float], second: Sequence[float], draws: int = 1000) -> Estimate:
    """The mean of the first runs less that of the second, by bootstrap.

    >>> print(mean_difference([3.0, 3.0, 3.0], [1.0, 1.0, 1.0]))
    3 against 1, 2 [2, 2]
    """
    found = bootstrap(lambda a, b: float(np.mean(a) - np.mean(b)), first, second, draws=draws)
    shown = " against ".join(f"{np.mean(each):.3g}" for each in (first, second) if len(each))
    return replace(found, shown=shown)


def cohens_d(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """Cohen's d of two groups of runs, a number each: the first mean less the second, over their
    common standard deviation; interval by the noncentral t distribution.

    >>> found = cohens_d([3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 3.0, 4.0])
    >>> round(found.value, 3), found.low < 0 < found.high
    (1.549, True)
    """
    n, m = len(first), len(second)
    if min(n, m) < MIN_RUNS or not np.isfinite([*first, *second]).all():
        return Estimate(math.nan, -math.inf, math.inf, min(n, m))
    free = n + m - 2
    pooled = ((n - 1) * np.var(first, ddof=1) + (m - 1) * np.var(second, ddof=1)) / free
    d = float((np.mean(first) - np.mean(second)) / math.sqrt(pooled))
    scale = math.sqrt(n * m / (n + m))
    reach = 4 * math.sqrt(1 / scale**2 + d**2 / free)

    def end(tail: float) -> float:
        """The d of which `tail` of the samples have a smaller t."""
        return float(
            optimize.brentq(  # pyright: ignore[reportArgumentType]
                lambda at: stats.nct.cdf(d * scale, free, at * scale) - tail, d - reach, d + reach
            )
        )

    tail = (1 - CONFIDENCE) / 2
    return Estimate(d, end(1 - tail), end(tail), min(n, m))


def pooled_share(counts: Sequence[tuple[int, int]]) -> Estimate:
    """The share of the second numbers that the first are, all runs together: bootstrap over runs,
    and at least as wide as the exact interval of so many events, since runs that are all alike do
    not make a share certain.

    >>> print(pooled_share([(0, 4)] * 26))
    0 of 104, 0 [0, 0.0348]
    """

    def together(runs: Sequence[tuple[int, int]]) -> float:
        first, all_ = np.sum(runs, axis=0)
        return float(first / all_) if all_ else math.nan

    hits, n = map(int, np.sum(counts, axis=0)) if counts else (0, 0)
    found = bootstrap(together, counts)
    low, high = clopper_pearson(hits, n) if n else (0.0, 1.0)
    ends = min(found.low, low), max(found.high, high)
    return Estimate(found.value, *ends, found.n, f"{hits} of {n}")


Values = Sequence[float] | Real[np.ndarray, " run"]


def slope(x: Values, y: Values) -> float:
    """Least-squares slope of y over x; nan where x has fewer than two values.

    The sums are exact, so that no processor's order of summing shows in a kept number.

    >>> slope([0, 1, 2], [1, 3, 5])
    2.0
    """
    if len(set(x)) < 2:
        return math.nan
    middle = math.fsum(x) / len(x)
    offsets = [value - middle for value in x]
    products = math.fsum(a * b for a, b in zip(offsets, y, strict=True))
    return products / math.fsum(a * a for a in offsets)


def exponent(x: Values, y: Values) -> float:
    """Slope of log y over log x; nan where a value is missing or not positive.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    if not all(0 < value < math.inf for value in y):
        return math.nan
    return slope([math.log(value) for value in x], [math.log(value) for value in y])


@dataclass(frozen=True)
class Planned:
    """Runs that were planned, and what was expected of them: a share `at`, or a mean `at` whose
    runs have standard deviation `sd`.
    """

    n: int
    at: float
    sd: float | None = None

    def power(self, bar: Bar) -> float:
        """The probability that the interval comes to lie within the bar.

        >>> round(Planned(16, 0.75).power((0.4, math.inf)), 2)
        0.81
        >>> round(Planned(8, 0.2, 0.2).power((0.0, math.inf)), 2)
        0.68
        """
        if self.sd is None:
            outcomes = range(self.n + 1)
            decided = [share([True] * k + [False] * (self.n - k)).held_to(bar) for k in outcomes]
            chances = stats.binom.pmf(outcomes, self.n, self.at)
            return float(sum(p for p, yes in zip(chances, decided, strict=True) if yes))
        error, t = self.sd / math.sqrt(self.n), stats.t.ppf((1 + CONFIDENCE) / 2, self.n - 1)
        missed = sum(
            stats.nct.cdf(t, self.n - 1, abs(self.at - end) / error)
            for end in bar
            if math.isfinite(end)
        )
        return float(max(0.0, 1 - missed))
