"""Audits of explanations as text: what was tested in words, a line each, then what else was tried.

Everything is drawn from the JSON values of audits; tests are findings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.text import Text

from mechint.decide.words import NOT_FALSE
from mechint.errors import percent
from mechint.explanation.records import HEADLINES, Test
from mechint.probe.text import MAX_WIDTH, MIN_WIDTH, wrap_line

if TYPE_CHECKING:
    from mechint.explanation import Audit

STYLES = {
    "stands": "bold green",
    "superfluous": "bold yellow",
    "unclear": "bold yellow",
    "incomplete": "bold yellow",
    "wrong": "bold red",
}
SAYS = {
    "stands": "RUNS",
    "superfluous": "RUNS",
    "unclear": "MAY RUN",
    "incomplete": "NOT SHOWN TO RUN",
    "incomplete, some": "RUNS IN PART",
    "wrong": "DOES NOT RUN",
    "untested": "NOT TESTED",
    "untested, some": "TESTED IN PART",
    "refused": "NONE",
}
"""Standing of an explanation, and that some tests passed → the words before its program."""
LEGEND = "✓ passed   ○ not enough   ✗ wrong   – unclear   · nothing could fail"
TOKENS = "t[0]: the first token, t[-1]: the last"
APART = ("faithfulness", "path patching", "composed inputs", "coverage")
"""Kinds whose tests have a line each."""
UNSHOWN = ("partial", "resolution")
"""Kinds that have a line of their own only where something is missing."""
NAMED = 8
"""Blocks that the name of a program lists, at most."""
WORDS = 46
"""Columns of what a test shows, at most."""


def shown_tests(audit: Mapping[str, Any]) -> list[Test]:
    """The tests of an audit that judge its claims, the kinds that bear most first. Those of one
    kind and standing are one, the least favorable, with the targets of all.
    """
    grouped: dict[tuple[str, str, str], list[Test]] = {}
    for one in (Test.from_dict(held) for held in audit["tests"]):
        if one.of and not one.block and (one.kind not in UNSHOWN or one.standing == "incomplete"):
            own = one.target if one.kind in APART else ""
            grouped.setdefault((one.kind, one.standing, own), []).append(one)
    order = list(HEADLINES)
    return [together(grouped[key]) for key in sorted(grouped, key=lambda one: order.index(one[0]))]


def together(tests: Sequence[Test]) -> Test:
    """Tests of one kind and standing as one, the least favorable."""
    worst = min(tests, key=lambda one: -one.value if one.kind == "completeness" else one.value)
    names = list(dict.fromkeys(one.target for one in tests))
    if len(names) < 2:
        return worst
    listed = ", ".join("both" if " and " in name else name for name in names)
    if worst.standing != "stands":  # the number is of the worst alone
        listed = f"{worst.target} (worst of {len(names)})"
    target = re.compile(rf"(?<!\w){re.escape(worst.target)}(?!\w)", re.IGNORECASE)
    said = target.sub(lambda _: listed, worst.headline, count=1)
    claims = tuple(dict.fromkeys(claim for one in tests for claim in one.of))
    return replace(worst, headline=f"{said[0].upper()}{said[1:]}", target=listed, of=claims)


def beside(test: Test) -> str:
    """The null of a test, and the right answer alone, as shares."""
    held = dict(test.details)
    if test.effect is not None and test.effect.baseline is not None:
        held = {test.effect.baseline_label: test.effect.baseline, **held}
    return ", ".join(f"{name} {percent(value, 0)}" for name, value in held.items())


def legend(audit: Mapping[str, Any]) -> str:
    """The meaning of marks, and of what the name of a program says of tokens."""
    return f"{LEGEND}   {TOKENS}" if "t[" in audit["name"] else LEGEND


def passed_tests(audit: Mapping[str, Any]) -> tuple[int, int]:
    """The number of tests of its claims that passed, and of all."""
    tested = [one["standing"] for one in audit["tests"] if one["of"]]
    return tested.count("stands"), len(tested)


def says(audit: Mapping[str, Any]) -> str:
    """The words before the program of an audit, in part only where some test passed."""
    some = ", some" * (passed_tests(audit)[0] > 0)
    return SAYS.get(f"{audit['standing']}{some}", SAYS[audit["standing"]])


def accounted_text(audit: Mapping[str, Any]) -> str:
    """The share that an explanation accounts for, with the lower end of its interval, in words; ""
    where none was measured, or where it is false.
    """
    found = audit["accounted"]
    if found is None or audit["standing"] not in NOT_FALSE:
        return ""
    least = math.floor(100 * found["at_least"] + 1e-9)  # a bound is not rounded up
    said = f"{found['verb']} {found['share']:.0%} (≥{least}%) of its {found['of']}"
    return f"{said} {found['how']}".rstrip()


def audit_text(audit: Audit | Mapping[str, Any], width: int = 100) -> Text:
    """One audit: its program and standing, a line for each kind of test, what it explains."""
    width = min(max(width, MIN_WIDTH), MAX_WIDTH)
    held = audit if isinstance(audit, Mapping) else audit.to_dict()
    out = Text()

    def add(text: str, style: str = "", indent: int = 4) -> None:
        for line, look in wrap_line(text, width, style, " " * indent):
            out.append(line.rstrip() + "\n", look or None)

    standing, (passed, tested) = held["standing"], passed_tests(held)
    style = STYLES.get(standing, "")
    add(says(held) + f": {held['name']}" * (held["family"] != "none"), style)
    count = f", {passed} of {tested} tests passed" if tested else ""
    add(f"audit: {standing}{count}" + (f"; {held['reason']}" if held["reason"] else ""), style)
    if "return " in held["program"]:
        for line in held["program"].splitlines():
            add(f"      {line}", "", 10)
    for part in held["parts"]:
        if len(part["blocks"]) > NAMED:
            add(f"    {part['name']} by {', '.join(part['blocks'])}", "", 6)
    for claim in held["claims"]:
        if claim.get("known"):
            add(f"    {claim['claim']}: {claim['known']}", "", 6)
    tests = shown_tests(held)
    wide = min(WORDS, max((len(one.headline) - 1 for one in tests), default=0))
    for one in tests:
        look = {"wrong": "red", "stands": ""}.get(one.standing, "yellow")
        others = f"   ({beside(one)})" if beside(one) else ""
        why = f"   {one.reason}" if one.reason and held["reason"] != one.reason else ""
        value = "below 0%" if one.value < 0 else percent(one.value, 0)
        shown = f"  {one.mark} {one.headline.rstrip('.'):<{wide}}  {value}"
        add(f"{shown}{others}{why}".rstrip(), look, 6)
    for one in (Test.from_dict(test) for test in held["tests"] if not test["of"]):
        right = f"{percent(one.value, 0)} right with that of others"
        add(f"    {one.headline.rstrip('.')} ({right})", "", 6)
    if held["missing"]:
        add(f"    missing: {', '.join(held['missing'])}", "yellow", 6)
    for note in held["notes"]:
        add(f"    note: {note}", "", 6)
    if said := accounted_text(held):
        add(f"    {said}", "", 6)
    out.rstrip()
    return out


def by_answer(audits: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The audits of each answer of an example, in the order in which its first one stands."""
    found = dict[str, list[Mapping[str, Any]]]()
    for one in audits:
        found.setdefault(one["scope"]["answers"], []).append(one)
    return list(found.values())


