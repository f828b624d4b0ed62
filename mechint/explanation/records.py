"""Records of single tests of an audit: shares, R² and the need of a block, a class each.

A record decides by `mechint.decide` from what was counted. Its verdict is of the claims in `of`;
`contradicts` tells a claim that is false from one that does not suffice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mechint.decide import Bound, Decision, Evidence, Null, Skill, all_of, decide
from mechint.explanation.measure import MIN_INPUTS
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


def json_of(evidence: Evidence | None) -> dict[str, Any] | None:
    """Evidence as JSON values, where there is any."""
    return None if evidence is None else evidence.to_dict()


@dataclass(frozen=True, kw_only=True)
class Test:
    """One test of an audit.

    kind: its name, as in docs/explanations.md; target: what it is about, in words; where: the site
    of that, "" where there is none; of: the claims that it judges, none for what is only told.
    refutes: it can only speak against them, so that passing it says nothing.
    """

    kind: str
    target: str
    of: tuple[str, ...]
    where: str = ""
    decision: Decision
    contradicts: bool = False
    refutes: bool = False
    form: ClassVar[str]
    __test__: ClassVar[bool] = False
    """Not a class of tests that pytest collects."""

    @property
    def value(self) -> float:
        """The number that was measured; NaN where nothing was."""
        raise NotImplementedError

    @property
    def n(self) -> int:
        """Judged inputs behind it."""
        raise NotImplementedError

    @property
    def standing(self) -> str:
        """Standing of its claims: stands, incomplete, wrong, unclear or untested."""
        if self.decision.verdict == "no":
            return "wrong" if self.contradicts else "incomplete"
        return "stands" if self.decision else self.decision.verdict

    @property
    def reason(self) -> str:
        """The reason for which it does not stand."""
        where = f" at {self.where}" if self.where else ""
        return f"{self.kind} of {self.target}{where}: {self.decision.reason}"

    def numbers(self) -> Mapping[str, Any]:
        """The fields of this form as JSON values."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """As JSON values: what all tests have, then the fields of its form."""
        shared: dict[str, Any] = {
            "kind": self.kind,
            "target": self.target,
            "where": self.where,
            "form": self.form,
            "of": list(self.of),
            "verdict": self.decision.verdict,
            "standing": self.standing,
            "reason": self.decision.reason,
        }
        return to_jsonable({**shared, "value": self.value, "n": self.n, **self.numbers()})


@dataclass(frozen=True, kw_only=True)
class Statistic(Test):
    """A test of a statistic of the judged inputs."""

    found: Evidence

    @property
    def value(self) -> float:
        return self.found.value

    @property
    def n(self) -> int:
        return self.found.n


@dataclass(frozen=True, kw_only=True)
class Share(Statistic):
    """A share of answers, beside what the model has and chance of the same count.

    null: the same by features or keys that the claim does not name.
    """

    form: ClassVar[str] = "share"
    bound: Bound
    skill: Skill
    null: Evidence | None = None

    @classmethod
    def judged(
        cls,
        kind: str,
        target: str,
        of: tuple[str, ...],
        found: Evidence,
        skill: Skill,
        *,
        bound: Bound = KEEPS,
        null: Evidence | None = None,
        null_bound: Bound = NULL,
        refutes: bool = False,
        where: str = "",
        least: int = MIN_INPUTS,
    ) -> Share:
        """The record of a share; contradicted where the claim keeps less than half of what the
        model has, or no more than its null; of a bound from below wherever it fails.
        """
        own = decide(found, bound=bound, chance=skill, least=least)
        nulls = [] if null is None else [decide(null, bound=null_bound, chance=skill)]
        against = [Decision(one.verdict, f"null {one.reason}") for one in nulls if not one]
        less = null is not None and found.value <= null.value
        half = decide(found, bound=HALF, chance=skill).verdict == "no"
        return cls(
            kind=kind,
            target=target,
            of=of,
            decision=all_of([own, *against]),
            contradicts=bound.side == "below" or less or half,
            refutes=refutes,
            where=where,
            found=found,
            bound=bound,
            skill=skill,
            null=null,
        )

    @property
    def kept(self) -> float:
        """The share above chance, of the model's own; NaN where the model is at chance."""
        return self.skill.above(self.value) if self.skill.beats_chance else float("nan")

    @property
    def kept_at_least(self) -> float:
        """The lower end of the interval of `kept`."""
        return self.skill.above(self.found.low) if self.skill.beats_chance else float("nan")

    def numbers(self) -> Mapping[str, Any]:
        return {
            **self.found.to_dict(),
            "above_chance": self.kept,
            "chance": self.skill.chance,
            "accuracy": self.skill.accuracy,
            "bound": self.bound.to_dict(),
            "null": json_of(self.null),
        }


