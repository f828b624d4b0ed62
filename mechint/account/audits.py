"""Audits of explanations as text: what was tested in words, a line each, then what else was tried.

Everything is drawn from the JSON values of audits, which a run keeps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from mechint.account.terminal import MAX_WIDTH, MIN_WIDTH, wrap_line
from mechint.probe.results import Effect, Finding

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
    "incomplete": "RUNS IN PART",
    "wrong": "DOES NOT RUN",
    "untested": "NOT TESTED",
    "refused": "NONE",
}
"""Standing of an explanation → the words before its program."""
MARKS = {"stands": "✓", "incomplete": "○", "wrong": "✗", "unclear": "–", "untested": "·"}
"""Standing of a test → its mark."""
LEGEND = "✓ passed   ○ not enough   ✗ wrong   – unclear   · nothing could fail"
TOKENS = "t[0]: the first token, t[-1]: the last"
KINDS = {
    "path patching": "{}, which suffices",
    "interchange": "swap {}: the answer follows",
    "moved key": "move the key of {}: the answer follows",
    "composed inputs": "mix {} of inputs: the answer follows",
    "match": "{}: predicts the logits",
    "faithfulness": "enough for the answer: {}",
    "causal scrubbing": "{} of another input with the same values: the answer stays",
    "completeness": "exchange {}: the answer is lost",
    "attention": "{}, most of all",
    "minimality": "{} raises the token there",
    "coverage": "the answer is {}",
    "beyond": "{}: read beyond the answer",
}
"""Kind of test → what it shows where it passes, of its target; those that bear most come first."""
TARGETS = {
    "all groups": "what the program reads",
    "all prompts": "the program's",
    "all sources": "the sources",
}
"""Target of a test → its words."""
UNSHOWN = ("partial", "resolution")
"""Kinds that have no line of their own."""
APART = ("faithfulness", "path patching", "composed inputs", "coverage")
"""Kinds whose tests have a line each."""
NAMED = 8
"""Blocks that the name of a program lists, at most."""
WORDS = 46
"""Columns of what a test shows, at most."""


@dataclass(frozen=True)
class Line:
    """One test in words, or several of one kind that came out alike.

    mark, standing: of the test; words: what passing it shows; shares: what was measured, 0–1;
    beside: what these stand against; reason: of one that does not pass. of: the claims it is
    about; null: the largest; label: of the shares.
    """

    standing: str
    words: str
    shares: tuple[float, ...]
    beside: str = ""
    reason: str = ""
    of: tuple[str, ...] = ()
    null: float | None = None
    label: str = "share"

    @property
    def mark(self) -> str:
        """The mark of its standing."""
        return MARKS.get(self.standing, "–")

    @property
    def finding(self) -> Finding:
        """The line as a finding, with the least of the shares beside the largest null."""
        effect = Effect(min(self.shares), "", self.label, self.null, "others")
        return Finding(f"{self.words[0].upper()}{self.words[1:]}.", "yes", effect)

    @property
    def numbers(self) -> str:
        """The shares as percentages.

        >>> Line("stands", "swap x or y, the answer follows", (0.995, 1.0)).numbers
        '99.5%, 100%'
        """
        return ", ".join(map(share_text, self.shares))


def share_text(share: float) -> str:
    """A share in percent, with a decimal where it is near an end but not at it.

    >>> share_text(0.9952), share_text(0.937), share_text(1.0)
    ('99.5%', '94%', '100%')
    """
    near = 0 < min(abs(share), abs(1 - share)) < 0.01
    text = f"{share:.1%}" if near else f"{share:.0%}"
    return {"-0%": "0%", "100.0%": "100%", "0.0%": "0%", "-0.0%": "0%"}.get(text, text)


def lines_of(audit: Mapping[str, Any]) -> list[Line]:
    """The tests of an audit that judge its claims, those of one kind and standing in one line, the
    kinds that bear most first.
    """
    grouped: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for test in audit["tests"]:
        if test["kind"] not in UNSHOWN and test["of"] and test["form"] != "need":
            own = test["target"] if test["kind"] in APART else ""
            key = test["kind"], test["standing"], own
            grouped.setdefault(key, []).append(test)
    found, order = [], list(KINDS)
    for kind, standing, own in sorted(
        grouped, key=lambda one: order.index(one[0]) if one[0] in KINDS else len(order)
    ):
        tests = grouped[kind, standing, own]
        targets = [TARGETS.get(name, name) for name in (str(test["target"]) for test in tests)]
        if kind == "path patching" and not own.startswith("what "):
            one = len(tests[0]["of"]) == 1
            targets = list(tests[0]["of"]) if one else [f"attention of {own} as named"]
        of = dict.fromkeys(claim for test in tests for claim in test["of"])
        reasons = dict.fromkeys(test["reason"] for test in tests if test["reason"])
        shares = [test["value"] for test in tests if isinstance(test["value"], float)]
        kept = kind == "completeness"  # what is left of the answers
        found.append(
            Line(
                standing,
                spelled(audit, KINDS.get(kind, f"{kind}: {{}}").format(_listed(targets))),
                tuple(1 - one if kept else one for one in shares if one == one),
                _beside(tests),
                "" if standing == "stands" else next(iter(reasons), ""),
                tuple(of),
                max((test["null"]["value"] for test in tests if test.get("null")), default=None),
                {"match": "R²", "completeness": "share lost"}.get(kind, "share right"),
            )
        )
    return found


def spelled(audit: Mapping[str, Any], text: str) -> str:
    """A text with what variables of the audit's program are in place of v0, v1_1 …

    >>> spelled({"program": "v1_1 = t[1]  # L0H0\\nreturn v1_1"}, "swap v1_1")
    'swap t[1]'
    """
    found = re.findall(r"^(v[\d_]+) = (.+?)(?:  #.*)?$", audit["program"], re.MULTILINE)
    is_ = dict(found)
    return re.sub(r"\bv\d[\d_]*", lambda one: is_.get(one[0], one[0]), text)


def _listed(targets: Sequence[str]) -> str:
    """Names of what is alike in a line: "x, y, both"."""
    names = list(dict.fromkeys(targets))
    return ", ".join("both" if " and " in one and len(names) > 1 else one for one in names)


def _beside(tests: Sequence[Mapping[str, Any]]) -> str:
    """The nulls of tests and the right answer alone, as shares."""
    said = []
    for name, words in (("null", "others"), ("right_answer", "the right answer alone")):
        held = [test[name]["value"] for test in tests if test.get(name)]
        if held:
            said.append(f"{words} {share_text(max(held))}")
    return ", ".join(said)


def legend(audit: Mapping[str, Any]) -> str:
    """The meaning of marks, and of what the name of a program says of tokens."""
    return f"{LEGEND}   {TOKENS}" if "t[" in audit["name"] else LEGEND


def attention_lines(audit: Mapping[str, Any]) -> Iterator[str]:
    """Dependence of attention on the input, a line for each test of it."""
    for test in audit["tests"]:
        if test["kind"] == "attention" and not test["of"]:
            fixed = f"{share_text(test['value'])} right with that of another input"
            depends = {"yes": "not needed", "no": "needed"}.get(test["verdict"], "unclear")
            yield f"attention of {test['target']}: {depends} ({fixed})"


def left_text(audit: Mapping[str, Any]) -> str:
    """Share left unexplained, or kept where the program does not compute what is counted;
    "" where that is not known.
    """
    left, found = audit["unaccounted"], audit.get("accounted")
    if found is not None and found["verb"] != "explains":
        return f"{found['verb']} {share_text(found['share'])} of its {found['of']} {found['how']}"
    parts = [f"{share_text(left['logits'])} of the logits"] if "logits" in left else []
    parts += [f"{share_text(left['accuracy'])} of the answers"] if "accuracy" in left else []
    return f"not explained: {', '.join(parts)}" if parts else ""


def audit_text(audit: Audit | Mapping[str, Any], width: int = 100) -> Text:
    """One audit: its program and standing, a line for each kind of test, what is not explained."""
    width = min(max(width, MIN_WIDTH), MAX_WIDTH)
    held = audit if isinstance(audit, Mapping) else audit.to_dict()
    out = Text()

    def add(text: str, style: str = "", indent: int = 4) -> None:
        for line, look in wrap_line(text, width, style, " " * indent):
            out.append(line.rstrip() + "\n", look or None)

    standing, tested = held["standing"], [one for one in held["tests"] if one["of"]]
    passed = sum(one["standing"] == "stands" for one in tested)
    style = STYLES.get(standing, "")
    add(f"{SAYS[standing]}: {held['name']}", style)
    count = f", {passed} of {len(tested)} tests passed" if tested else ""
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
    lines = lines_of(held)
    wide = min(WORDS, max((len(line.words) for line in lines), default=0))
    for line in lines:
        look = {"wrong": "red", "stands": ""}.get(line.standing, "yellow")
        beside = f"   ({line.beside})" if line.beside else ""
        told = not line.reason or held["reason"].endswith(line.reason)
        shown = f"  {line.mark} {line.words:<{wide}}  {line.numbers}{beside}"
        shown += "" if told else f"   {line.reason}"
        add(shown.rstrip(), look, 6)
    for text in attention_lines(held):
        add(f"    {text}", "", 6)
    if held["missing"]:
        add(f"    missing: {', '.join(held['missing'])}", "yellow", 6)
    for note in held["notes"]:
        add(f"    note: {note}", "", 6)
    if left := left_text(held):
        add(f"    {left}", "", 6)
    out.rstrip()
    return out


def audits_text(audits: Sequence[Audit | Mapping[str, Any]], title: str, width: int = 100) -> Text:
    """The best audit of one model under its title, then a line for each other that was tried."""
    best, *others = [one if isinstance(one, Mapping) else one.to_dict() for one in audits]
    out = Text(f"{title}\n\n", "bold")
    out.append_text(audit_text(best, width))
    for place, one in enumerate(others):
        why = f": {one['reason']}" if one["reason"] else ""
        head = "also tried: " if place == 0 else " " * 12
        text = f"{head}{one['name']}: {one['standing']}{why}"
        for line, _ in wrap_line(text, min(max(width, MIN_WIDTH), MAX_WIDTH), "", " " * 14):
            out.append(f"\n{line.rstrip()}", "dim")
    told = f"{best['n']:,} inputs judged, as many fitted"
    for text in (legend(best), f"{told}; words: docs/explanations.md"):
        for line, _ in wrap_line(text, min(max(width, MIN_WIDTH), MAX_WIDTH), "", ""):
            out.append(f"\n{line.rstrip()}", "dim")
    return out
