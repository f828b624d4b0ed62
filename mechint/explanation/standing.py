"""Standings: of each claim from its tests, of an explanation from its claims."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mechint.decide.words import STANDINGS
from mechint.explanation.explanation import Explanation, program_text
from mechint.explanation.measure import Bench
from mechint.explanation.records import Test
from mechint.probe.results import EACH, Scope
from mechint.system.jsonable import Shown, to_jsonable

if TYPE_CHECKING:
    from rich.text import Text

ORDER = tuple(STANDINGS)
"""Standings of explanations, best first."""
COMPUTES = ("coverage", "composed inputs")
"""Tests of a program that computes the answers that are counted."""
HOW = {
    "coverage": "",
    "composed inputs": "to mixed inputs",
    "path patching": "with this attention alone",
    "interchange": "under interchange",
}
"""Kind of test → the words for what it counts, after the answers."""


@dataclass(frozen=True)
class Standing:
    """The standing of one claim: stands, incomplete, wrong, unclear or untested, and the reason.

    known: what its variable is known up to, in words; "" where all its values are.
    """

    claim: str
    standing: str
    reason: str = ""
    known: str = ""


@dataclass(frozen=True)
class Accounted:
    """The share that an explanation accounts for, in the words that its tests bear out.

    verb: "explains" of a program that computes what is counted, "keeps" of the rest; of: what is
    counted; how: that this is above chance, and which of the counts is the least. share, at_least:
    that one, and the lower end of its interval.
    """

    verb: str
    of: str
    share: float
    at_least: float
    how: str = ""


@dataclass(frozen=True, repr=False)
class Audit(Shown):
    """An explanation with what its tests came to.

    standing: one of `ORDER`. claims: the standing of each part, route and copy. missing: the
    largest effects that no part names. superfluous: blocks whose need is denied or not shown.
    n, scope: the inputs that it is judged on, and how they were come by. followed: one of its
    interventions, of a program that stands; see `mechint.explanation.followed`.
    """

    explanation: Explanation
    standing: str
    tests: tuple[Test, ...] = ()
    claims: tuple[Standing, ...] = ()
    accuracy: float = math.nan
    chance: float = math.nan
    missing: tuple[str, ...] = ()
    superfluous: tuple[str, ...] = ()
    reason: str = ""
    n: int = 0
    scope: Scope = EACH
    followed: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])

    def text(self, width: int = 100) -> Text:
        from mechint.explanation.text import audit_text

        return audit_text(self, width)

    def value(self, kind: str) -> float:
        """The least favorable value of the tests of a kind; NaN where there is none."""
        found = [test.value for test in self.tests if test.kind == kind]
        least = max if kind == "completeness" else min
        return least((one for one in found if not math.isnan(one)), default=math.nan)

    @property
    def rank(self) -> tuple[int, int, float]:
        """Place in a list of audits: standing first, then what explains logits, answers, or keeps
        some, then how much.
        """
        said = self.accounted or Accounted("", "", 0.0, 0.0)
        kinds = (("explains", "logits"), ("explains", "answers"), ("keeps", "answers"), ("", ""))
        return ORDER.index(self.standing), kinds.index((said.verb, said.of)), -said.share

    @property
    def accounted(self) -> Accounted | None:
        """The share that a headline may name; None where nothing was measured."""
        matches = [t for t in self.tests if t.kind == "match" and t.verdict != "untested"]
        if matches:
            match = min(matches, key=lambda one: one.value)
            assert match.effect is not None and match.effect.interval is not None
            return Accounted("explains", "logits", match.value, match.effect.interval[0])
        shares = [(*one.kept, one.kind) for one in self.tests if one.of and one.kept is not None]
        program = self.explanation.over_sources
        constant = program is not None and not program.groups  # chance of it is all
        for kinds, more, verb in (
            (COMPUTES, ("path patching",), "explains"),
            (("interchange",), (), "keeps"),
            (("path patching",), (), "keeps"),
        ):
            asked = [one for one in shares if one[2] in (*kinds, *more)]
            if any(kind in kinds for *_, kind in asked):
                share, low, kind = min(asked, key=lambda one: one[:2])
                product = "but not how it multiplies" * bool(program and program.function.words)
                how = filter(None, ("above chance" * (not constant), HOW[kind], product))
                return Accounted(verb, "answers", share, max(low, 0.0), ", ".join(how))
        return None

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        told = [one.headline.rstrip(".") for one in self.tests if not one.of]
        answer = f"{self.scope.answers or 'answer'} = "
        return {
            "family": self.explanation.family,
            "name": str(self.explanation.name).replace("answer = ", answer, 1),
            "short": self.explanation.short.replace("answer = ", answer, 1),
            "standing": self.standing,
            "reason": self.reason,
            "program": "\n".join([program_text(self.explanation), *told]),
            "parts": [
                {"name": part.name, "site": str(part.site), "blocks": list(part.blocks)}
                for part in self.explanation.parts
            ],
            "routes": [str(route) for route in self.explanation.routes],
            "claims": [vars(one) for one in self.claims],
            "accuracy": to_jsonable(self.accuracy),
            "chance": to_jsonable(self.chance),
            "n": self.n,
            "scope": to_jsonable(vars(self.scope)),
            "accounted": None if self.accounted is None else vars(self.accounted),
            "missing": list(self.missing),
            "notes": list(self.explanation.notes),
            "superfluous": list(self.superfluous),
            "followed": {name: list(cells) for name, cells in self.followed.items()},
            "tests": [test.to_dict() for test in self.tests],
        }


def unaudited(bench: Bench, explanation: Explanation, standing: str, reason: str) -> Audit:
    """The audit of an explanation of which nothing is tested."""
    return Audit(
        explanation,
        standing,
        accuracy=bench.accuracy,
        chance=bench.chance,
        reason=reason,
        n=len(bench.judged),
        scope=bench.scope,
    )


def judge(bench: Bench, explanation: Explanation, tests: Sequence[Test]) -> Audit:
    """The audit of an explanation from its tests."""
    routes = [one for one in explanation.routes if one.key is not None]
    claimed = map(str, (*explanation.parts, *routes, *explanation.copies))
    claims = tuple(standing_of(claim, tests) for claim in claimed)
    standing, reason = combine(claims, tests)
    tests = [
        replace(one, scope=replace(one.scope, drawn=bench.scope.drawn, answers=bench.scope.answers))
        for one in tests
    ]
    return Audit(
        explanation,
        standing,
        tuple(tests),
        claims,
        bench.accuracy,
        bench.chance,
        superfluous=tuple(t.target for t in needless(tests)),
        reason=reason,
        n=len(bench.judged),
        scope=bench.scope,
    )


def standing_of(claim: str, tests: Iterable[Test]) -> Standing:
    """The standing of one claim: what the worst of its tests says, of those that could fail.

    A block that is not needed speaks against the explanation, not against its part. Of a variable
    that is no more than a name of the answer nothing is said.
    """
    own = [one for one in tests if claim in one.of]
    resolved = [one for one in own if one.kind == "resolution"]
    idle = {one.target for one in needless(own)}
    first = dict[str, Test]()  # standing → the first test that has it
    for one in own:
        said = one.verdict == "no" or not one.refutes
        if said and not one.block and not (one.kind == "partial" and one.target in idle):
            first.setdefault(one.standing, one)
    order = ["wrong", "incomplete", "unclear", "stands", "untested"]
    for one in resolved:
        if one.verdict == "untested":
            first["untested"] = one
            order.insert(2, "untested")
    known = "".join(one.caveat for one in resolved)
    for name in order:
        if name in first:
            return Standing(claim, name, first[name].reason, known)
    return Standing(claim, "untested", "no test of it could fail")


def needless(tests: Iterable[Test]) -> list[Test]:
    """The tests of blocks whose need is denied or not shown."""
    return [one for one in tests if one.block and one.verdict != "yes"]


def combine(claims: Sequence[Standing], tests: Sequence[Test]) -> tuple[str, str]:
    """Standing of the whole, and the reason: that of its worst claim; then of what is needless or
    untested.
    """
    for name in ("wrong", "incomplete", "unclear"):
        for one in claims:
            if one.standing == name:
                return name, one.reason
    if not any(one.standing == "stands" for one in claims):
        return "untested", next((one.reason for one in claims), "it claims nothing")
    said = []
    if idle := [one.claim for one in claims if one.standing == "untested"]:
        said.append(f"untested: {', '.join(idle)}")
    for word, label in (("needless", "not needed"), ("unclear", "not shown to be needed")):
        if named := [one.target for one in needless(tests) if one.standing == word]:
            said.append(f"{label}: {', '.join(named)}")
    return ("superfluous", "; ".join(said)) if said else ("stands", "")
