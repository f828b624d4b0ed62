"""Evidence: a measured number with what its interval is counted from; bounds that it is held to;
and chance, the best constant answer, counted as the accuracy beside it is counted.

A measurement hands over counts or resamples; the interval is made here, once for all. Shares of n
have exact intervals and Wilson's, which are shorter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from mechint.errors import counted

CONFIDENCE = 0.95
RESAMPLES = 400
"""Bootstrap resamples of the inputs behind an interval."""

CHANCE_LEVEL = 1e-3
"""One-sided binomial level at which a model counts as better than the best constant answer."""
AT_CHANCE = "the model is not shown to answer right more often than without its input"
MAX_CONSTANTS = 512
"""Constant answers that are tried where some outputs are not asked, the most frequent ones."""

Side = Literal["above", "below"]
End = Literal["near end", "value"]


def clopper_pearson(hits: int, n: int) -> tuple[float, float]:
    """The exact 95% interval of a binomial share (Clopper & Pearson 1934); (0, 1) of nothing.

    >>> low, high = clopper_pearson(0, 400)
    >>> round(low, 4), round(high, 4)
    (0.0, 0.0092)
    """
    from scipy import special  # pyright: ignore[reportMissingTypeStubs]

    inverse: Any = special.betaincinv  # pyright: ignore[reportUnknownMemberType]
    tail = (1 - CONFIDENCE) / 2
    low = inverse(hits, n - hits + 1, tail) if hits else 0.0
    high = inverse(hits + 1, n - hits, 1 - tail) if hits < n else 1.0
    return float(low), float(high)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95% score interval of a binomial share (Wilson 1927); (0, 1) of nothing.

    >>> low, high = wilson(9, 10)
    >>> round(low, 4), round(high, 4)
    (0.5958, 0.9821)
    """
    if not n:
        return 0.0, 1.0
    share = hits / n
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    center = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = (center - half) / (1 + z * z / n), (center + half) / (1 + z * z / n)
    return (low if hits else 0.0), (high if hits < n else 1.0)


def at_least(hits: int, n: int, share: float) -> float:
    """Probability of `hits` or more of n where each is one with probability `share`.

    Written out because a command is to import no scipy, which would take it a third of a second.

    >>> round(at_least(2, 3, 0.5), 9), at_least(0, 3, 0.5), at_least(1, 3, 0.0)
    (0.5, 1.0, 0.0)
    """
    if hits <= 0 or (share >= 1 and hits <= n):
        return 1.0
    if hits > n or share <= 0:
        return 0.0
    first = math.lgamma(n + 1) - math.lgamma(hits + 1) - math.lgamma(n - hits + 1)
    first += hits * math.log(share) + (n - hits) * math.log1p(-share)
    more = np.arange(hits, n)
    steps = np.log((n - more) / (more + 1)) + math.log(share) - math.log1p(-share)
    return min(1.0, float(np.exp(first + np.append(0.0, steps.cumsum())).sum()))


