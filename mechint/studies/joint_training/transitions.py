"""Transition points of the joint-training study: at how many parameters an operation is learned."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import numpy as np

from mechint.config import ModelConfig
from mechint.errors import DataError
from mechint.models import build
from mechint.studies.core.claims import Part, Replaced
from mechint.studies.core.evidence import MIN_RUNS, ratio_within
from mechint.studies.core.study import Runs
from mechint.training import Run
from mechint.transitions import Transition, fit_transition

LEVEL = 0.5
"""Accuracy at the transition point."""

STAR = 0.8
"""Accuracy at the star of the paper's Fig. 1 and 6, where an operation counts as learned: at n = 10
half of the sums is what a model has that is right mod 5 and blind to parity.
"""

INSIDE = "with its 95% interval inside the range of widths, from at least three runs at every width"
"""What criteria ask of a curve's point for a comparison."""

BY_POINT = Replaced(
    "the same, with a control by the fitted curve alone",
    "not tested",
    "not measured",
    "A point without its interval may stand inside the range by one or two runs.",
)
"""The criterion before, of claims that no runs were judged by."""


def parameters(run: Run) -> int:
    """Trained numbers of the run's model, by its configuration."""
    return _count(json.dumps(run.spec.model.to_dict()))


@cache
def _count(config: str) -> int:
    model = build(ModelConfig.from_dict(json.loads(config)))
    return sum(parameter.numel() for parameter in model.parameters())


def judged_accuracy(run: Run, operation: str = "") -> float:
    """Accuracy at the last step on `operation`, on all of the test where that is empty."""
    name = f"test.greedy.accuracy.{operation}"
    return float(run.final[name] if name in run.final else run.final["test.greedy.accuracy"])


class Transitions:
    """Transition curves over the runs of each arm that have finished."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.transition = cache(self._transition)

    def accuracies(self, arm: str, width: int) -> list[float]:
        """Last accuracy on what the arm is judged by, seed by seed."""
        found = self.runs.finished(arm=arm, width=width, init="normal")
        names = self.runs.names(arm=arm, width=width, init="normal")
        judged = self.runs.labels[names[0]]["judged"] if names else ""
        return [judged_accuracy(run, judged) for run in found]

    def _transition(self, arm: str) -> Transition:
        pairs = [
            (parameters(run), accuracy)
            for width in self.runs.values_of("width", arm=arm)
            for run, accuracy in zip(
                self.runs.finished(arm=arm, width=width, init="normal"),
                self.accuracies(arm, width),
                strict=True,
            )
        ]
        if not pairs:
            raise DataError(f"the study has no finished run of {arm} at this size")
        return fit_transition(*zip(*pairs, strict=True))

    def factor(
        self,
        arm: str,
        other: str,
        low: float = 0.0,
        high: float = math.inf,
        level: float = LEVEL,
    ) -> tuple[Part, float]:
        """How many times the point of `arm` at `level` lies above that of `other`, with its
        bootstrap interval against `low` and `high`.

        A point below the smallest model may lie anywhere below it, and one above the largest
        anywhere above: the interval goes as far, so that two curves that leave the range on one
        side tell nothing of each other.
        """
        first, second = self.transition(arm), self.transition(other)
        with np.errstate(divide="ignore"):  # a point that may lie at 0 is no bound above
            least, most = (first.bounds(level) / second.bounds(level)[:, ::-1]).T
        ratio = first.at_least(level) / second.at_least(level)
        ends = (
            float(np.quantile(least, 0.025, method="nearest")),
            float(np.quantile(most, 0.975, method="nearest")),
        )
        n = min(len(first.accuracies), len(second.accuracies))
        return ratio_within(f"{arm} over {other}", ratio, ends, low, high, n), ratio

    def crossing(self, *arms: str, level: float = LEVEL) -> Part:
        """The control of a comparison: every arm passes `level` inside the range of sizes, by the
        interval of its point, and has MIN_RUNS runs of every size, whose spread fewer do not tell.
        """
        fits = {arm: self.transition(arm) for arm in arms}
        ends = {arm: fit.interval(level) for arm, fit in fits.items()}
        fewest = {
            arm: int(np.unique(fit.parameters, return_counts=True)[1].min())
            for arm, fit in fits.items()
        }
        outside = [arm for arm, (low, high) in ends.items() if not low or math.isinf(high)]
        few = [arm for arm, n in fewest.items() if n < MIN_RUNS]
        words = [f"not inside the range for {', '.join(outside)}"] if outside else []
        words += [f"fewer than {MIN_RUNS} runs at a width of {', '.join(few)}"] if few else []
        n = min(len(fit.accuracies) for fit in fits.values())
        name = "transition inside the range of sizes"
        return Part(name, not words, "; ".join(words) or "all inside", n)

    def describe(self, *arms: str) -> str:
        """The 50% and 80% points of arms, with the interval of the first."""
        return "; ".join(f"{arm} {self._describe(arm)}" for arm in arms)

    def _describe(self, arm: str) -> str:
        found = self.transition(arm)
        low, high = found.interval()
        end = f"{high:,.0f}]" if math.isfinite(high) else "∞)"
        half, most = (_size(found.at(level), found) for level in (LEVEL, 0.8))
        return f"50% at {half} [{low:,.0f}, {end}, 80% at {most}"

    def numbers(self, *arms: str) -> dict[str, Any]:
        """The fits as numbers."""
        return {
            arm: {
                "at_50": found.at(),
                "interval_50": found.interval(),
                "at_80": found.at(0.8),
                "interval_80": found.interval(0.8),
                "slope": found.slope,
                "runs": len(found.accuracies),
            }
            for arm, found in ((arm, self.transition(arm)) for arm in arms)
        }


def _size(at: float, found: Transition) -> str:
    """A point of the curve in words: one beyond the models that were trained is bounded by them."""
    least, most = found.parameters.min(), found.parameters.max()
    if not math.isfinite(at):
        return f"> {most:,.0f}"
    return f"{at:,.0f}" if at > least * (1 + 1e-9) else f"< {least:,.0f}"
