"""The linear probe's figure."""

from __future__ import annotations

from typing import Any

from mechint import figures
from mechint.results import Figure


def score_figures(
    kind: str, score: str, columns: dict[str, list[Any]], points: list[str]
) -> dict[str, Figure]:
    """Every variable's score by depth, or as bars where there is one hook."""
    names = list(dict.fromkeys(columns["variable"]))
    of = {
        name: [
            value
            for value, variable in zip(columns[score], columns["variable"], strict=True)
            if variable == name
        ]
        for name in names
    }
    text = "held-out accuracy (0–1)" if kind == "class" else "R² on held-out values (1 is exact)"
    caption = "Where each variable becomes readable by a linear map."
    if len(points) == 1:
        shown = figures.bars(
            names,
            {"score": [of[name][0] for name in names]},
            title=f"Linear probes at {points[0]}",
            x_title="variable",
            y_title=text,
            caption=caption,
        )
    else:
        shown = figures.lines(
            points,
            of,
            title="Linear probes by depth",
            x_title="residual stream after",
            y_title=text,
            markers=True,
            caption=caption,
        )
    return {"scores": shown}
