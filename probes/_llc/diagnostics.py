"""Agreement of chains: an estimate per chain, an interval over chains, and reasons to doubt."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

LOOSE = 0.25
"""Share of the localization of the chains that are held less."""

NOTHING = 0.01
"""Share of the estimate that is not worth a word."""

CONFIDENCE = 0.95
"""Of the interval over chains, and of the differences that count as real."""


@dataclass(frozen=True)
class Chains:
    """Estimates from chains of one step size and localization, and from others with less of each.

    whole: (chain, step) nβ (L(w) − L(w*)), the first `burn_in` steps of which are not used; half:
    the same at half the step size; loose: at `LOOSE` of the localization; descent: (step,) without
    noise.
    """

    whole: Float[np.ndarray, "chain step"]
    half: Float[np.ndarray, "half_chain step"]
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
    def error(self) -> float:
        """Standard error of `value`, from the spread of the chains."""
        return standard_error(self.estimates)

    @property
    def interval(self) -> tuple[float, float]:
        """Student's 95% interval of the mean over chains."""
        reach = quantile(len(self.whole)) * self.error
        return self.value - reach, self.value + reach

    @property
    def relative_interval(self) -> float:
        """Half the interval's width over the estimate; infinite where that is not above zero."""
        return self._relative(quantile(len(self.whole)) * self.error)

    @property
    def drift(self) -> float:
        """Change from the first to the second half of the draws over the estimate, by as much as it
        exceeds what chains scatter.
        """
        middle = self.kept.shape[1] // 2
        change = self.kept[:, middle:].mean(1) - self.kept[:, :middle].mean(1)
        return self._relative(_beyond(change))

    @property
    def step_change(self) -> float:
        """Difference of the estimate at half the step size over the estimate, by as much as it
        exceeds what chains scatter.
        """
        return self._change(self.half)

    @property
    def pull_change(self) -> float:
        """The same at `LOOSE` of the localization: an estimate that the pull back to w* makes grows
        without it.
        """
        return self._change(self.loose)

    @property
    def without_pull(self) -> float:
        """The estimate continued along a line to no localization, or as it is where that is less: a
        pull makes regular directions look degenerate.
        """
        loose = float(self.loose[:, self.burn_in :].mean())
        return max(self.value, loose + (loose - self.value) * LOOSE / (1 - LOOSE))

    def _change(self, chains: Float[np.ndarray, "other step"]) -> float:
        other = chains[:, self.burn_in :].mean(1)
        difference = abs(float(other.mean()) - self.value)
        noise = math.hypot(self.error, standard_error(other))
        freedom = min(len(other), len(self.whole))
        return self._relative(max(0.0, difference - quantile(freedom) * noise))

    @property
    def fall(self) -> float:
        """The size by which plain descent lowers the loss in the end, over the estimate: what is
        below w* is missing from the rise that chains measure.
        """
        return self._relative(max(0.0, self._fallen(len(self.descent))))

    @property
    def still_falls(self) -> bool:
        """True if descent has not come to an end: more than `NOTHING` of the estimate, and a
        quarter more than at half the steps.
        """
        at_half = self._fallen(len(self.descent) // 2)
        return self.fall > NOTHING and self._fallen(len(self.descent)) > 1.25 * at_half

    def _fallen(self, steps: int) -> float:
        """The gain of descent after so many steps, over the tenth of all steps before."""
        return -float(self.descent[max(0, steps - max(1, len(self.descent) // 10)) : steps].mean())

    @property
    def r_hat(self) -> float:
        """Split R̂ of the draws (Gelman et al. 2013, Sec. 11.4): 1 where chains mix."""
        middle = self.kept.shape[1] // 2
        halves = np.concatenate([self.kept[:, :middle], self.kept[:, middle : 2 * middle]])
        within = halves.var(1, ddof=1).mean()
        if not within > 0:
            return math.nan
        between = halves.mean(1).var(ddof=1)
        return float(math.sqrt((middle - 1) / middle + between / within))

    def t_statistic(self, reference: float, sign: int) -> tuple[float, float]:
        """Student's t of sign · (value − reference) over chains, and its one-sided p-value."""
        from scipy import stats

        if not self.error > 0:
            return math.nan, 1.0
        t = sign * (self.value - reference) / self.error
        return float(t), float(stats.t.sf(t, len(self.whole) - 1))

    def _relative(self, size: float) -> float:
        return size / self.value if self.value > 0 else math.inf

    def doubt(self, tolerance: float) -> str | None:
        """The reason for which no number should be given, or None."""
        chains, every = len(self.whole), np.concatenate([self.whole, self.half, self.loose])
        diverged = int((~np.isfinite(every)).any(1).sum())
        if diverged:
            return f"{diverged} of {len(every)} chains diverged; set a smaller step_size"
        if self.value <= 0 or self.interval[1] <= 0:
            return (
                f"{chains} chains find a lower loss nearby, so the model is not at a minimum; set "
                "a larger localization, or ask a model trained further"
            )
        if self.fall > tolerance or self.still_falls:
            more = f"more than {tolerance:.0%}" if self.fall > tolerance else "and goes on"
            return (
                f"plain descent lowers the loss by {self.fall:.0%} of what chains rise, {more}, so "
                "the model is not at a minimum; ask a model trained further"
            )
        if self.relative_interval > tolerance:
            return (
                f"{chains} chains disagree: their 95% interval reaches "
                f"{self.relative_interval:.0%} to either side, more than {tolerance:.0%}; set "
                "more draws or chains"
            )
        if self.drift > tolerance:
            return (
                f"the estimate moves by {self.drift:.0%} between the halves of the draws, more "
                f"than {tolerance:.0%}; set a longer burn_in or more draws"
            )
        if self.step_change > tolerance:
            return (
                f"the estimate moves by {self.step_change:.0%} when the step size is halved, more "
                f"than {tolerance:.0%}; set a smaller step_size and more draws"
            )
        if self.pull_change > tolerance:
            return (
                f"the estimate moves by {self.pull_change:.0%} at {LOOSE:g} of the localization, "
                f"more than {tolerance:.0%}, so it is the pull's and not the model's; set a "
                "smaller localization and more draws"
            )
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
    from scipy import stats

    return float(stats.t.ppf((1 + CONFIDENCE) / 2, chains - 1))


def _beyond(changes: Float[np.ndarray, " chain"]) -> float:
    """By how much the mean change exceeds its own interval."""
    reach = quantile(len(changes)) * standard_error(changes)
    return max(0.0, abs(float(changes.mean())) - reach)
