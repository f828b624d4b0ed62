"""Accounts as text: at most thirty lines, wrapped between words at any width from 60 to 160.

account_text(account, 100)        one model: quality, verdict, summary, evidence, what next
comparison_text([a, b], 100)      models side by side
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from string import ascii_uppercase
from typing import TYPE_CHECKING

from rich.text import Text

from mechint.errors import one_line, percent
from mechint.probe.text import (
    MARKS,
    MAX_WIDTH,
    MIN_WIDTH,
    NAME_WIDTH,
    finding_lines,
    styled,
    summary_lines,
    wrap_line,
)
from mechint.system.progress import command_lines

if TYPE_CHECKING:
    from mechint.account import Account, Quality

MAX_LINES = 30
MAX_UNCLEAR, MAX_QUALITY = 4, 3


def quality_text(quality: Sequence[Quality], gap: str = "   ") -> list[str]:
    """A line per output: accuracy on the test set and all, chance, loss; `gap` between them."""
    lines = []
    for one in quality[:MAX_QUALITY]:
        name = "" if len(quality) == 1 else f"{one.output}: "
        count = f"all {one.n:,}" if one.whole else f"on {one.n:,} answers"
        parts = [] if one.test is None else [f"test {percent(one.test)}"]
        steps, how = " after right steps" * one.steps, " by pair" * (one.top_1 is not None)
        parts += ["{} pairs, {} right both ways".format(*one.pairs)] if one.pairs else []
        parts += [f"{count}{steps} {percent(one.accuracy)}{how}", f"chance {percent(one.chance)}"]
        parts += [] if one.top_1 is None else [f"first choice {percent(one.top_1)}"]
        parts.append(f"loss {one.loss:.3g} nats (chance {one.chance_loss:.3g})")
        lines.append(name + gap.join(parts))
    if (more := len(quality) - MAX_QUALITY) > 0:
        mean = sum(one.accuracy for one in quality) / len(quality)
        lines.append(f"and {more} more outputs, mean accuracy {percent(mean)}")
    return lines


def account_text(account: Account, width: int = 100) -> Text:
    """The account of one model as styled text of at most `width` columns."""
    width = min(max(width, MIN_WIDTH), MAX_WIDTH)
    lines: list[tuple[str, str]] = []
    # what was looked for in vain goes before evidence, and evidence before the summary
    for most, looked_for, summary in (
        *((6, 4, True), (6, 2, True), (6, 1, True), (5, 1, True), (4, 1, True), (3, 0, True)),
        *((6, 1, False), (5, 1, False), (4, 1, False), (3, 1, False)),
    ):
        lines = list(_account_lines(account, width, most, looked_for, summary))
        if len(lines) <= MAX_LINES:
            break
    return styled(lines)


def _account_lines(
    account: Account, width: int, most: int, most_looked: int, summary: bool
) -> Iterator[tuple[str, str]]:
    """Lines and their styles, with at most so many findings as evidence, and of what was looked
    for, and the summary of the first result that has one where `summary`.
    """
    for warning in account.warnings:
        yield from wrap_line(f"warning: {warning}", width, "bold yellow")
    size = "" if account.parameters is None else f"{_count(account.parameters)} weights"
    step = "" if account.step is None else f"step {account.step:,}"
    # a long path loses its middle, so that all of this is two lines at most
    path = one_line(account.path, max(40, width - 30))
    about = " · ".join(filter(None, (path, step, size)))
    if len(account.title) + 3 + len(about) <= width:
        yield account.title + about.rjust(width - len(account.title)), "bold"
    else:
        yield from wrap_line(account.title, width, "bold")
        yield from wrap_line(about, width, "dim")
    for line in quality_text(account.quality):
        yield from wrap_line(line, width, "")
    yield "", ""
    caveat = f"   ({account.limits})" if account.limits else ""
    yield from wrap_line(_heading(account) + caveat, width, "bold")
    summaries = (list(summary_lines(result, width)) for result in account.ranked if summary)
    if first := next(filter(None, summaries), None):
        yield "", ""
        yield from ((line, "") for line in first)
    yield "", ""
    evidence, bearing = account.evidence[:most], account.bearing
    for place, (name, finding) in enumerate(evidence):
        if place == bearing and bearing:
            yield "  also seen", "dim"
        for line, style in finding_lines(name, finding, width, account.scope):
            yield line, style if place < bearing or not bearing else "dim"
    looked, unclear = account.findings("no"), account.findings("unclear")
    others = [*looked[:most_looked], *unclear[: MAX_UNCLEAR if not evidence else 2]]
    for name, finding in others:
        yield from finding_lines(name, finding, width)
    hidden = max(len(account.findings("yes")) - len(evidence), 0)
    hidden += len(looked) + len(unclear) - len(others)
    asked = "; ".join(f"{', '.join(what)} ({why})" for why, what in account.not_asked.items())
    if asked:
        yield from wrap_line(f"  not asked    {asked}", width, "dim", indent=" " * (NAME_WIDTH + 2))
    if account.assumed:
        told = f"  assumed      {account.assumptions} (mechint checkpoint info says why)"
        yield from wrap_line(told, width, "dim", indent=" " * (NAME_WIDTH + 2))
    legend = "  ✓ yes   ○ looked for, not there   – unclear"
    yield from wrap_line(legend + (f"   {hidden} more: --full" if hidden else ""), width, "dim")
    for line in account.next:
        yield from ((part, "") for part in command_lines(line, width))


def _heading(account: Account) -> str:
    """The verdict in capitals, but for one with code in it, such as t[0]."""
    return account.verdict if "[" in account.verdict else account.verdict.upper()


def _count(number: int) -> str:
    """A count in at most five characters.

    >>> _count(226816), _count(512), _count(1_240_000)
    ('227k', '512', '1.24M')
    """
    if number < 1000:
        return str(number)
    return f"{number / 1e3:.0f}k" if number < 1e6 else f"{number / 1e6:.3g}M"


def comparison_text(accounts: Sequence[Account], width: int = 100, said: str = "") -> Text:
    """Several accounts side by side: verdicts first, what is `said` of both, then what differs."""
    width = min(max(width, MIN_WIDTH), MAX_WIDTH)
    letters = ascii_uppercase[: len(accounts)]
    lines: list[tuple[str, str]] = []
    names = [PurePath(account.path).stem or account.title for account in accounts]
    if len(set(names)) < len(names):  # ckpt.pt of two runs
        names = [PurePath(account.path).parent.name or account.title for account in accounts]
    for letter, account in zip(letters, accounts, strict=True):
        lines += wrap_line(f"{letter}  {_heading(account)}", width, "bold", "   ")
    for letter, name, account in zip(letters, names, accounts, strict=True):
        right = ", ".join(percent(row.accuracy) for row in account.quality[:MAX_QUALITY])
        about = f"{one_line(name, 80)}   {account.title}   accuracy {right or 'unknown'}"
        lines += wrap_line(f"{letter}  {about}", width, "", "   ")
    lines += [*(wrap_line(said, width, "", "   ") if said else ()), ("", "")]
    if rows := compared_rows(accounts):
        from rich.console import Console
        from rich.table import Table

        grid = Table(box=None, header_style="dim", padding=(0, 1))
        for letter in ("", *letters):
            grid.add_column(letter, overflow="fold")
        for name, values in rows:
            grid.add_row(name, *values)
        screen = Console(width=width)
        with screen.capture() as drawn:
            screen.print(grid)
        lines += ((line, "") for line in drawn.get().splitlines())
    return styled(lines)


def compared_rows(accounts: Sequence[Account]) -> list[tuple[str, list[str]]]:
    """(name, values) of the first six that differ: text metrics, then headlines of leading
    findings.
    """
    rows: list[tuple[str, list[str]]] = []
    texts = [
        {
            f"{probe}.{name}": value
            for probe, result in account.results.items()
            for name, value in result.metrics.items()
            if isinstance(value, str)
        }
        for account in accounts
    ]
    for name in dict.fromkeys(name for text in texts for name in text):
        values = [text.get(name, "–") for text in texts]
        if len(set(values)) > 1:
            rows.append((name, values))
    for probe in dict.fromkeys(name for account in accounts for name in account.results):
        results = [account.results.get(probe) for account in accounts]
        values = [
            "not run" if result is None else f"{MARKS[result.verdict]} {result.headline}"
            for result in results
        ]
        if len(set(values)) > 1:
            rows.append((probe, values))
    return rows[:6]
