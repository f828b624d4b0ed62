"""What stands in a plot beside its data: named levels and the band of the null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mechint.figures.theme import (
    MARGIN,
    band,
    level,
    numbers,
)


def has_names(values: Any) -> bool:
    """Whether axis values are names rather than numbers."""
    return len(values) > 0 and isinstance(values[0], str)


def marked_levels(
    lines: Mapping[str, float] | None,
    null: tuple[float, float, float] | None,
    log: bool,
    alone: bool,
) -> dict[str, Any]:
    """Shapes and notes of a layout: named horizontal lines, and the band of the null (mean, low,
    high).

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
    if alone and notes:
        layout["annotations"] = [
            note | {"xanchor": "left", "yanchor": "middle", "xshift": 4} for note in notes
        ]
        layout["margin"] = MARGIN | {"r": 20 + 6 * max(len(note["text"]) for note in notes)}
    return layout
