"""Standings: of each claim from its tests, of an explanation from its claims."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mechint.decide.words import STANDINGS
from mechint.explanation.explanation import Explanation, program_text
from mechint.explanation.measure import Bench
from mechint.explanation.records import Determination, Need, Resolution, Share, Test
from mechint.system.jsonable import to_jsonable

ORDER = tuple(STANDINGS)
"""Standings of explanations, best first."""
COMPUTES = ("coverage", "composed inputs")
"""Tests of a program that computes the answers that are counted."""
KEPT = ("faithfulness", "interchange", "path patching", *COMPUTES)
"""Tests whose shares say how much of the answers an explanation accounts for."""


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
    counted; how: under what, of what is kept; brief: the same without what is named. share,
    at_least: above chance, and the lower end of its interval.
    """

    verb: str
    of: str
    share: float
    at_least: float
    how: str = ""
    brief: str = ""


@dataclass(frozen=True)
class Audit:
    """An explanation with what its tests came to.

    standing: one of `ORDER`. claims: the standing of each part, route and copy.
    unaccounted: shares of the logits' variance and of the answers, above chance, that the
    explanation leaves; at_most: the upper ends of their intervals. missing: the largest effects
    that no part names. superfluous: blocks whose need is denied or not shown. coverage: the classes
    of inputs of which the program gives the least of the model's answers, in words.
    """

    explanation: Explanation
    standing: str
    tests: tuple[Test, ...] = ()
    claims: tuple[Standing, ...] = ()
    accuracy: float = math.nan
    chance: float = math.nan
    unaccounted: dict[str, float] = field(default_factory=dict[str, float])
    at_most: dict[str, float] = field(default_factory=dict[str, float])
    missing: tuple[str, ...] = ()
    superfluous: tuple[str, ...] = ()
    reason: str = ""
    coverage: tuple[str, ...] = ()
    n: int = 0
    seconds: float = 0.0
    path: str = ""

    def value(self, kind: str, target: str | None = None) -> float:
        """The least favorable value of the tests of a kind; NaN where there is none."""
        found = [t for t in self.tests if t.kind == kind and target in (None, t.target)]
        values = [t.value for t in found if not math.isnan(t.value)]
        below = any(isinstance(t, Share) and t.bound.side == "below" for t in found)
        return (max if below else min)(values, default=math.nan)

    @property
    def rank(self) -> tuple[int, bool, float]:
        """Place in a list of audits: standing first, then programs that compute what is counted,
        then what is left of logits and accuracy.
        """
        left = {"logits": 1.0, "accuracy": 1.0, **self.unaccounted}
        computes = self.accounted is not None and self.accounted.verb == "explains"
        return ORDER.index(self.standing), not computes, left["logits"] + left["accuracy"]

    @property
    def accounted(self) -> Accounted | None:
        """The share that a headline may name; None where nothing was measured."""
        if (match := worst_match(self.tests)) is not None:
            return Accounted("explains", "logits", match.value, match.found.low)
        shares = shares_of_claims(self.tests)
        named = ", ".join(dict.fromkeys(n for p in self.explanation.parts for n in p.variables))
        for kinds, more, verb, brief, of in (
            (COMPUTES, ("path patching",), "explains", "", ""),
            (("interchange",), (), "keeps", "under interchange", f" of {named}"),
            (("path patching",), (), "keeps", "with this attention alone", ""),
        ):
            if any(one.kind in kinds for one in shares):
                asked = (one for one in shares if one.kind in (*kinds, *more))
                worst = min(asked, key=lambda one: one.kept)
                low = max(worst.kept_at_least, 0.0)
                return Accounted(verb, "answers", worst.kept, low, brief + of, brief)
        return None

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "family": self.explanation.family,
            "name": str(self.explanation.name),
            "short": self.explanation.short,
            "standing": self.standing,
            "reason": self.reason,
            "program": "\n".join([program_text(self.explanation), *self._attention()]),
            "parts": [
                {"name": part.name, "site": str(part.site), "blocks": list(part.blocks)}
                for part in self.explanation.parts
            ],
            "routes": [str(route) for route in self.explanation.routes],
            "claims": [vars(one) for one in self.claims],
            "accuracy": to_jsonable(self.accuracy),
            "chance": to_jsonable(self.chance),
            "n": self.n,
            "unaccounted": self.unaccounted,
            "unaccounted_at_most": self.at_most,
            "accounted": None if self.accounted is None else vars(self.accounted),
            "missing": list(self.missing),
            "notes": [*self.explanation.notes, *self.coverage],
            "superfluous": list(self.superfluous),
            "tests": [test.to_dict() for test in self.tests],
            "seconds": self.seconds,
        }

    def _attention(self) -> list[str]:
        """A line for every test of whether attention depends on the input."""
        said = {"yes": "may be that of any other input", "no": "depends on the input"}
        tests = [test for test in self.tests if test.kind == "attention" and not test.of]
        return [
            f"{one.target}: attention "
            f"{said.get(one.decision.verdict, 'may or may not depend on the input')}"
            for one in tests
        ]