@lru_cache(maxsize=4)
def resamples(n: int) -> Float[np.ndarray, "resample input"]:
    """Counts of each of n inputs in each bootstrap resample."""
    return np.random.default_rng(n).multinomial(n, np.full(n, 1 / n), RESAMPLES).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A number, the count of observations behind it, and its 95% interval.

    value: the statistic; NaN where it is not defined. n: observations, each counted once. hits: of
    a share, how many of the n. draws (resample,): of another statistic, its values on resamples of
    the observations. given: an interval that neither makes, as Student's of a mean. Without any the
    interval is the value alone.
    """

    value: float
    n: int
    hits: int | None = None
    draws: Float[np.ndarray, " resample"] | None = field(default=None, repr=False, compare=False)
    given: tuple[float, float] | None = None

    @classmethod
    def share(cls, hits: int, n: int) -> Evidence:
        """`hits` of `n` observations.

        >>> found = Evidence.share(9, 10)
        >>> found.value, round(found.low, 2), round(found.high, 2)
        (0.9, 0.6, 0.98)
        """
        return cls(value=hits / n if n else math.nan, n=n, hits=hits)

    @classmethod
    def ratio(
        cls, part: Float[np.ndarray, " input"], whole: Float[np.ndarray, " input"] | float = 1.0
    ) -> Evidence:
        """Σ part / Σ whole over the inputs, with a bootstrap over them; the mean where whole is 1.

        All ratios over the same number of inputs take the same resamples, so that two of them may
        be subtracted.

        >>> found = Evidence.ratio(np.array([0.0, 0.1, 0.2, 0.1] * 50))
        >>> round(found.value, 3), round(found.low, 2), round(found.high, 2)
        (0.1, 0.09, 0.11)
        """
        n = len(part)
        total = np.broadcast_to(np.asarray(whole, np.float64), part.shape)
        if not n or not total.sum():
            return cls(value=math.nan, n=n)
        counts = resamples(n)
        with np.errstate(invalid="ignore", divide="ignore"):
            draws = (counts @ part) / (counts @ total)
        return cls(value=float(part.sum() / total.sum()), n=n, draws=draws)

    @classmethod
    def determination(
        cls, errors: Float[np.ndarray, " input"], totals: Float[np.ndarray, " input"]
    ) -> Evidence:
        """R² = 1 - Σ errors / Σ totals of squares per input, with a bootstrap over the inputs.

        >>> Evidence.determination(np.array([0.1, 0.3]), np.array([1.0, 1.0])).value
        0.8
        """
        left = cls.ratio(errors, totals)
        draws = None if left.draws is None else 1 - left.draws
        return cls(value=1 - left.value, n=left.n, draws=draws)

    def __sub__(self, other: Evidence) -> Evidence:
        """The difference of two statistics on the same resamples of the same inputs."""
        assert self.draws is not None and other.draws is not None and self.n == other.n
        return Evidence(value=self.value - other.value, n=self.n, draws=self.draws - other.draws)

    def times(self, factor: float) -> Evidence:
        """The statistic times a constant."""
        draws = None if self.draws is None else factor * self.draws
        return Evidence(value=factor * self.value, n=self.n, draws=draws)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95%: the one given, Wilson's of a share, percentiles of resamples, else the value."""
        if self.given is not None:
            return self.given
        if self.hits is not None:
            return wilson(self.hits, self.n)
        if self.draws is None or not np.isfinite(self.draws).all():
            return self.value, self.value
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(self.draws, [tail, 1 - tail])
        return float(low), float(high)

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.interval[0]

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.interval[1]

    def __str__(self) -> str:
        if self.hits is None and self.draws is None:
            return f"{self.value:.3g}"
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class Bound:
    """A bound that a number has to lie beyond.

    side: "above", as sufficiency asks, or "below", as necessity and irrelevance do. of: "near end"
    asks it of the whole interval, so that the end nearest to the bound decides; "value" of the
    number alone. above_chance: of accuracies, the bound is a share of the model's own, both taken
    above chance, so that 0 is what a constant answer has and 1 what the model has.
    """

    value: float
    side: Side = "above"
    of: End = "near end"
    above_chance: bool = False

    def beyond(self, number: float) -> bool:
        """Return whether a number lies beyond the bound.

        >>> Bound(0.9).beyond(0.95), Bound(0.1, "below").beyond(0.05), Bound(0.0).beyond(0.0)
        (True, True, False)
        """
        return number > self.value if self.side == "above" else number < self.value

    def ends(self, evidence: Evidence) -> tuple[float, float]:
        """The ends of the interval: the one nearest to the bound for a number beyond it, then the
        other.
        """
        if self.of == "value":
            return evidence.value, evidence.value
        low, high = evidence.interval
        return (low, high) if self.side == "above" else (high, low)


