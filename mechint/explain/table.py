"""Explanations as columns of a table of models: `mechint.runs(...).explain()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mechint.config import setting
from mechint.explain.propose import explain
from mechint.probe import Need, Probe
from mechint.results import Finding, ProbeResult
from mechint.subject import Subject

VERDICTS = {"stands": "yes", "refused": "no", "wrong": "no"}


@dataclass(frozen=True)
class BestExplanation(Probe):
    """Which program does the model run, and how much of its logits does that explain?

    Metrics: family, standing and name of the best explanation; unaccounted: share of the logits'
    variance that it leaves, of the answers where no part reads the logits; parts: how many.
    """

    name: ClassVar[str] = "explain"
    source: ClassVar[str] = "mechint.explain"
    needs: ClassVar[tuple[Need, ...]] = (Need.ANSWERS,)
    intervenes: ClassVar[bool] = True

    family: str | None = setting(None, "the family that proposes; all that apply when None")
    examples: int = setting(3000, "inputs, half of them fitted and half judged", low=64)

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        best = explain(subject, family=self.family, seed=seed, examples=self.examples)[0]
        metrics: dict[str, Any] = {
            "family": best.explanation.family,
            "standing": best.standing,
            "parts": len(best.explanation.parts),
            "name": best.explanation.name,
        }
        if best.unaccounted:
            metrics["unaccounted"] = best.unaccounted.get("logits", best.unaccounted["accuracy"])
        verdict: Any = VERDICTS.get(best.standing, "unclear")
        headline = f"The best explanation, {best.explanation.name}: {best.standing}."
        finding = Finding(headline, verdict, reason=best.reason, n=best.n, causal=True)
        return self.result(metrics=metrics, findings=(finding,))
