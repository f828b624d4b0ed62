"""Explanations as columns of a table of models: `mechint.runs(...).explain()`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mechint.config import setting
from mechint.decide.words import STANDS
from mechint.explanation.comparison import carry
from mechint.explanation.propose import explain
from mechint.probe import Need, Probe
from mechint.probe.results import Finding, ProbeResult
from mechint.subject import Subject

if TYPE_CHECKING:
    from mechint.run_table.entries import Entry

VERDICTS = {"stands": "yes", "refused": "no", "wrong": "no"}


@dataclass(frozen=True)
class BestExplanation(Probe):
    """Which program does the model run, and how much of its logits does that explain?

    Metrics: family, standing and name of the best explanation; program: its name without numbers,
    which models of other seeds share; accounted: share of the logits' variance that it explains, of
    the answers where no part reads the logits; parts: how many; blocks: what the part that reads
    the logits is made of, such as frequencies; reason: why it does not stand.
    """

    name: ClassVar[str] = "explain"
    source: ClassVar[str] = "mechint.explanation"
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
            "program": best.explanation.short or best.explanation.name,
        }
        if best.reason:
            metrics["reason"] = best.reason
        if blocks := [
            name for part in best.explanation.parts if part.reads for name in part.blocks
        ]:
            metrics["blocks"] = blocks
        if best.accounted is not None:
            metrics["accounted"] = best.accounted.share
        verdict: Any = VERDICTS.get(best.standing, "unclear")
        headline = f"The best explanation, {best.explanation.name}: {best.standing}."
        finding = Finding(
            headline,
            verdict,
            reason=best.reason,
            n=best.n,
            causal=True,
            scope=best.scope,
        )
        return self.result(metrics=metrics, findings=(finding,))


def last_over_steps(
    entries: Sequence[Entry], *, seed: int = 0, answer: Any = None
) -> list[dict[str, Any]]:
    """The program of the last checkpoint of a run on each of them, up to symmetry: step, standing
    and reason; [] where it does not stand on its own.
    """

    def opened(entry: Entry) -> Subject:
        subject = entry.subject()
        return subject if answer is None else subject.with_answer(answer)

    run = [one for one in entries if one.path == entries[-1].path]
    last = opened(run[-1])
    found = explain(last, seed=seed)[0]
    if found.standing not in STANDS:
        return []
    rows = list[dict[str, Any]]()
    for entry in run:
        subject = last if entry is run[-1] else opened(entry)
        one = carry(found, subject, seed=seed)
        step = entry.describe().get("step")
        rows.append({"step": step, "standing": one.standing, "reason": one.reason})
    return rows


def last_program(rows: Sequence[Mapping[str, Any]]) -> str:
    """A sentence on since when the program of the last step is that of the run; "" of none."""
    if not rows:
        return ""
    first = len(rows)
    while first and rows[first - 1]["standing"] in STANDS:
        first -= 1
    return (
        f"The program of the last step, audited on each: it stands from {rows[first]['step']:,} on."
    )
