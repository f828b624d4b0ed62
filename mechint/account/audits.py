"""Audits as text: fifteen lines an explanation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from mechint.account import explained
from mechint.account.terminal import MAX_WIDTH, MIN_WIDTH, wrap_line

if TYPE_CHECKING:
    from mechint.explanation._audit import Audit, Test

STYLES = {"stands": "bold green", "incomplete": "bold yellow", "superfluous": "bold yellow"}


def audit_text(audit: Audit, width: int = 100) -> Text:
    """One audit: standing, tests a line each, what is unaccounted, what is missing."""
    width = min(max(width, MIN_WIDTH), MAX_WIDTH)
    out = Text()

    def add(text: str, style: str = "", indent: str = " " * 15) -> None:
        for line, look in wrap_line(text, width, style, indent):
            out.append(line.rstrip() + "\n", look or None)

    add(f"program  {audit.explanation.name}", "bold", " " * 9)
    standing = f"standing {audit.standing.upper()}"
    add(standing + (f": {audit.reason}" if audit.reason else ""), STYLES.get(audit.standing, ""))
    kinds = (
        "match",
        "agreement",
        "refill",
        "resample",
        "necessity",
        "interchange",
        "route",
        "link",
    )
    for kind in (*kinds, "attention"):
        for test in (one for one in audit.tests if one.kind == kind):
            add(_test_line(test), "yellow" if test.status == "failed" else "")
    blocks = [one for one in audit.tests if one.kind == "partial"]
    if blocks:
        values = [one.value for one in blocks]
        add(
            f"  {'one block':<12} R² of the predicted change {min(values):.3f} to {max(values):.3f}"
        )
    weak = {t.target: t.null for t in audit.tests if t.kind == "minimality" and (t.null or 0) < 10}
    if weak:
        add(f"  {'weak':<12} " + ", ".join(f"{n} ({r:.1f} × null)" for n, r in weak.items()))
    if audit.missing:
        add(f"  {'missing':<12} {', '.join(audit.missing)}")
    for note in audit.explanation.notes:
        add(f"  {'not found':<12} {note}")
    if audit.unaccounted:
        logits = audit.unaccounted.get("logits")
        shares = [] if logits is None else [f"{logits:.1%} of the logits' variance"]
        shares.append(f"{audit.unaccounted['accuracy']:.1%} of the answers")
        add(f"unaccounted: {', '.join(shares)}")
    add(f"{audit.n:,} inputs judged, as many fitted; {audit.seconds:.1f} s", "dim")
    out.rstrip()
    return out


def _test_line(test: Test) -> str:
    if math.isnan(test.value):
        why = "no other than the right answer" if test.kind == "match" else "it changes no answer"
        return f"  {test.kind:<12} {test.target}: vacuous, {why}"
    unit = "R²" if test.kind == "match" else "left" if test.kind == "necessity" else "accuracy"
    more = [f"null {test.null:.3f}"] if test.null is not None else []
    more += [f"right answer {test.rival:.3f}"] if test.rival is not None else []
    added = f"   ({', '.join(more)})" if more else ""
    if test.kind == "attention":
        return f"  {test.kind:<12} {test.status}: {test.target}   accuracy {test.value:.3f}"
    failed = f"   FAILED (bound {test.bound:.2f})" if test.status == "failed" else ""
    return f"  {test.kind:<12} {test.target}   {unit} {test.value:.3f}{added}{failed}"


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
