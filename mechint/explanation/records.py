"""Tests of an audit: findings about the claims of an explanation, decided by `mechint.decide`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mechint.decide import Bound, Decision, Evidence, Null, Skill, Verdict, all_of, decide
from mechint.decide.words import CLAIM
from mechint.explanation.measure import MIN_INPUTS
from mechint.probe.results import Effect, Finding
from mechint.system.jsonable import to_jsonable

KEEPS = Bound(0.9, above_chance=True)
"""Share of the model's accuracy that an edit which the claim allows has to keep."""
HALF = Bound(0.5, above_chance=True)
"""Share of it below which a claim is contradicted."""
NULL = Bound(0.5, "below", above_chance=True)
"""Share of it that a null may reach at most."""
LOST = Bound(0.15, "below", above_chance=True)
"""Share of it that may be left once a part is exchanged."""
MATCH = Bound(0.5)
"""R² of the logits from which a match is evidence."""
BEATS = Bound(1e-4)
"""R² by which a match has to exceed that of the right answer."""
NULL_MATCH = 0.5
"""Share of its R² that a null may reach at most."""
PARTIAL = Bound(0.5)
"""R² of the predicted change of the logits when one block alone is exchanged."""
LARGER = Bound(1.0)
"""Effect of a block over that of the largest spare one."""
SPARE_LEVEL = 0.1
"""Level of the rank of a block among spare ones: nine of them decide."""
DROP = Bound(0.005)
"""Share of answers that have to be lost without a block that is needed."""
HEADLINES = {
    "path patching": "{}, which suffices",
    "interchange": "swap {}: the answer follows",
    "moved key": "move the key of {} to another answer: the model follows",
    "composed inputs": "mix {} of inputs: the answer follows",
    "match": "{}: predicts the logits",
    "faithfulness": "enough for the answer: {}",
    "causal scrubbing": "{} of another input with the same values: the answer stays",
    "completeness": "exchange {}: few answers are left",
    "attention": "{}, most of all",
    "minimality": "{} is needed",
    "coverage": "the answer is {}",
    "beyond": "{}: read beyond the answer",
    "partial": "exchange {}: the logits change as predicted",
    "resolution": "{}: values that the answers tell apart",
}
"""Kind of test → what it shows where it passes, of its target; those that bear most come first."""
MARKS = {"stands": "✓", "incomplete": "○", "wrong": "✗", "unclear": "–", "untested": "·"}
"""Standing of a test → its mark."""


def sentence_of(verdict: Verdict, words: str) -> str:
    """The words of a test as a sentence, which is said of one that passed alone.

    >>> sentence_of("yes", "x is needed"), sentence_of("no", "x is needed")
    ('X is needed.', 'Not shown: x is needed.')
    """
    said = words if verdict == "yes" else f"not shown: {words}"
    return f"{said[0].upper()}{said[1:]}."


@dataclass(frozen=True, kw_only=True, repr=False)
class Test(Finding):
    """One test of an audit.

    kind: its name, as in docs/explanations.md; target: what it is about, in words; where: the site
    of that, "" where there is none; of: the claims that it judges, none for what is only told.
    contradicts: its "no" denies them, and not only that they suffice. refutes: it can only speak
    against them, so that passing it says nothing. block: its "no" says that a block is not needed,
    and nothing of the claims. kept: a share above chance, of the model's own, and the lower end of
    its interval; None of no share, and of a model at chance.
    """

    kind: str
    target: str
    of: tuple[str, ...] = ()
    where: str = ""
    contradicts: bool = False
    refutes: bool = False
    block: bool = False
    kept: tuple[float, float] | None = None
    __test__: ClassVar[bool] = False
    """Not a class of tests that pytest collects."""

    @classmethod
    def made(
        cls,
        kind: str,
        target: str,
        of: tuple[str, ...],
        decision: Decision,
        found: Evidence,
        *,
        others: Evidence | None = None,
        label: str = "share right",
        headline: str = "",
        where: str = "",
        **fields: Any,
    ) -> Test:
        """The test that a number decided; others: the same of what the claim does not name."""
        said = sentence_of(decision.verdict, headline or HEADLINES[kind].format(target))
        place = f" at {where}" if where else ""
        beside = None if others is None else others.value
        return cls(
            headline=said,
            verdict=decision.verdict,
            effect=Effect(found.value, "", label, beside, "others", found.interval),
            reason="" if decision else f"{kind} of {target}{place}: {decision.reason}",
            n=found.n,
            causal=True,
            kind=kind,
            target=target,
            of=of,
            where=where,
            **fields,
        )

    @property
    def value(self) -> float:
        """The number that was measured; NaN where nothing was."""
        assert self.effect is not None
        return self.effect.value

    @property
    def standing(self) -> str:
        """Standing of its claims; of a block "needless" where it is not needed."""
        if self.verdict != "no":
            return CLAIM[self.verdict]
        return "needless" if self.block else CLAIM["no"] if self.contradicts else "incomplete"

    @property
    def mark(self) -> str:
        """The mark of its standing."""
        return MARKS.get(self.standing, "○")

    def to_dict(self) -> dict[str, Any]:
        """The fields, value and standing as JSON values."""
        told = {"value": self.value, "standing": self.standing}
        return {**super().to_dict(), **to_jsonable(told)}