def judge(bench: Bench, explanation: Explanation, tests: Sequence[Test]) -> Audit:
    """The audit of an explanation from its tests."""
    claims = tuple(standing_of(claim, tests) for claim in claims_of(explanation))
    standing, reason = combine(claims, tests)
    unaccounted, at_most = left(tests)
    return Audit(
        explanation,
        standing,
        tuple(tests),
        claims,
        bench.accuracy,
        bench.chance,
        unaccounted,
        at_most,
        superfluous=tuple(t.target for t in needless(tests)),
        reason=reason,
        n=len(bench.judged),
    )


def claims_of(explanation: Explanation) -> list[str]:
    """The claims of an explanation: its parts, routes to a key, and copies."""
    routes = [one for one in explanation.routes if one.key is not None]
    return [str(one) for one in (*explanation.parts, *routes, *explanation.copies)]


def standing_of(claim: str, tests: Iterable[Test]) -> Standing:
    """The standing of one claim: what the worst of its tests says, of those that could fail.

    A block that is not needed speaks against the explanation, not against its part.
    """
    own = [one for one in tests if claim in one.of]
    finer = [one for one in own if isinstance(one, Resolution)]
    known = next((one.known for one in finer), "")
    own = [one for one in own if not isinstance(one, Resolution)]
    idle = {one.target for one in needless(own)}
    own = [one for one in own if not isinstance(one, Need)]
    own = [one for one in own if not one.refutes or one.decision.verdict == "no"]
    own = [one for one in own if not (one.kind == "partial" and one.target in idle)]
    for name, tests in (("wrong", own), ("incomplete", own), ("untested", finer), ("unclear", own)):
        for one in tests:
            if one.standing == name:
                return Standing(claim, name, one.reason, known)
    if any(one.standing == "stands" for one in own):
        return Standing(claim, "stands", "", known)
    reason = next((one.reason for one in own), "no test of it could fail")
    return Standing(claim, "untested", reason)


def needless(tests: Iterable[Test]) -> list[Need]:
    """The needs that are denied or not shown."""
    return [one for one in tests if isinstance(one, Need) and one.standing != "stands"]


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


def left(tests: Sequence[Test]) -> tuple[dict[str, float], dict[str, float]]:
    """Shares of answers, above chance, and of the logits' variance that are left; at most."""
    kept = [one for one in shares_of_claims(tests) if one.kind in KEPT]
    found = {"accuracy": 1 - min((one.kept for one in kept), default=0.0)}
    most = {"accuracy": 1 - min((one.kept_at_least for one in kept), default=0.0)}
    if (match := worst_match(tests)) is not None:
        found["logits"], most["logits"] = 1 - match.value, 1 - match.found.low
    return tuple({name: min(max(x, 0.0), 1.0) for name, x in one.items()} for one in (found, most))  # type: ignore[return-value]


def worst_match(tests: Iterable[Test]) -> Determination | None:
    """The least match of the logits, of those that could fail."""
    matches = [one for one in tests if isinstance(one, Determination) and one.kind == "match"]
    tested = [one for one in matches if one.decision.verdict != "untested"]
    return min(tested, key=lambda one: one.value, default=None)


def shares_of_claims(tests: Iterable[Test]) -> list[Share]:
    """The shares that judge a claim, of a model that answers better than chance."""
    return [t for t in tests if isinstance(t, Share) and t.of and not math.isnan(t.kept)]
