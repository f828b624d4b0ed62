"""Results of probes as text, wrapped between words at any width from 60 to 160."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from rich.text import Text

from mechint.system.jsonable import short

if TYPE_CHECKING:
    from mechint.decide import Verdict
    from mechint.probe.results import Finding, ProbeResult, Scope, Table

VERDICTS: tuple[Verdict, ...] = ("yes", "no", "unclear")
"""Verdicts of a probe; a test of an audit may be "untested", too."""
MARKS: Mapping[str, str] = {"yes": "✓", "no": "○", "unclear": "–"}
"""Verdict → its mark: there, looked for and not there, cannot be told."""
MIN_WIDTH, MAX_WIDTH = 60, 160
NAME_WIDTH = 13
"""Columns for the mark and the name of a probe."""
MAX_SUMMARY, MAX_LAYERS, MAX_LABEL = 4, 6, 12
BLOCKS = "▁▂▃▄▅▆▇█"
STYLES = {"yes": "green", "no": "dim", "unclear": "dim"}


def rank(verdict: str | None) -> int:
    """Place of a verdict in a list of findings: "yes" first.

    >>> sorted(["unclear", "no", "yes"], key=rank)
    ['yes', 'no', 'unclear']
    """
    return VERDICTS.index(verdict) if verdict in VERDICTS else len(VERDICTS)


def result_text(result: ProbeResult, width: int = 100) -> Text:
    """The result of one probe as styled text: its question, summary, findings, and what it did not
    ask.
    """
    width = min(max(width, MIN_WIDTH), MAX_WIDTH)
    lines = [*wrap_line(f"{result.probe}: {result.question}", width, "bold"), ("", "")]
    lines += [(line, "") for line in summary_lines(result, width)]
    for finding in sorted(result.findings, key=lambda finding: rank(finding.verdict)):
        lines += finding_lines(result.probe, finding, width)
    for question, reason in result.not_asked:
        lines += wrap_line(f"  not asked: {question}: {reason}", width, "dim", "    ")
    return styled(lines)


def full_text(results: Mapping[str, ProbeResult], width: int = 100) -> Text:
    """Every finding with its details, and every number of every probe with its null."""
    lines: list[tuple[str, str]] = []
    for name, result in results.items():
        lines += [("", ""), *wrap_line(f"{name}  {result.question}", width, "bold cyan")]
        for finding in result.findings:
            lines += finding_lines("", finding, width)
            for label, value in finding.details.items():
                lines += wrap_line(f"{'':15}{label}: {_cell(value)}", width, "dim", " " * 17)
        if (by_head := result.arrays.get("by_head")) is not None:
            label = result.units.get("by_head", "")
            lines += ((line, "") for line in head_lines(by_head, label, width))
        for metric, value in result.metrics.items():
            null = result.null.get(metric)
            unit = f" {result.units[metric]}" if metric in result.units else ""
            line = f"  {metric}  {short(value)}{unit}"
            if null is not None:
                # a whole number may be tested by one between whole numbers
                tested = "" if null.observed == value else f"{short(null.observed)} against "
                spread = f"{short(null.mean)} ± {short(null.std)}"
                line += f"   {tested}null {spread} ({null.how})   {null.p_text}"
            lines += wrap_line(line, width, "", indent="      ")
    return styled(lines)


def styled(lines: Iterable[tuple[str, str]]) -> Text:
    """Lines, each with its style, as one text."""
    return Text("\n").join(Text(line.rstrip(), style) for line, style in lines)


def summary_lines(result: ProbeResult, width: int) -> Iterator[str]:
    """The array "strip" of a result as a row of blocks, its table "summary", a line a row, and its
    array "by_head" as a table of layers and heads.
    """
    strip = result.arrays.get("strip")
    if strip is not None and 1 < len(strip) <= width - 4:
        label = result.units.get("strip", "")
        line = "  " + sparkline(strip.tolist())
        if len(line) + 4 + len(label) <= width:
            yield f"{line}    {label}"
        else:
            yield line
            yield f"  {label}"
    table = result.tables.get("summary")
    if table is not None:
        yield from _table_lines(table, width)
    by_head = result.arrays.get("by_head")
    if by_head is not None:
        yield from head_lines(by_head, result.units.get("by_head", ""), width, MAX_LAYERS)


def head_lines(
    values: Float[np.ndarray, "layer head"], label: str, width: int, most: int | None = None
) -> Iterator[str]:
    """Numbers of heads, a line a layer; "·" of a head that was not measured.

    most: layers at most, those of the largest numbers; heads that do not fit are then left out
    likewise, and go below otherwise.

    >>> print(*head_lines(np.array([[0.5, 0.25], [np.nan, -1]]), "moved", 60), sep="\\n")
      moved     H0     H1
      L0      0.50   0.25
      L1         ·  -1.00
    """
    size = np.abs(np.nan_to_num(values))
    wide = 7 if size.max(initial=0) < 100 else 10
    first = len(f"L{len(values) - 1}")
    first = max(first, len(label)) if len(label) <= MAX_LABEL else first
    fit = max(1, (width - first - 2) // wide)
    layers, heads = (range(n) for n in values.shape)
    if most is not None:
        layers, heads = (
            sorted(sorted(every, key=lambda i: -size.max(axis, initial=0)[i])[:n])
            for every, axis, n in ((layers, 1, most), (heads, 0, fit))
        )
    if len(label) > first:
        yield f"  {label}"
        label = ""
    for start in range(0, len(heads), fit):
        block = heads[start : start + fit]
        yield f"  {label:<{first}}" + "".join(f"H{head}".rjust(wide) for head in block)
        for layer in layers:
            cells = [_number(values[layer, head], wide) for head in block]
            yield f"  {f'L{layer}':<{first}}" + "".join(cells)
    left = [
        f"{len(some)} of {n} {name}"
        for some, n, name in zip((layers, heads), values.shape, ("layers", "heads"), strict=True)
        if len(some) < n
    ]
    if left:
        yield f"  largest {', '.join(left)}; --full has all"


def finding_lines(
    name: str, finding: Finding, width: int, said: Scope | None = None
) -> Iterator[tuple[str, str]]:
    """A finding: mark, probe, headline, then effect, p-value, the scope that was not `said`
    before, and the caveat at the right where they fit.
    """
    style = STYLES[finding.verdict]
    start = f"{MARKS[finding.verdict]} {name:<{NAME_WIDTH - 1}} "
    body = finding.headline
    if finding.verdict == "unclear":
        body = f"{body.rstrip('.?')}: {finding.reason}"
    effect = finding.effect
    tail = "" if effect is None or finding.verdict == "unclear" else str(effect)
    p_text = finding.p_text.replace(" ", "\u00a0")  # not broken within
    scope = finding.scope if said is None else finding.scope.beside(said)
    tail = "   ".join(filter(None, (tail, p_text, str(scope), finding.caveat)))
    indent = " " * len(start)
    if tail and len(start) + len(body) + 3 + len(tail) <= width:
        yield start + body + tail.rjust(width - len(start) - len(body)), style
        return
    yield from wrap_line(start + body, width, style, indent=indent)
    if tail:
        yield from wrap_line(indent + tail, width, "dim", indent=indent)


def sparkline(values: Sequence[float]) -> str:
    """Values from 0 on as one row of blocks, the largest full.

    >>> sparkline([0, 1, 2, 4])
    '▁▂▄█'
    """
    top = max((value for value in values if math.isfinite(value)), default=0.0)
    if top <= 0:
        return BLOCKS[0] * len(values)
    heights = (value / top if math.isfinite(value) else 0.0 for value in values)
    return "".join(BLOCKS[min(7, max(0, math.ceil(8 * height) - 1))] for height in heights)


def wrap_line(text: str, width: int, style: str, indent: str = "  ") -> Iterator[tuple[str, str]]:
    """`text` in lines of at most `width`, broken between words, and inside one that is longer."""
    lines = textwrap.wrap(
        text,
        width,
        subsequent_indent=indent,
        drop_whitespace=True,
        replace_whitespace=False,
        break_on_hyphens=False,
        initial_indent="",
    )
    yield from ((line, style) for line in lines or [""])


def _number(value: float, wide: int) -> str:
    text = "·" if np.isnan(value) else f"{value:.2f}" if wide == 7 else f"{value:.3g}"
    return text.rjust(wide)


def _table_lines(table: Table, width: int) -> Iterator[str]:
    """A small table, one line a column of it: name, then its cells, the first and the last two
    where not all fit.
    """
    names = list(table.columns)
    rows = {name: [_cell(value) for value in table.columns[name]] for name in names[:MAX_SUMMARY]}
    first = max(map(len, rows), default=0)
    cells = max((len(text) for row in rows.values() for text in row), default=1)
    fit = max(1, (width - first - 2) // (cells + 2))
    for name, row in rows.items():
        shown = [*row[: fit - 3], "…", *row[-2:]] if len(row) > fit > 3 else row[:fit]
        yield f"  {name:<{first}}" + "".join(text.rjust(cells + 2) for text in shown)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else short(value)