def judge_share(
    kind: str,
    target: str,
    of: tuple[str, ...],
    found: Evidence,
    skill: Skill,
    *,
    bound: Bound = KEEPS,
    null: Evidence | None = None,
    null_bound: Bound = NULL,
    least: int = MIN_INPUTS,
    **fields: Any,
) -> Test:
    """The test of a share of answers; contradicted where the claim keeps less than half of what the
    model has, or no more than its null; of a bound from below wherever it fails.
    """
    own = decide(found, bound=bound, chance=skill, least=least)
    nulls = [] if null is None else [decide(null, bound=null_bound, chance=skill)]
    against = [Decision(one.verdict, f"null {one.reason}") for one in nulls if not one]
    less = null is not None and found.value <= null.value
    half = decide(found, bound=HALF, chance=skill).verdict == "no"
    told = skill.beats_chance and found.n > 0
    return Test.made(
        kind,
        target,
        of,
        all_of([own, *against]),
        found,
        others=null,
        contradicts=bound.side == "below" or less or half,
        kept=(skill.above(found.value), skill.above(found.low)) if told else None,
        accuracy=skill.accuracy,
        chance=skill.chance,
        least=skill.at(bound.value) if bound.above_chance else bound.value,
        **fields,
    )


def judge_r2(
    kind: str,
    target: str,
    of: tuple[str, ...],
    found: Evidence,
    *,
    bound: Bound = MATCH,
    null: Evidence | None = None,
    rival: Evidence | None = None,
) -> Test:
    """The test of an R² of logits, or of a change of logits, from features; contradicted where the
    right answer, the rival, does as well.
    """
    decisions, contradicts = [decide(found, bound=bound, least=MIN_INPUTS)], False
    if rival is not None:
        beats = decide(found - rival, bound=BEATS)
        decisions.append(Decision(beats.verdict, f"above the right answer {beats.reason}"))
        contradicts = beats.verdict == "no"
    if null is not None:
        over = decide(found.times(NULL_MATCH) - null, bound=Bound(0.0))
        decisions.append(Decision(over.verdict, f"half of it less the null {over.reason}"))
    details = {} if rival is None else {"the right answer alone": rival.value}
    return Test.made(
        kind,
        target,
        of,
        all_of(decisions),
        found,
        others=null,
        label="R²",
        contradicts=contradicts,
        details=details,
        least=bound.value,
    )


def judge_block(
    target: str,
    of: tuple[str, ...],
    lost: Evidence,
    spare: tuple[Evidence, Null] | None = None,
) -> Test:
    """The test of the need of a block: shown by its rank among spare blocks or by the answers that
    are lost without it; denied where the spare blocks could have shown it, and neither does.

    lost: share of answers lost without it, net of those won. spare: its effect on the logits over
    that of the largest spare block, and the null of effects of spare blocks.
    """
    dropped = decide(lost, bound=DROP, least=MIN_INPUTS)
    ranked, beside = Decision("unclear", "there is no spare block"), dict[str, Any]()
    if spare is not None:
        ratio, null = spare
        ranked = decide(ratio, null=null, bound=LARGER, level=SPARE_LEVEL)
        beside = {"p_value": null.p_value, "null": f"{null.how}, {null.samples}"}
        beside["details"] = {"effect over that of the largest spare block": ratio.value}
    decision = Decision("yes")
    if not (dropped or ranked):
        verdict = "no" if {dropped.verdict, ranked.verdict} == {"no"} else "unclear"
        reason = f"not shown to be needed: {ranked.reason}; lost without it: {dropped.reason}"
        decision = Decision(verdict, reason)
    larger = ranked.verdict == "yes" and dropped.verdict != "yes"
    said = f"{target} {'moves the logits more than spare blocks do' if larger else 'is needed'}"
    return Test.made(
        "minimality",
        target,
        of,
        decision,
        lost,
        label="share lost",
        headline=said,
        block=True,
        **beside,
    )
