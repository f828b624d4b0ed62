"""Audits as text: a line for each claim and test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from mechint.account import explained
from mechint.account.terminal import MAX_WIDTH, MIN_WIDTH, wrap_line

if TYPE_CHECKING:
    from mechint.explanation import Audit, Test

STYLES = {
    "stands": "bold green",
    "superfluous": "bold yellow",
    "unclear": "bold yellow",
    "incomplete": "bold yellow",
}
INDENT = 15


def audit_text(audit: Audit, width: int = 100) -> Text:
    """One audit: standing, claims and tests a line each, what is unaccounted, what is missing."""
    width = min(max(width, MIN_WIDTH), MAX_WIDTH)
    out = Text()

    def add(text: str, style: str = "", indent: int = INDENT) -> None:
        for line, look in wrap_line(text, width, style, " " * indent):
            out.append(line.rstrip() + "\n", look or None)

    add(f"program  {audit.explanation.name}", "bold", 9)
    if audit.explanation.over_sources is not None:
        for line in audit.explanation.over_sources.lines():
            add(f"         {line}", "", 13)
    standing = f"standing {audit.standing.upper()}"
    add(standing + (f": {audit.reason}" if audit.reason else ""), STYLES.get(audit.standing, ""))
    if len(audit.claims) > 1:
        for claim in audit.claims:
            why = f", {claim.known}" if claim.known else ""
            why += f": {claim.reason}" if claim.reason else ""
            add(f"  {claim.standing:<12} {claim.claim}{why}", STYLES.get(claim.standing, ""))
    for test in audit.tests:
        if test.kind not in ("partial", "need", "resolution"):
            add(_line(test), "" if test.standing in ("stands", "untested") else "yellow")
    for line in _blocks(audit):
        add(line)
    if audit.missing:
        add(f"  {'missing':<12} {', '.join(audit.missing)}")
    for note in audit.explanation.notes:
        add(f"  {'note':<12} {note}")
    if audit.unaccounted:
        logits = audit.unaccounted.get("logits")
        shares = [] if logits is None else [f"{logits:.1%} of the logits' variance"]
        shares.append(f"{audit.unaccounted['accuracy']:.1%} of the answers")
        add(f"unaccounted: {', '.join(shares)}")
    add(f"{audit.n:,} inputs judged, as many fitted; {audit.seconds:.1f} s", "dim")
    out.rstrip()
    return out


def _line(test: Test) -> str:
    """A test: its number, what it is held against, and its standing where it does not pass."""
    if test.decision.verdict == "untested":
        return f"  {test.kind:<12} {test.target}: untested, {test.decision.reason}"
    unit = {"match": "R²", "necessity": "left"}.get(test.kind, "accuracy")
    held = {"null": "null", "rival": "right answer"}
    others = {words: getattr(test, name, None) for name, words in held.items()}
    added = ", ".join(f"{words} {one.value:.3f}" for words, one in others.items() if one)
    line = f"  {test.kind:<12} {test.target}   {unit} {test.value:.3f}"
    line += f"   ({added})" if added else ""
    if test.kind == "attention" or test.decision:
        return line
    return f"{line}   {test.standing.upper()}: {test.decision.reason}"


def _blocks(audit: Audit) -> Iterator[str]:
    """What the tests of single blocks came to, a line for each kind."""
    changes = [one.value for one in audit.tests if one.kind == "partial"]
    if changes:
        said = f"R² of the predicted change {min(changes):.3f} to {max(changes):.3f}"
        yield f"  {'one block':<12} {said}"
    needs = [one for one in audit.tests if one.kind == "need"]
    for standing, words in (("needless", "not needed"), ("unclear", "not shown to be needed")):
        if named := [one.target for one in needs if one.standing == standing]:
            yield f"  {'need':<12} {words}: {', '.join(named)}"


def audits_text(audits: Sequence[Audit], title: str, width: int = 100) -> Text:
    """All audits of one model, best first, under its title."""
    out = Text(f"{title}\n", "bold")
    name = audits[0].explanation.name
    if (verdict := explained(name, [audits[0].to_dict()])) != name:
        for line, _ in wrap_line(verdict[0].upper() + verdict[1:], width, "", " " * 2):
            out.append(f"{line}\n", "bold green" if audits[0].standing == "stands" else "bold")
    out.append("\n")
    for audit in audits:
        out.append_text(audit_text(audit, width))
        out.append("\n\n")
    out.rstrip()
    return out
