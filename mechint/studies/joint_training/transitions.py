"""The claims of the joint-training study that compare model sizes: transition points of nested
expressions, arm against arm.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mechint.config import ModelConfig
from mechint.errors import DataError
from mechint.models import build
from mechint.studies.core.study import Finding, Runs
from mechint.studies.joint_training.claims import SOLVED
from mechint.training import Run
from mechint.transitions import Transition, fit_transition


def parameters(run: Run) -> int:
    """Trained numbers of the run's model, by its configuration."""
    return _count(json.dumps(run.spec.model.to_dict()))


@cache
def _count(config: str) -> int:
    return sum(
        parameter.numel()
        for parameter in build(ModelConfig.from_dict(json.loads(config))).parameters()
    )


class Transitions:
    """Transition curves over the runs of each arm."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.transition = cache(self._transition)

    def judged(self, run: Run, operation: str) -> float:
        """Accuracy at the last step on `operation`, on all of the test where that is empty."""
        name = f"test.greedy.accuracy.{operation}"
        return float(run.final[name] if name in run.final else run.final["test.greedy.accuracy"])

    def _transition(self, arm: str) -> Transition:
        names = self.runs.names(arm=arm, init="normal")
        if not names:
            raise DataError(f"the study has no run of {arm} at this size")
        pairs = [
            (
                parameters(self.runs[name]),
                self.judged(self.runs[name], self.runs.labels[name]["judged"]),
            )
            for name in names
        ]
        return fit_transition(*zip(*pairs, strict=True))

    def compare(self, arm: str, other: str) -> tuple[float, str]:
        """How many times the 50% point of `arm` lies above that of `other` (a lower bound where
        `arm` never gets there), and words.
        """
        first, second = self.transition(arm), self.transition(other)
        ratio = first.at_least() / second.at() if math.isfinite(second.at()) else 0.0
        return (
            ratio,
            (
                f"{arm} {self.words(arm)}, {other} {self.words(other)}: factor "
                f"{'≥ ' if math.isinf(first.at()) and ratio else ''}{ratio:.2g}"
            ),
        )

    def words(self, arm: str) -> str:
        """The 50% and 80% points of an arm, with the interval of the first."""
        found = self.transition(arm)
        low, high = found.interval()
        return (
            f"50% at {_size(found.at(), found)} [{_size(low, found)}, {_size(high, found)}], 80% "
            f"at {_size(found.at(0.8), found)}"
        )

    def _ratio(self, arm: str, other: str, holds: Callable[[float], bool]) -> Finding:
        ratio, words = self.compare(arm, other)
        return Finding(
            holds(ratio),
            words,
            {"ratio": ratio, **{name: self.numbers(name) for name in (arm, other)}},
        )

    def numbers(self, arm: str) -> dict[str, Any]:
        """The fit as numbers."""
        found = self.transition(arm)
        return {
            "at_50": found.at(),
            "interval_50": found.interval(),
            "at_80": found.at(0.8),
            "interval_80": found.interval(0.8),
            "slope": found.slope,
        }

    def order(self) -> Finding:
        """a: the transition points of the operations alone."""
        easy, middle, hard = ("MAX", "MIN"), ("MED", "PROD"), ("ADD", "NADD", "PROD prime")
        at = {arm: self.transition(arm).at_least() for arm in (*easy, *middle, *hard)}
        largest = {arms: max(at[arm] for arm in arms) for arms in (easy, middle)}
        holds = largest[easy] <= min(at[arm] for arm in middle) and largest[middle] < min(
            at[arm] for arm in hard
        )
        return Finding(
            holds,
            "; ".join(f"{arm} {self.words(arm)}" for arm in at),
            {arm: self.numbers(arm) for arm in at},
        )

    def claim_b(self) -> Finding:
        if not self.runs.names(arm="ADD in ADD+PROD"):
            return self._ratio("ADD", "MAX+MED+ADD", lambda ratio: ratio >= 2)
        pairs = (
            ("ADD", "ADD in ADD+PROD"),
            ("PROD prime", "PROD prime in MAX+PROD"),
            ("ADD", "ADD in MAX+MED+ADD"),
        )
        found = [self.compare(*pair) for pair in pairs]
        return Finding(
            min(ratio for ratio, _ in found[:2]) >= 1.5,
            "; ".join(words for _, words in found),
            {"ratios": [ratio for ratio, _ in found]},
        )

    def claim_c(self) -> Finding:
        return self._ratio("ADD", "ADD in ADD+NADD", lambda ratio: ratio <= 1 / 0.8)

    def claim_f(self) -> Finding:
        return self._ratio("OP", "OP in OP+OP_TOP+OP_BOTTOM", lambda ratio: ratio >= 3)

    def claim_i(self) -> Finding:
        values: dict[str, dict[int, list[float]]] = {}
        for arm in ("curriculum", "ADD, n = 10, two layers"):
            values[arm] = {}
            for width in self.runs.values_of("width", arm=arm):
                values[arm][width] = [
                    self.judged(run, "ADD") for run in self.runs.select(arm=arm, width=width)
                ]
        after, alone = values.values()
        if not after:
            raise DataError("the study has no run of the curriculum at this size")
        holds = any(
            np.mean(after[width]) >= SOLVED and np.mean(alone[width]) < 0.5 for width in after
        )
        words = (
            (
                f"width {width}: after MAX+MED {np.mean(after[width]):.2f}, ADD alone "
                f"{np.mean(alone[width]):.2f}"
            )
            for width in after
        )
        return Finding(holds, "; ".join(words), values)

    def claim_j(self) -> Finding:
        from scipy import stats

        cells = {
            (m, k): math.log(self.transition(f"{m} operands, depth {k}").at_least())
            for m in (3, 4, 5)
            for k in (3, 4, 5)
        }
        ranks = stats.spearmanr([m + k for m, k in cells], list(cells.values()))
        level = _mean_step(cells, (0, 1))
        operand = _mean_step(cells, (1, 0))
        rho = float(ranks.statistic)  # type: ignore[attr-defined]
        ours = (
            f"rank correlation {rho:.2f}; one level more costs a factor {math.exp(level):.2f}, "
            f"one operand more {math.exp(operand):.2f}"
        )
        points = {f"{m} operands, depth {k}": math.exp(at) for (m, k), at in cells.items()}
        return Finding(
            rho >= 0.8 and level > operand, ours, {"points": points, "rank_correlation": rho}
        )

    def claim_k(self) -> Finding:
        found = {name: self.compare(f"{name}, no steps", name) for name in ("MAX", "MED", "ADD")}
        holds = math.isinf(self.transition("ADD, no steps").at()) and all(
            ratio >= 1 for ratio, _ in found.values()
        )
        return Finding(
            holds,
            "; ".join(words for _, words in found.values()),
            {name: ratio for name, (ratio, _) in found.items()},
        )

    def claim_l(self) -> Finding:
        at = {
            name: [
                self.transition(arm).at_least()
                for arm in (f"{name}, n = 10", name, f"{name}, n = 26")
            ]
            for name in ("ADD", "MAX")
        }
        growth = {name: points[-1] / points[0] for name, points in at.items()}
        ours = "; ".join(
            f"{name}: {', '.join(f'{point:,.0f}' for point in points)} at n = 10, 20, 26"
            for name, points in at.items()
        )
        return Finding(
            at["ADD"] == sorted(at["ADD"]) and growth["ADD"] > max(growth["MAX"], 1.0),
            ours,
            {"at_50": at, "growth": growth},
        )

    def claim_m(self) -> Finding:
        uneven, even = (
            self.compare("ADD", "ADD, uneven table"),
            self.compare("ADD", "ADD, even table"),
        )
        return Finding(
            uneven[0] >= 2 and 0.5 <= even[0] <= 2,
            f"{uneven[1]}; {even[1]}",
            {"uneven": uneven[0], "even": even[0]},
        )


def _mean_step(cells: dict[tuple[int, int], float], step: tuple[int, int]) -> float:
    """Mean difference between neighbouring cells in the direction `step`."""
    pairs = [
        (cells[m, k], cells[m + step[0], k + step[1]])
        for m, k in cells
        if (m + step[0], k + step[1]) in cells
    ]
    return float(np.mean([after - before for before, after in pairs]))


def _size(at: float, found: Transition) -> str:
    return f"{at:,.0f}" if math.isfinite(at) else f"> {max(found.parameters):,.0f}"