@dataclass(frozen=True, kw_only=True)
class Determination(Statistic):
    """R² of logits, or of a change of logits, from features.

    null: R² by features that the claim does not name; rival: by the right answer.
    """

    form: ClassVar[str] = "determination"
    bound: Bound
    null: Evidence | None = None
    rival: Evidence | None = None

    @classmethod
    def judged(
        cls,
        kind: str,
        target: str,
        of: tuple[str, ...],
        found: Evidence,
        *,
        bound: Bound = MATCH,
        null: Evidence | None = None,
        rival: Evidence | None = None,
    ) -> Determination:
        """The record of an R²; contradicted where the right answer does as well."""
        decisions, contradicts = [decide(found, bound=bound, least=MIN_INPUTS)], False
        if rival is not None:
            beats = decide(found - rival, bound=BEATS)
            decisions.append(Decision(beats.verdict, f"above the right answer {beats.reason}"))
            contradicts = beats.verdict == "no"
        if null is not None:
            over = decide(found.times(NULL_MATCH) - null, bound=Bound(0.0))
            decisions.append(Decision(over.verdict, f"half of it less the null {over.reason}"))
        return cls(
            kind=kind,
            target=target,
            of=of,
            decision=all_of(decisions),
            contradicts=contradicts,
            found=found,
            bound=bound,
            null=null,
            rival=rival,
        )

    def numbers(self) -> Mapping[str, Any]:
        return {
            **self.found.to_dict(),
            "bound": self.bound.to_dict(),
            "null": json_of(self.null),
            "right_answer": json_of(self.rival),
        }


@dataclass(frozen=True, kw_only=True)
class Need(Statistic):
    """The need of a block: its rank among spare blocks, and the answers that are lost without it.

    found: share of answers lost without it, net of those won. spare: its effect on the logits over
    that of the largest spare block, and the null of effects of spare blocks; None where there is no
    spare block.
    """

    form: ClassVar[str] = "need"
    spare: tuple[Evidence, Null] | None = None

    @classmethod
    def judged(
        cls,
        target: str,
        of: tuple[str, ...],
        lost: Evidence,
        spare: tuple[Evidence, Null] | None = None,
    ) -> Need:
        """The record of a need: shown by rank or by loss; denied where the spare blocks could have
        shown it, and neither does.
        """
        dropped = decide(lost, bound=DROP, least=MIN_INPUTS)
        ranked = Decision("unclear", "there is no spare block")
        if spare is not None:
            ratio, null = spare
            ranked = decide(ratio, null=null, bound=LARGER, level=SPARE_LEVEL)
        if dropped or ranked:
            decision = Decision("yes")
        else:
            verdict = "no" if {dropped.verdict, ranked.verdict} == {"no"} else "unclear"
            reason = f"not shown to be needed: {ranked.reason}; lost without it: {dropped.reason}"
            decision = Decision(verdict, reason)
        return cls(
            kind="minimality", target=target, of=of, decision=decision, found=lost, spare=spare
        )

    @property
    def standing(self) -> str:
        """ "stands", "needless" or "unclear"."""
        return {"yes": "stands", "no": "needless"}.get(self.decision.verdict, "unclear")

    def numbers(self) -> Mapping[str, Any]:
        made: dict[str, Any] = {"lost": self.found.to_dict()}
        if self.spare is None:
            return {**made, "over_spare": None, "rank_p": None, "spare": 0}
        ratio, null = self.spare
        made["over_spare"] = ratio.to_dict()
        return {**made, "rank_p": null.p_value, "spare": null.samples}


@dataclass(frozen=True, kw_only=True)
class Resolution(Test):
    """Resolution of a variable: how many of its values the answers tell apart.

    modulus: the number modulo which the values are known, where they are known so.
    """

    form: ClassVar[str] = "resolution"
    told: int
    values: int
    modulus: int | None = None

    @property
    def value(self) -> float:
        return float(self.told)

    @property
    def n(self) -> int:
        return self.values

    @property
    def known(self) -> str:
        """The resolution of the variable in words; "" where all its values are."""
        if self.told == self.values:
            return ""
        if self.modulus is not None:
            return f"up to mod {self.modulus}"
        return f"up to {self.told} classes of its {self.values} values"

    def numbers(self) -> Mapping[str, Any]:
        return {"told_apart": self.told, "values": self.values, "modulus": self.modulus}
