"""What the joint-training study measures at every size: one method a claim. Claims that need nested
expressions are in `joint_transitions`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from mechint.errors import DataError
from mechint.registry import PROBES
from mechint.results import ProbeResult
from mechint.studies.core.study import Finding, Runs, mean_and_spread
from mechint.studies.joint_training.claims import SOLVED
from mechint.studies.joint_training.transitions import Transitions
from mechint.subject import Subject
from mechint.task import FiniteTask
from mechint.training import Run

MIXTURES = ("MAX+MED+ADD", "ADD+PROD")
"""Arms whose embeddings are averaged: those in which ADD is learned beside others."""


class Measures(Transitions):
    """The runs of the study by arm; what is measured once is kept."""

    def __init__(self, runs: Runs, size: str) -> None:
        super().__init__(runs)
        self.size = size
        self.prefix = "triplets " if size == "full" else ""
        widths = [
            int(width)
            for width in runs.values_of("width", arm=f"{self.prefix}MAX+MED+ADD", init="normal")
        ]
        self.width = max(widths)
        self.layout = cache(self._layout)
        self.pairs = cache(self._pairs)

    def triplets(self, arm: str, width: int | None = None, init: str = "normal") -> list[Run]:
        """Runs of an arm on triplets; DataError where the size has none."""
        found = self.runs.select(arm=self.prefix + arm, width=width or self.width, init=init)
        if not found:
            raise DataError(f"the study has no run of {arm} on triplets at this size")
        return found

    # --- a, d, e: who learns what -----------------------------------------------------------------
    def claim_a(self) -> Finding:
        if self.size == "full":
            return self.order()
        width = int(self.runs.values_of("width", arm="MAX")[0])
        first = {
            name: [reached(run) for run in self.triplets(name, width)]
            for name in ("MAX", "MIN", "MED", "PROD", "NADD", "ADD")
        }
        final = {name: [last(run) for run in self.triplets(name, width)] for name in first}
        easy, hard = (
            [step for name in ("MAX", "MIN", "MED") for step in first[name]],
            [step for name in ("ADD", "NADD") for step in first[name]],
        )
        holds = (
            max(easy) < min(hard)
            and math.isfinite(max(easy))
            and max(np.mean(first["MAX"]), np.mean(first["MIN"])) <= np.mean(first["MED"])
        )
        parts = [
            f"{name} {_steps(first[name])} (at the end {np.mean(final[name]):.2f})"
            for name in first
        ]
        return Finding(
            bool(holds),
            f"width {width}, first step at {SOLVED} in each run: " + "; ".join(parts),
            {"first": first, "final": final},
        )

    def claim_d(self) -> Finding:
        shuffled, true = (
            [last(run) for run in self.triplets(arm)]
            for arm in ("shuffled MAX+MED+ADD", "MAX+MED+ADD")
        )
        ours = (
            f"held-out triplets at width {self.width}: shuffled ADD {mean_and_spread(shuffled)}, "
            f"true ADD {mean_and_spread(true)}"
        )
        return Finding(
            bool(np.mean(shuffled) <= 0.35 and np.mean(true) >= SOLVED),
            ours,
            {"shuffled": shuffled, "true": true},
        )

    def claim_e(self) -> Finding:
        mixed, alone = (
            [last(run) for run in self.triplets("MAX+MED+ADD")],
            [last(run) for run in self.triplets("ADD")],
        )
        fitted = [run.final["train.accuracy"] for run in self.triplets("ADD")]
        ours = (
            f"mixture {mean_and_spread(mixed)}, {solved(mixed)} of {len(mixed)} solved; "
            f"ADD alone {mean_and_spread(alone)}, {solved(alone)} of {len(alone)} solved (its "
            f"training accuracy, both characters: {mean_and_spread(fitted)})"
        )
        note = (
            "ADD alone that does not fit its training set either is held up by optimisation, not "
            "by too little data"
        )
        return Finding(
            bool(np.mean(mixed) >= SOLVED and np.mean(alone) <= 0.6),
            ours,
            {"mixture": mixed, "alone": alone, "alone, train": fitted},
            note,
        )

    # --- g: embeddings ----------------------------------------------------------------------------
    def learned(self, arm: str) -> list[Subject]:
        """Subjects of the runs of `arm`, of any width, that learned ADD."""
        names = self.runs.names(arm=self.prefix + arm, init="normal")
        return [run.subject() for run in (self.runs[name] for name in names) if last(run) >= SOLVED]

    def _layout(self, arm: str) -> ProbeResult | None:
        subjects = self.learned(arm)
        return PROBES["embedding"]().average(subjects) if subjects else None

    def claim_g(self) -> Finding:
        found = {arm: self.layout(arm) for arm in (*MIXTURES, "ADD")}
        judged = {arm: result for arm, result in found.items() if result is not None}
        if not any(arm in judged for arm in MIXTURES):
            raise DataError(
                f"no run of {' or '.join(MIXTURES)} reached {SOLVED}; there is no embedding "
                "to average"
            )
        values: dict[str, Any] = {}
        for arm, result in judged.items():
            parts = ("parity", "mod_4")
            values[arm] = {
                part: {
                    "share": result.metrics[f"{part}.separation"],
                    "p": result.null[f"{part}.separation"].p_value,
                }
                for part in parts
            }
            values[arm]["component"], values[arm]["models"] = (
                result.metrics["parity.component"],
                len(self.learned(arm)),
            )
        words = [
            f"{arm} ({row['models']} models): parity holds {row['parity']['share']:.2f} of "
            f"component {row['component']} (p = {row['parity']['p']:.2g}), "
            f"residues mod 4 {row['mod_4']['share']:.2f} (p = {row['mod_4']['p']:.2g})"
            for arm, row in values.items()
        ]
        absent = [arm for arm in found if arm not in judged]
        note = f"no run of {', '.join(absent)} reached {SOLVED}" if absent else ""
        return Finding(
            all(values[arm]["parity"]["p"] <= 0.05 for arm in MIXTURES if arm in judged),
            "; ".join(words),
            values,
            note,
        )

    # --- h: norm ratios ---------------------------------------------------------------------------
    def _pairs(self) -> list[ProbeResult]:
        """Norm ratios of the mixture minus those of ADD alone, on all sums, seed by seed."""
        probe = PROBES["norms"](bootstrap=200 if self.size == "smoke" else 1000)
        return [
            probe.compare(mixed.subject(data=sums(alone)), alone.subject(data=sums(alone)))
            for mixed, alone in zip(self.triplets("MAX+MED+ADD"), self.triplets("ADD"), strict=True)
        ]

    def claim_h(self) -> Finding:
        results, values, words, holds = self.pairs(), {}, [], True
        layer = max(
            int(name.split(".")[1][1:].split()[0])
            for name in results[0].metrics
            if name.endswith("cohens_d")
        )
        for kind, sign in (("attention", 1), ("feed-forward", -1)):
            key = f"norms.L{layer} {kind}"
            row = {
                name: [result.metrics[f"{key}.{name}"] for result in results]
                for name in ("cohens_d", "ks", "js_divergence_bits", "wasserstein")
            }
            d = np.array(row["cohens_d"])
            error = float(d.std(ddof=1) / math.sqrt(len(d))) if len(d) > 1 else math.inf
            holds &= bool(sign * d.mean() > 2 * error)
            words.append(
                f"{kind}: d {mean_and_spread(row['cohens_d'])}, KS {np.mean(row['ks']):.3f}, "
                f"JS {np.mean(row['js_divergence_bits']):.3f} bits, "
                f"Wasserstein {np.mean(row['wasserstein']):.3f}"
            )
            values[kind] = row
        alone = [last(run) for run in self.triplets("ADD")]
        note = (
            f"models of {layer + 1} layers, {self.width} wide (paper: 3 and 128); ADD alone "
            f"stands at {mean_and_spread(alone)} on held-out sums"
        )
        return Finding(holds, "; ".join(words), values, note)


def last(run: Run) -> float:
    """Accuracy at the last step on what is judged of the run: the operation held out in triplets,
    or the whole test.
    """
    return float(run.final["test.greedy.accuracy"])


def reached(run: Run) -> float:
    """The first step at which the run is at SOLVED; infinite where it never is."""
    return next(
        (float(row["step"]) for row in run.metrics if row["test.greedy.accuracy"] >= SOLVED),
        math.inf,
    )


def solved(accuracies: Sequence[float]) -> int:
    """How many have learned."""
    return sum(accuracy >= SOLVED for accuracy in accuracies)


def sums(run: Run) -> Any:
    """All examples of the run's task: every triplet under ADD where the run is of ADD alone."""
    assert isinstance(run.spec.task, FiniteTask)
    return run.spec.task.examples()


def _steps(steps: Sequence[float]) -> str:
    return ", ".join(f"{step:g}" if math.isfinite(step) else "never" for step in steps)
