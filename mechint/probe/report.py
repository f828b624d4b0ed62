"""Report: what a probe builds its result with, by the rule that gives each finding its verdict.

    report = Report(self, subject)
    report.metric("share", share, null=shuffled, how="labels shuffled")
    report.finding(Claim("W_E holds ...", no="W_E holds no ..."), Effect(share), null="share")
    return report.result()

A finding is "yes" only where its null is beaten at the level the probe decides at, the effect
exceeds its least size and, for claims about the model's answers, the model beats chance. Where one
of these cannot be told, it is "unclear" and says why: the rule is `mechint.decide.decide`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Num, Shaped

from mechint.decide import NEAR, Bound, Claim, Decision, Evidence, Skill, decide
from mechint.decide.evidence import at_least
from mechint.decide.null import by_example
from mechint.probe.results import (
    Effect,
    Figure,
    Finding,
    Null,
    ProbeResult,
    Scope,
    Table,
    Verdict,
)
from mechint.task import IGNORE

if TYPE_CHECKING:
    from torch import Tensor

    import mechint
    from mechint.subject import Subject


def performance(
    subject: Subject, correct: Bool[Tensor, "row output"] | None = None
) -> tuple[Skill, ...]:
    """Per output, how well the subject answers beside chance; () where nothing is classified. If
    the task names the wrong answer to compare with, an answer is right when its logit is the
    larger. Rows of one example count once. p-values are corrected for the number of outputs.

    correct: (row, output) which answers are right, where that is known already.
    Cost: one forward over the subject's data, which the subject keeps if it can; none with
    `correct`.
    """
    task = subject.task
    if task is None or subject.data.tokens.is_floating_point() or not len(subject.answers):
        return ()
    margins = subject.margins
    answered = (subject.targets != IGNORE).cpu().numpy()  # (row, output)
    levels = {name: level.accuracy for name, level in subject.chance.items()}
    if margins is not None:
        right = (margins > 0).cpu().numpy()[:, None]
        answered = ~margins.isnan().cpu().numpy()[:, None]
        levels = dict.fromkeys(levels, 0.5)
    else:
        right = (subject.correct() if correct is None else correct).cpu().numpy()
    example = subject.distinct_examples.cpu().numpy()
    skills: list[Skill] = []
    outputs = int(answered.any(0).sum())
    for index, output in enumerate(task.outputs):
        rows = answered[:, index]
        if rows.any():
            counted, chance = right[rows, index], levels[output.name]
            hits, n = by_example(counted, example[rows])
            p_value, share = at_least(hits, n, chance), float(counted.mean())
            skills.append(Skill(share, chance, len(counted), p_value, outputs, output.name))
    return tuple(skills)


def described(null: Null) -> str:
    """The null in words, with the number of samples where it was sampled.

    >>> described(Null("share", 1, 0, 1, 0.005, "keys shuffled", 199))
    'keys shuffled, 199'
    """
    return f"{null.how}, {null.samples}" if null.samples else null.how


def _is_of(null: Null, effect: Effect | None) -> bool:
    """Return whether the null is of the effect, or of what it differs from its baseline by."""
    if effect is None:
        return True
    values = [effect.value]
    if effect.baseline is not None:
        values += [effect.value - effect.baseline, effect.baseline - effect.value]
    return any(math.isclose(one, null.observed, rel_tol=1e-4, abs_tol=1e-9) for one in values)


class Report:
    """Collects what a probe measured and what it says about it; `result` is the ProbeResult."""

    def __init__(self, probe: mechint.Probe, subject: Subject) -> None:
        self.probe, self.subject = probe, subject
        self.metrics: dict[str, Any] = {}
        self.units: dict[str, str] = {}
        self.nulls: dict[str, Null] = {}
        self.tables: dict[str, Table] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self.figures: dict[str, Figure] = {}
        self.provenance: dict[str, Any] = {}
        self.findings: list[Finding] = []
        self.skipped: list[tuple[str, str]] = []
        self.verdict_words, self.first_figure = "", ""
        self.correct: Tensor | None = None
        """(row, output) which answers are right; set by a probe that knows it already."""

    @cached_property
    def performance(self) -> tuple[Skill, ...]:
        """Accuracy of the subject, output by output, taken once for all findings."""
        return performance(self.subject, self.correct)

    # --- numbers ----------------------------------------------------------------------------------
    def metric(
        self,
        name: str,
        value: Any,
        *,
        null: Null | Sequence[float] | Num[np.ndarray, " sample"] | None = None,
        how: str = "",
        unit: str = "",
    ) -> None:
        """Record a metric, with its null and its unit where it has them.

        null: a Null, or the samples (samples,) of one, larger more surprising; `how` then says in
        words what was done to remove the mechanism.
        """
        self.metrics[name] = value
        if unit:
            self.units[name] = unit
        if null is not None:
            self.nulls[name] = (
                null if isinstance(null, Null) else Null.sampled(name, float(value), null, how)
            )

    def update(self, metrics: Mapping[str, Any]) -> None:
        """Record several metrics that have neither null nor unit."""
        self.metrics.update(metrics)

    def table(
        self,
        name: str,
        table: Table | Mapping[str, Sequence[Any]],
        caption: str = "",
        units: Mapping[str, str] | None = None,
    ) -> None:
        """Record a table: a Table, or its columns with a caption that says what a row is."""
        self.tables[name] = (
            table if isinstance(table, Table) else Table(table, caption, units or {})
        )

    def array(self, name: str, array: Shaped[np.ndarray, " ..."], unit: str = "") -> None:
        """Record a large array of numbers; what is called "strip" is drawn below the verdict on the
        terminal, with its unit as label.
        """
        self.arrays[name] = array
        if unit:
            self.units[name] = unit

    def by_head(self, values: Iterable[tuple[str, float]], label: str) -> None:
        """Record a number per head as the array "by_head" (layer, head), which the terminal draws.

        values: (component, number), of which those are taken whose name begins like "L0H1"; of
        several of one head the one farthest from 0. label: what the number is, with its unit.
        """
        found = dict[tuple[int, int], float]()
        for name, value in values:
            if place := re.match(r"L(\d+)H(\d+)\b", name):
                layer, head = int(place[1]), int(place[2])
                found[layer, head] = max(found.get((layer, head), 0.0), float(value), key=abs)
        if found:
            shape = tuple(1 + max(one[axis] for one in found) for axis in (0, 1))
            matrix = np.full(shape, np.nan)
            for head, value in found.items():
                matrix[head] = value
            self.array("by_head", matrix, label)

    def figure(self, name: str, figure: Figure) -> None:
        """Record a figure."""
        self.figures[name] = figure

    # --- answers ----------------------------------------------------------------------------------
    def finding(
        self,
        claim: Claim,
        effect: Effect | float | None = None,
        *,
        null: str | Sequence[str] | None = None,
        least: float = 0.0,
        holds: bool = True,
        n: int | None = None,
        alpha: float | None = None,
        details: Mapping[str, Any] | None = None,
        scope: Scope | None = None,
    ) -> Verdict:
        """Say of a claim "yes" where it holds, and "no" where it was tested and does not.

        The effect is printed beside the headline, with the p-value of the null that decided where
        that is of the effect, or of what it exceeds its baseline by; of another statistic it stands
        among the details. Do not write these numbers into the headline.

        Args:
            claim: its words, and what it is about. Those of "unclear" are the probe's question
                where it has none; with a doubt it is that, whatever was measured. A causal one is
                for a probe that intervenes.
            effect: the size of what is claimed.
            null: the metrics whose nulls have to be beaten, all of them; the first that was
                recorded when None.
            least: what the effect has to exceed.
            holds: what the probe's own rule asks for beyond null and effect.
            n: examples or pairs behind the claim; fewer than two are unclear.
            alpha: the level; the probe's `significance` when None.
            details: label → value, shown on request.
            scope: the inputs, answers and components asked, where these are not all, or together;
                of a claim about answers the one that the subject is asked about, when None.

        Returns:
            "yes", "no" or "unclear".
        """
        if scope is None:
            scope = Scope(answers=self.subject.asked * (not claim.at_chance))
        claim = replace(
            claim, unclear=claim.unclear or f"Unclear: {self.probe.question.rstrip('.')}"
        )
        if claim.doubt:
            return self.unclear(claim.unclear, claim.doubt)
        assert self.nulls, f"{self.probe.name}: a finding needs a null"
        assert not claim.causal or self.probe.intervenes, f"{self.probe.name} does not intervene"
        tested = (null,) if isinstance(null, str) else tuple(null or [next(iter(self.nulls))])
        unknown = [name for name in tested if name not in self.nulls]
        assert not unknown, (
            f"{self.probe.name}: no null of {unknown[0]!r}; those recorded are of "
            f"{', '.join(self.nulls)}"
        )
        if effect is not None and not isinstance(effect, Effect):
            effect = Effect(float(effect))
        nulls = [self.nulls[name] for name in tested]
        level = self.probe.significance if alpha is None else alpha
        weakest = max(nulls, key=lambda one: (one.p_value, _is_of(one, effect)))
        value = weakest.observed if effect is None else effect.value
        skill = self._skill(claim)
        # a finding without n is not refused for too few examples
        decision = decide(
            Evidence(value=value, n=2 if n is None else max(n, 1)),
            null=nulls,
            bound=None if effect is None else Bound(least, of="value"),
            level=level,
            chance=skill,
            least=2,
        )
        if decision and not holds:
            decision = Decision("no")  # by the probe's own rule
        denies = weakest.p_value > max(NEAR, level * (1 + 1e-9))
        # the p-value that decided: of the weakest null where the claim stands, or was denied by it
        verdict: Verdict = "unclear" if decision.verdict == "untested" else decision.verdict
        null_decided = verdict == "yes" or (verdict == "no" and denies)
        # one of another statistic than the effect's does not stand beside it, but among the details
        printed = null_decided and _is_of(weakest, effect)
        noted = dict(details or {})
        if null_decided and not printed:
            noted[f"{weakest.metric} against {described(weakest)}"] = weakest.p_text
        reason = decision.reason if verdict == "unclear" else ""
        barred = decision.reason and math.isfinite(least)
        if verdict == "no" and not denies and barred and effect is not None:
            reason = f"effect {value:.2g}, at least {least:g} needed"
        if decision and claim.lead:
            self.lead(claim.yes if claim.lead is True else claim.lead)
        self.findings.append(
            Finding(
                claim.say(decision),
                verdict,
                effect,
                p_value=weakest.p_value if printed else None,
                null=described(weakest) if printed else None,
                details=noted,
                caveat=claim.caveat if decision else "",
                reason=reason,
                alpha=level,
                tested=tested,
                least=least,
                n=n,
                causal=claim.causal,
                accuracy=skill and skill.accuracy,
                chance=skill and skill.chance,
                scope=scope,
            )
        )
        return verdict

    def _skill(self, claim: Claim) -> Skill | None:
        """The worst of the outputs that the claim names, the best of all where it names none; None
        where it can be true of a model at chance.
        """
        if claim.at_chance:
            return None
        named = claim.outputs
        rows = [row for row in self.performance if named is None or row.output in named]
        which = min if named is None else max
        return which(rows, key=lambda row: row.p_value, default=None)

    def scope(self, n: int, asked: int = 1, of: int = 1, *, inputs: str = "") -> Scope:
        """The scope of n of the subject's examples, and of `asked` components edited together, of
        how many there are; inputs: which they are, as in `Scope`, where they were chosen.
        """
        drawn = n if n < len(self.subject.data) else None
        several = (asked, of) if asked > 1 else None
        return Scope(drawn, self.subject.asked, several, asked > 1, inputs if drawn else "")

    def unclear(self, headline: str, reason: str) -> Verdict:
        """Say that a question cannot be answered here, and why, in one line each."""
        self.findings.append(Finding(headline, "unclear", reason=reason))
        return "unclear"

    def not_asked(self, question: str, reason: str) -> None:
        """Name a question that cannot arise for the subject, and why."""
        self.skipped.append((question, reason))

    def lead(self, words: str) -> None:
        """The words that become the verdict of an account, where the leading finding is "yes"."""
        self.verdict_words = words

    def hero(self, figure: str) -> None:
        """The name of the one figure to show first."""
        self.first_figure = figure

    def result(self) -> ProbeResult:
        """The result: "yes" where any finding is, else "no" where any was decided."""
        assert self.findings, f"{self.probe.name}: a report needs a finding"
        found = any(finding.verdict == "yes" for finding in self.findings)
        return self.probe.result(
            metrics=self.metrics,
            units=self.units,
            null=self.nulls,
            findings=tuple(self.findings),
            not_asked=tuple(self.skipped),
            lead=self.verdict_words if found else "",
            lead_rank=self.probe.lead_rank,
            hero=self.first_figure
            if self.first_figure in self.figures
            else next(iter(self.figures), ""),
            tables=self.tables,
            arrays=self.arrays,
            figures=self.figures,
            provenance=self.provenance,
        )