# --- chance ---------------------------------------------------------------------------------------
def best_constant(answers: Int[np.ndarray, "row output"], ignore: int = -1) -> float:
    """Share of rows that the best constant answer gets right in every output that is asked there.

    answers: classes, `ignore` where an output is not asked. Of outputs that are counted together
    the constant is one answer to all of them: far rarer than each alone.

    >>> best_constant(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]))
    0.25
    >>> best_constant(np.array([[0, 7], [0, -1], [1, 7]]))
    0.6666666666666666
    """
    asked = answers != ignore
    answers, asked = answers[:, asked.any(0)], asked[:, asked.any(0)]
    if not answers.size:
        return 0.0
    rows, counts = np.unique(answers, axis=0, return_counts=True)
    if asked.all():
        return float(counts.max() / len(answers))
    modes = [np.unique(column[column != ignore], return_counts=True) for column in answers.T]
    fill = np.array([values[found.argmax()] for values, found in modes])
    tried = rows[np.argsort(-counts, kind="stable")[:MAX_CONSTANTS]]
    tried = np.unique(np.where(tried == ignore, fill, tried), axis=0)
    right = [((answers == one) | ~asked)[asked.any(1)].all(1).mean() for one in tried]
    return float(max(right))


def why_too_few(accuracy: float, chance: float, n: int, output: str = "") -> str:
    """The reason for which n answers cannot tell an accuracy from chance.

    >>> why_too_few(1.0, 1.0, 50, "sign")
    "all 50 answers on 'sign' are the same, which a constant answers"
    """
    of = f" on {output!r}" if output else ""
    if chance >= 1:
        return f"all {n:,} answers{of} are the same, which a constant answers"
    few = f"{counted(n, 'answer')}{of} are too few to tell an accuracy of {accuracy:.3g}"
    return f"{few} from chance ({chance:.3g})"


@dataclass(frozen=True)
class Skill:
    """A model's accuracy beside chance of the same count.

    accuracy, chance: shares of n answers. p_value: one-sided, of as many right by the best constant
    answer; binomial over n where None is given. questions: how many such are asked at once
    (Bonferroni). output: of the task, where it is of one alone.
    """

    accuracy: float
    chance: float
    n: int
    p_value: float = -1.0
    questions: int = 1
    output: str = ""

    @cached_property
    def p(self) -> float:
        """The p-value, computed where none was given."""
        if self.p_value >= 0:
            return self.p_value
        return at_least(round(self.accuracy * self.n), self.n, self.chance)

    @property
    def beats_chance(self) -> bool:
        """True if the model answers better than the best constant answer, at `CHANCE_LEVEL`.

        >>> Skill(0.9, 0.1, 100).beats_chance, Skill(0.2, 0.1, 20).beats_chance
        (True, False)
        """
        return self.accuracy > self.chance and self.p * self.questions <= CHANCE_LEVEL

    @property
    def too_few(self) -> bool:
        """True if even all answers right could not be distinguished from chance."""
        return self.chance**self.n * self.questions > CHANCE_LEVEL

    @property
    def reason(self) -> str:
        """The reason for which nothing can be said of the answers of such a model; "" where some
        can.
        """
        if self.beats_chance:
            return ""
        if self.too_few:
            return why_too_few(self.accuracy, self.chance, self.n)
        return f"{AT_CHANCE} (accuracy {self.accuracy:.3g}, without it {self.chance:.3g})"

    def above(self, accuracy: float) -> float:
        """An accuracy above chance, as a share of the model's own.

        >>> Skill(0.9, 0.1, 100).above(0.5)
        0.5
        """
        return (accuracy - self.chance) / (self.accuracy - self.chance)

    def at(self, share: float) -> float:
        """The accuracy at a share of the way from chance to the model's own.

        >>> Skill(0.9, 0.1, 100).at(0.5)
        0.5
        """
        return self.chance + share * (self.accuracy - self.chance)
