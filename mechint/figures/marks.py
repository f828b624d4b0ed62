"""What stands in a plot beside its data: named levels, the band of the null, bands of curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mechint.figures.theme import MARGIN, band, faint, level, numbers

LINE = 14
"""Pixels from one name of a level to the next, where they stand above each other."""


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
) -> dict[str, Any]:
    """Shapes and notes of a layout: named horizontal lines, and the band of the null (mean, low,
    high); vertical ones where the bars are `lying`.

    The names stand right of the plot where no legend does (`alone`), else inside it.
    """
    marks = [level(value, name) for name, value in (lines or {}).items()]
    if null is not None:
        marks.append(level(null[0], "null", dash="dot"))
    shapes, notes = [shape for shape, _ in marks], [note for _, note in marks]
    if log:  # plotly.js places annotations, unlike shapes, in log10 of the axis
        notes = [
            note | {"y": numbers(float(np.log10(note["y"])))} for note in notes if note["y"] > 0
        ]
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
