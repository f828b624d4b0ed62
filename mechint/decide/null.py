"""The null of a metric: what the same measurement gives where the mechanism is absent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Num, Shaped

from mechint.decide.evidence import at_least
from mechint.errors import counted
from mechint.system.jsonable import from_jsonable, to_jsonable

COLLISION_LEVEL = 0.05
"""Samples deny a perfect mechanism where its chance of as many is below this."""


def by_example(
    right: Shaped[np.ndarray, " row"], example: Int[np.ndarray, " row"]
) -> tuple[int, int]:
    """Successes and trials of a binomial test where the rows of one example hang together: it
    counts once, by its share of right ones; shares add up to a whole number of successes, rounded
    down.

    >>> by_example(np.array([1, 1, 1, 0, 1]), np.array([7, 7, 7, 2, 2]))
    (1, 2)
    """
    _, own, rows = np.unique(example, return_inverse=True, return_counts=True)
    return int((np.bincount(own, right) / rows).sum() + 1e-9), len(rows)


def orderings(n: int, alike: int = 1) -> float:
    """In how many ways n things can stand in order where `alike` orders each count as one: the most
    arrangements that a null can tell apart which permutes them. inf from 21 things on.

    >>> orderings(7, alike=42), orderings(21)
    (120.0, inf)
    """
    return math.factorial(n) / alike if n <= 20 else math.inf


def groupings(sizes: Iterable[int]) -> float:
    """In how many ways things can be dealt to groups of these sizes, groups of one size being
    exchangeable: the most arrangements that a null can tell apart which shuffles labels.

    >>> round(groupings([6, 5])), round(groupings([6, 6]))
    (462, 462)
    """
    sizes = [size for size in sizes if size]
    return multinomial(sizes, Counter(sizes).values())


def multinomial(sizes: Iterable[int], alike: Iterable[int] = ()) -> float:
    """In how many ways things can be dealt to named groups of these sizes; inf where a float does
    not hold it. alike: how many of the groups are exchangeable with each other, set by set.

    >>> round(multinomial([6, 6])), multinomial([5, 0, 0])
    (924, 1.0)
    """
    sizes = list(sizes)
    log = math.lgamma(sum(sizes) + 1) - sum(math.lgamma(n + 1) for n in [*sizes, *alike])
    return math.exp(log) if log < 700 else math.inf


SAME = 1e-12
"""Numbers whose relative difference is smaller are equal: one sum in two orders."""


def p_values(
    samples: Num[np.ndarray, "sample ..."], observed: float | Num[np.ndarray, " *test"]
) -> Float[np.ndarray, " *test"]:
    """(1 + #samples ≥ observed) / (1 + samples): the one-sided p-value of a sampled null. A sample
    or an observation that is not a number counts as reaching what was observed.

    >>> p_values(np.array([[0.3, 1.0], [0.1, 3.0], [0.5, 2.0]]), np.array([0.1 + 0.2, 2.5]))
    array([0.75, 0.5 ])
    """
    missed = samples < observed * (1 - np.copysign(SAME, observed))
    return np.asarray((1 + (~missed).sum(0)) / (1 + len(samples)))


MIN_PRINTED_P = 1e-12
"""Smaller p-values are not told apart where they are printed: no null is known so well."""


@dataclass(frozen=True)
class Null:
    """The null of one metric: what the same measurement gives where the mechanism is absent.

    `how` says in words what was done to remove the mechanism; `z` = (observed - mean) / std;
    `p_value` is one-sided, (1 + #null ≥ observed) / (1 + samples) where it was sampled; `samples`
    is 0 for a closed form. `arrangements`: how many different arrangements the samples can show at
    most, where they permute few things: the observed one is among them, so that even a perfect
    mechanism is equaled by one sample in so many. `quantiles`: 0, 5, … 100% of the samples.
    """

    metric: str
    observed: float
    mean: float
    std: float
    p_value: float
    how: str
    samples: int = 0
    arrangements: float = math.inf
    quantiles: tuple[float, ...] = ()

    @property
    def z(self) -> float:
        """(observed - mean) / std; infinite where the null has no spread, NaN where any of them is.

        >>> Null.sampled("share", math.nan, [0.1] * 199, "shuffled").z
        nan
        """
        difference = self.observed - self.mean
        if math.isnan(difference) or math.isnan(self.std):
            return math.nan
        if self.std > 0:
            return difference / self.std
        return math.copysign(math.inf, difference) if difference else 0.0

    @property
    def floor(self) -> float:
        """The smallest p-value that the null can give: 1 / (1 + samples), 0 for a closed form."""
        return 1 / (1 + self.samples) if self.samples else 0.0

    def too_few_arrangements(self, alpha: float) -> str | None:
        """The reason for which what was permuted has too few arrangements to decide at `alpha`, or
        None.

        Either they cannot reach `alpha` at all, or as many samples as reached what was observed
        reach a perfect mechanism, too, in one run of twenty or more.

        >>> print(Null.sampled("share", 1.0, [0.0] * 99, "shuffled", 12).too_few_arrangements(0.01))
        too few values, which can be arranged in only 12 ways; p ≤ 0.01 takes 100
        """
        if not self.samples or math.isinf(self.arrangements):
            return None
        few = (
            "too few values, which can be arranged in only "
            f"{counted(round(self.arrangements), 'way')}"
        )
        if self.arrangements * alpha < 1 - 1e-9:
            return f"{few}; p ≤ {alpha:g} takes {math.ceil(1 / alpha - 1e-9)}"
        reached = round(self.p_value * (1 + self.samples)) - 1
        if not reached or self.p_value <= alpha * (1 + 1e-9):
            return None
        if at_least(reached, self.samples, 1 / self.arrangements) < COLLISION_LEVEL:
            return None
        return (
            f"{few}, so that {reached} of {self.samples} null samples may reach a perfect one, "
            "too; more samples decide"
        )

    @property
    def p_text(self) -> str:
        """The p-value as it is printed: a bound where no null sample reaches what was observed.

        >>> Null.sampled("share", 0.9, [0.1] * 199, "shuffled").p_text
        'p ≤ 0.005'
        >>> Null.sampled("share", 0.1, [0.1] * 199, "shuffled").p_text
        'p = 1'
        >>> Null("accuracy", 1.0, 0.1, 0.01, 0.0, "binomial").p_text
        'p < 1e-12'
        """
        if self.p_value < MIN_PRINTED_P:
            return f"p < {MIN_PRINTED_P:g}"
        sign = "≤" if self.samples and self.p_value <= self.floor * (1 + 1e-9) else "="
        return f"p {sign} {self.p_value:.2g}"

    @classmethod
    def sampled(
        cls,
        metric: str,
        observed: float,
        null: Sequence[float] | Num[np.ndarray, " sample"],
        how: str,
        arrangements: float = math.inf,
    ) -> Null:
        """From null samples (samples,); larger is more surprising."""
        values = np.asarray(null, dtype=np.float64)
        p_value = float(p_values(values, observed))
        with np.errstate(invalid="ignore"):  # infinities have no spread: NaN, not a warning
            spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
            mean = float(values.mean())
        shape: tuple[float, ...] = ()
        if len(values) > 1 and np.isfinite(values).all():
            shape = tuple(float(f"{q:.4g}") for q in np.quantile(values, np.linspace(0, 1, 21)))
        n = len(values)
        return cls(metric, float(observed), mean, spread, p_value, how, n, arrangements, shape)

    def to_dict(self) -> dict[str, Any]:
        """The fields and `z` as JSON values; `arrangements` only where they are few."""
        fields = {**asdict(self), "z": self.z}
        if math.isinf(self.arrangements):
            del fields["arrangements"]
        return to_jsonable(fields)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Null:
        """From the values of `to_dict`."""
        return from_jsonable(cls, data)


def why_undecidable(nulls: Sequence[Null], alpha: float) -> str | None:
    """The reason for which these nulls cannot decide at `alpha`, or None when they can.

    >>> print(why_undecidable([Null.sampled("share", 1.0, [0.0] * 19, "shuffled")], 0.01))
    19 null samples of share give no p below 0.05; deciding at p ≤ 0.01 takes 99
    """
    for null in nulls:
        if few := null.too_few_arrangements(alpha):
            return few
        if not math.isfinite(null.mean) or math.isnan(null.observed):
            return f"{null.metric} or its null is not finite"
        if null.floor > alpha * (1 + 1e-9):
            return (
                f"{null.samples} null samples of {null.metric} give no p below {null.floor:.2g}; "
                f"deciding at p ≤ {alpha:g} takes {samples_needed(alpha)}"
            )
    return None


def samples_needed(alpha: float) -> int:
    """The fewest samples of a null whose p-value can reach `alpha`.

    >>> samples_needed(0.01), samples_needed(0.05)
    (99, 19)
    """
    return math.ceil(1 / alpha - 1e-9) - 1


# --- several tests at once ------------------------------------------------------------------------
@dataclass(frozen=True)
class MaxNull:
    """Several statistics at once, each held against the largest of all in every sample of the null:
    the family-wise permutation test of Westfall & Young (1993).

    observed (test,) and samples (sample, test): larger is more surprising, and all on one scale. A
    NaN is never surprising, and no rival.
    """

    observed: Float[np.ndarray, " test"]
    samples: Float[np.ndarray, "sample test"]

    @property
    def largest(self) -> Float[np.ndarray, " sample"]:
        """(sample,) the largest statistic of each sample."""
        return np.where(np.isnan(self.samples), -np.inf, self.samples).max(1, initial=-np.inf)

    @property
    def p_values(self) -> Float[np.ndarray, " test"]:
        """(test,) p-values adjusted for all tests, in one step:
        (1 + #samples whose largest ≥ observed) / (1 + samples).

        >>> MaxNull(np.array([3.0, 1.0]), np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])).p_values
        array([0.25, 0.75])
        """
        return p_values(self.largest[:, None], self.observed)

    def null(self, metric: str, how: str, arrangements: float = math.inf) -> Null:
        """The largest statistic as a Null."""
        largest = float(np.nanmax(self.observed))
        return Null.sampled(metric, largest, self.largest, how, arrangements)


def standardized(
    values: Float[np.ndarray, " test"], null: Float[np.ndarray, "sample test"]
) -> tuple[MaxNull, Float[np.ndarray, " test"]]:
    """The family-wise test of statistics that are each taken in standard deviations of their own
    null, so that those whose nulls spread widely do not hide others; and these deviations.
    """
    mean, spread = null.mean(0), np.maximum(null.std(0, ddof=1), 1e-6)
    return MaxNull((values - mean) / spread, (null - mean) / spread), spread


def largest_excess(
    metric: str, test: MaxNull, spread: Float[np.ndarray, " test"], index: int, how: str
) -> Null:
    """The statistic `index` of `standardized` above the mean of its own null, and what the largest
    of all reaches by chance, on this one's scale.
    """
    above, largest = test.observed[index] * spread[index], test.largest * spread[index]
    return Null.sampled(metric, float(above), largest, how)


ROUNDING = 1e-4
"""As a share of the largest: smaller changes are rounding of float32, and no effect."""
DIGITS = 9
"""Digits of a statistic of signs: sums of the same numbers in another order are equal."""


@dataclass(frozen=True)
class SignFlips:
    """Changes of several components, example by example, against their own signs drawn at random:
    a paired test of no effect, family-wise over the components.

    The statistic of a component is t = Σ x / √(Σ x²) over the examples that have it; its scale is
    the same under all signs, so that a small effect without noise is not lost beside large noise.
    mean (component,) = t · scale, in the unit of the changes.
    """

    test: MaxNull
    scale: Float[np.ndarray, " component"]
    patterns: float
    """Number of patterns of signs that the examples have."""

    @property
    def mean(self) -> Float[np.ndarray, " component"]:
        """(component,) mean change over the examples that have the component."""
        return self.test.observed * self.scale

    @property
    def p_values(self) -> Float[np.ndarray, " component"]:
        """(component,) family-wise."""
        return self.test.p_values

    def null(self, metric: str, index: int, how: str = "signs of the changes drawn") -> Null:
        """The mean change of component `index`, and what the largest of all components reaches by
        chance, on this one's scale.
        """
        scale = self.scale[index]
        samples = self.test.largest * scale
        return Null.sampled(metric, float(self.mean[index]), samples, how, self.patterns)


def least_signs(alpha: float) -> int:
    """The fewest examples whose signs can have a p-value of `alpha`: those of n have none below
    2⁻ⁿ.

    >>> least_signs(0.01)
    7
    """
    return math.ceil(-math.log2(alpha))


def sign_flips(
    changes: Float[np.ndarray, "component example"], samples: int, seed: int
) -> SignFlips:
    """Test whether the mean change of any component is above zero.

    changes: NaN where an example does not have the component. The sign of every example's changes
    is drawn at random, the same for all components; where the examples have no more than `samples`
    patterns of signs, each but the observed one is taken once.

    >>> test = sign_flips(np.array([[1.0, 2, 1, 2, 1, 2, 1], [1, -1, 1, -1, 1, -1, 0]]), 999, 0)
    >>> test.mean.round(3), test.p_values.round(3)
    (array([1.429, 0.   ]), array([0.008, 0.93 ]))
    """
    there = ~np.isnan(changes)
    values, counts = np.where(there, changes, 0.0), there.sum(1).clip(1)
    norm = np.sqrt(np.square(values).sum(1))  # (component,)
    # a component whose changes are all rounding would have a t of √n
    norm = np.maximum(norm, ROUNDING * norm.max(initial=0.0))
    norm = np.where(norm > 0, norm, 1.0)
    n: int = values.shape[1]
    if 2**n - 1 <= samples:
        # the bits of 1 to 2ⁿ - 1: every pattern but the observed one, which has no sign turned
        signs = 1.0 - 2 * (np.arange(1, 1 << n)[:, None] >> np.arange(n) & 1)
    else:
        signs = np.random.default_rng(seed).choice(np.array([-1.0, 1.0]), (samples, n))
    standard = values / norm[:, None]
    observed, drawn = standard.sum(1), signs @ standard.T  # (component,), (sample, component)
    patterns = 2.0**n if n < 63 else math.inf
    return SignFlips(MaxNull(observed.round(DIGITS), drawn.round(DIGITS)), norm / counts, patterns)
