"""What stands in a plot beside its data: named levels, the band of the null, bands of curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechint.figures.theme import MARGIN, band, faint, level, numbers

LINE = 14
"""Pixels from one name of a level to the next, where they stand above each other."""
AROUND, AXIS, EDGE = 110, 0.85, 36
"""Pixels of a figure's height that are not its plot's, the share of the others between its values,
and pixels that a name may reach above the largest value.
"""
TELEPHONE, LETTER = 300, 6
"""Pixels of the narrowest plot, and of a letter of a name above it."""


def has_names(values: Any) -> bool:
    """Whether axis values are names rather than numbers."""
    return len(values) > 0 and isinstance(values[0], str)


def has_repeats(values: Any) -> bool:
    """Whether two axis values are one, so that Plotly would draw what belongs to them at one place.

    >>> has_repeats(["the", "cat", "the"]), has_repeats([1, 2])
    (True, False)
    """
    return len({str(value) for value in values}) < len(values)


def marked_levels(
    lines: Mapping[str, float] | None,
    null: tuple[float, float, float] | None,
    log: bool,
    alone: bool,
    lying: bool = False,
    *,
    values: Sequence[Any] = (),
    height: int = 380,
) -> dict[str, Any]:
    """Shapes and notes of a layout: named horizontal lines, and the band of the null (mean, low,
    high); vertical ones where the bars are `lying`.

    The names stand right of the plot where no legend does (`alone`), else inside it; those of lines
    that lie close are moved apart, as far as `values` on the axis and the figure's `height` say.
    """
    marks = [level(value, name) for name, value in (lines or {}).items()]
    if null is not None:
        marks.append(level(null[0], "null", dash="dot"))
    shapes = [shape for shape, _ in marks]
    notes = [note for _, note in marks if note["y"] is not None]
    if log:  # plotly.js places annotations, unlike shapes, in log10 of the axis
        notes = [
            note | {"y": numbers(float(np.log10(note["y"])))} for note in notes if note["y"] > 0
        ]
    seen = [value for value in values if value is not None and (value > 0 or not log)]
    span = [float(np.log10(value)) if log else float(value) for value in seen]
    if not lying:
        notes = _apart(notes, span, height, alone)
    layout: dict[str, Any] = {
        "shapes": shapes + ([band(null[1], null[2])] if null is not None else []),
        "annotations": notes,
    }
    if lying:
        layout["shapes"] = [_turned(shape) for shape in layout["shapes"]]
        layout["annotations"] = [
            {**_turned(note), "yanchor": "bottom", "xanchor": "center", "yshift": LINE * place}
            for place, note in enumerate(sorted(notes, key=lambda note: note["y"]))
        ]  # one above the other: levels may lie close
        layout["meta"] = {"top": 12 + LINE * len(notes)} if notes else {}
    elif alone and notes:
        layout["annotations"] = [
            note | {"xanchor": "left", "yanchor": "middle", "xshift": 4} for note in notes
        ]
        layout["margin"] = MARGIN | {"r": 20 + 6 * max(len(note["text"]) for note in notes)}
    return layout


def _apart(
    notes: list[dict[str, Any]], values: list[float], height: int, beside: bool
) -> list[dict[str, Any]]:
    """`notes` shifted by pixels where lines lie close, in the order of the lines: so that none
    stands over another and, where they are not `beside` the plot, on no line either.
    """
    ends = values + [note["y"] for note in notes]
    scale = AXIS * (height - AROUND) / ((max(ends, default=0) - min(ends, default=0)) or 1.0)
    at = [scale * (note["y"] - min(ends)) for note in notes]
    top = scale * (max(ends, default=0) - min(ends, default=0)) + EDGE

    def stack(group: list[int]) -> list[float]:
        lowest, highest, rows = at[group[0]], at[group[-1]], LINE * len(group)
        if len(group) == 1 or not beside:
            first = highest if len(group) == 1 or highest + rows <= top else lowest - rows - 3
        else:
            first = (lowest + highest - rows + LINE) / 2
        return [first + LINE * row for row in range(len(group))]

    groups = [[i] for i in sorted(range(len(notes)), key=lambda i: at[i])]
    place = 0
    while place + 1 < len(groups):
        low, high = groups[place : place + 2]
        if stack(low)[-1] + LINE <= min(stack(high)[0], at[high[0]]):
            place += 1
            continue
        groups[place : place + 2] = [low + high]
        place = max(0, place - 1)
    shifts = {
        i: round(now - at[i])
        for group in groups
        for i, now in zip(group, stack(group), strict=True)
    }
    return [note | ({"yshift": shifts[i]} if shifts[i] else {}) for i, note in enumerate(notes)]


def rows_of(places: Sequence[float], texts: Sequence[str], span: Sequence[float]) -> list[int]:
    """The row, from 0, of each label above a plot, so that none is over another where the page is
    narrow; `span` is that of the axis.

    >>> rows_of([100, 130, 900], ["train learned", "test learned", "end"], (0, 1000))
    [0, 1, 0]
    """
    pixels = TELEPHONE / ((span[1] - span[0]) or 1.0)
    rows, ends = [0] * len(places), list[float]()
    for i in sorted(range(len(places)), key=lambda i: places[i]):
        middle, half = pixels * places[i], LETTER * (len(texts[i]) + 1) / 2
        free = [row for row, end in enumerate(ends) if end <= middle - half]
        rows[i] = free[0] if free else len(ends)
        ends[rows[i] :] = [middle + half, *ends[rows[i] + 1 :]]
    return rows


def band_of(name: str, x: list[Any], low: list[Any], high: list[Any], color: str) -> dict[str, Any]:
    """The trace of the area from `low` to `high` over x, which comes and goes with curve `name`."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "legendgroup": name,
        "showlegend": False,
        "hoverinfo": "skip",
        "x": x + x[::-1],
        "y": high + low[::-1],
        "fill": "toself",
        "fillcolor": faint(color, 0.18),
        "line": {"width": 0},
    }


def _turned(mark: Mapping[str, Any]) -> dict[str, Any]:
    """A mark across the plot as one that goes up, its name on the upper edge.

    >>> _turned({"xref": "paper", "x0": 0, "x1": 1, "y0": 5, "y1": 5})
    {'yref': 'paper', 'y0': 0, 'y1': 1, 'x0': 5, 'x1': 5}
    """
    other = {"x": "y", "y": "x"}
    return {
        other[name[0]] + name[1:] if name in {"xref", "x0", "x1", "y0", "y1", "x", "y"} else name: v
        for name, v in mark.items()
    }