def audits_text(audits: Sequence[Audit | Mapping[str, Any]], title: str, width: int = 100) -> Text:
    """The best audit of each answer under the title of the model, each followed by a line for every
    other that was tried.
    """
    held = [one if isinstance(one, Mapping) else one.to_dict() for one in audits]
    groups, width = by_answer(held), min(max(width, MIN_WIDTH), MAX_WIDTH)
    out = Text().append("\n".join(line for line, _ in wrap_line(title, width, "")), "bold")

    def add(text: str, indent: str = "") -> None:
        for line, _ in wrap_line(text, width, "", indent):
            out.append(f"\n{line.rstrip()}", "dim")

    for best, *others in groups:
        out.append(f"\n\n{best['scope']['answers']}\n" if len(groups) > 1 else "\n\n", "bold")
        out.append_text(audit_text(best, width))
        for place, one in enumerate(others):
            why = f": {one['reason']}" if one["reason"] else ""
            head = "also tried: " if place == 0 else " " * 12
            add(f"{head}{one['name']}: {one['standing']}{why}", " " * 14)
    best = groups[0][0]
    drawn = best["scope"]["drawn"]
    alone = len(groups) == 1 and f"; {best['scope']['answers']} alone"
    told = f"{best['n']:,} inputs" + ("" if drawn is None else ", as many fitted")
    told += (alone or "") * bool(best["scope"]["answers"])
    add(legend(best))
    edits = "; what sources bring is exchanged with later heads held" * (
        best["family"] == "induced"
    )
    judged = f"judged on {'all ' * (drawn is None)}{told}{edits}; " * bool(best["tests"])
    add(f"{judged}words: mechint help WORD")
    return out
