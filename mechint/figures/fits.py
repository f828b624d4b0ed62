"""Figures of measured points with the curves fitted to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mechint.figures.figure import Figure, figure
from mechint.figures.marks import band_of, marked_levels
from mechint.figures.theme import axis, colors, numbers


def fits(
    points: Mapping[str, tuple[Any, Any]],
    curves: Mapping[str, tuple[Any, Any, Any, Any]],
    *,
    title: str,
    x_title: str,
    y_title: str,
    caption: str,
    x_log: bool = False,
    y_log: bool = False,
    y_range: tuple[float, float] | None = None,
    levels: Mapping[str, float] | None = None,
    height: int = 420,
) -> Figure:
    """Points, and through them curves with their confidence bands, one color per name.

    Args:
        points: name → (x, y) of what was measured.
        curves: name → (x, fit, low, high); a name without a curve shows its points alone.
        levels: label → y of a dashed horizontal line.

    >>> shown = fits({"a": ([1, 2], [0.0, 1.0])}, {}, title="T", x_title="width",
    ...     y_title="accuracy (0–1)", caption="C")
    >>> shown.spec["data"][0]["mode"]
    'markers'
    """
    data: list[dict[str, Any]] = []
    for color, (name, (x, y)) in zip(colors(len(points)), points.items(), strict=True):
        common = {"type": "scatter", "name": name, "legendgroup": name}
        if name in curves:
            at, fit, low, high = (numbers(values) for values in curves[name])
            data.append(band_of(name, at, low, high, color))
            data.append(
                common
                | {
                    "mode": "lines",
                    "showlegend": False,
                    "x": at,
                    "y": fit,
                    "line": {"color": color, "width": 2},
                }
            )
        data.append(
            common
            | {
                "mode": "markers",
                "x": numbers(x),
                "y": numbers(y),
                "marker": {"color": color, "size": 7, "opacity": 0.75},
            }
        )
    heights = [one for _, y in points.values() for one in numbers(y)]
    return figure(
        data,
        title,
        caption,
        height=height,
        xaxis=axis(x_title, log=x_log),
        yaxis=axis(y_title, log=y_log) | ({"range": list(y_range)} if y_range else {}),
        hovermode="closest",
        **marked_levels(levels, None, y_log, False, values=heights, height=height),
    )
