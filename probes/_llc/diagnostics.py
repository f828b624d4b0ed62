"""Agreement of chains: an estimate per chain, an interval over chains, and reasons to doubt."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

LOOSE = 0.25
"""Share of the localization of the chains that are held less."""
CONFIDENCE = 0.95
"""Of the interval over chains, and of the differences that count as real."""


@dataclass(frozen=True)
class Chains:
    """Estimates from chains of one localization, from others of less, and from plain descent.

    whole: (chain, step) nβ (L(w) − L(w*)), the first `burn_in` steps of which are not used; loose:
    the same at `LOOSE` of the localization; descent: (step,) without noise.
    """

    whole: Float[np.ndarray, "chain step"]
    loose: Float[np.ndarray, "loose_chain step"]
    burn_in: int
    descent: Float[np.ndarray, " step"]

    @property
    def kept(self) -> Float[np.ndarray, "chain draw"]:
        """The draws after burn-in."""
        return self.whole[:, self.burn_in :]

    @property
    def estimates(self) -> Float[np.ndarray, " chain"]:
        """The coefficient by every chain alone: λ̂ = nβ (mean L(w) − L(w*)) (Lau et al., Eq. 9)."""
        return self.kept.mean(1)

    @property
    def value(self) -> float:
        """Mean over chains."""
        return float(self.estimates.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Student's 95% interval of the mean over chains."""
        reach = _reach(self.estimates)
        return self.value - reach, self.value + reach

    @property
    def relative_interval(self) -> float:
        """Half the interval's width over the estimate; infinite where that is not above zero."""
        return self._relative(_reach(self.estimates))

    @property
    def drift(self) -> float:
        """Change from the first to the second half of the draws over the estimate, by as much as it
        exceeds what chains scatter.
        """
        middle = self.kept.shape[1] // 2
        change = self.kept[:, middle:].mean(1) - self.kept[:, :middle].mean(1)
        return self._relative(max(0.0, abs(float(change.mean())) - _reach(change)))

    @property
    def pull_change(self) -> float:
        """Difference of the estimate at `LOOSE` of the localization over the estimate, by as much
        as it exceeds what chains scatter: an estimate that the pull to w* makes grows without it.
        """
        other = self.loose[:, self.burn_in :].mean(1)
        difference = abs(float(other.mean()) - self.value)
        noise = math.hypot(standard_error(self.estimates), standard_error(other))
        freedom = min(len(other), len(self.whole))
        return self._relative(max(0.0, difference - quantile(freedom) * noise))

    @property
    def without_pull(self) -> float:
        """The estimate continued along a line to no localization, or as it is where that is less: a
        pull makes regular directions look degenerate.
        """
        loose = float(self.loose[:, self.burn_in :].mean())
        return max(self.value, loose + (loose - self.value) * LOOSE / (1 - LOOSE))

    @property
    def fall(self) -> float:
        """The size by which plain descent lowers the loss in its last tenth, over the estimate:
        what is below w* is missing from the rise that chains measure.
        """
        last = self.descent[-max(1, len(self.descent) // 10) :]
        return self._relative(max(0.0, -float(last.mean())))

    def t_statistic(self, reference: float, sign: int) -> tuple[float, float]:
        """Student's t of sign · (value − reference) over chains, and its one-sided p-value."""
        from scipy import special  # scipy.stats would take a second to import

        error = standard_error(self.estimates)
        if not error > 0:
            return math.nan, 1.0
        t = sign * (self.value - reference) / error
        return float(t), float(special.stdtr(len(self.whole) - 1, -t))

    def _relative(self, size: float) -> float:
        return size / self.value if self.value > 0 else math.inf

    def doubt(self, tolerance: float) -> str | None:
        """The reason for which the estimate is not reliable, or None."""
        every = np.concatenate([self.whole, self.loose])
        diverged = int((~np.isfinite(every)).any(1).sum())
        if diverged:
            return f"{diverged} of {len(every)} chains diverged; set a smaller step_size"
        if self.value <= 0 or self.interval[1] <= 0:
            return (
                f"the estimate is {self.value:.3g}: chains find a lower loss nearby, so the model "
                "is not at a minimum; set a larger localization, or ask a model trained further"
            )
        for share, words in (
            (
                self.fall,
                "plain descent lowers the loss by {} of what chains rise, so the model is not at a "
                "minimum; ask a model trained further",
            ),
            (
                self.relative_interval,
                "chains disagree by {} to either side; set more draws or chains",
            ),
            (
                self.drift,
                "the estimate moves by {} between the halves of the draws; set a longer burn_in or "
                "more draws",
            ),
            (
                self.pull_change,
                f"the estimate moves by {{}} at {LOOSE:g} of the localization, so it is the pull's "
                "and not the model's; set a smaller localization and more draws",
            ),
        ):
            if share > tolerance:
                return words.format(f"{share:.0%}")
        return None


def standard_error(estimates: Float[np.ndarray, " chain"]) -> float:
    """Standard error of the mean of several chains.

    >>> round(standard_error(np.array([1.0, 2.0, 3.0])), 4)
    0.5774
    """
    return float(estimates.std(ddof=1) / math.sqrt(len(estimates)))


def quantile(chains: int) -> float:
    """Student's quantile of the two-sided interval of a mean over `chains`.

    >>> round(quantile(6), 4)
    2.5706
    """
    from scipy import special

    return float(special.stdtrit(chains - 1, (1 + CONFIDENCE) / 2))


def _reach(estimates: Float[np.ndarray, " chain"]) -> float:
    """Half the width of the interval of their mean."""
    return quantile(len(estimates)) * standard_error(estimates)
