"""A small picture of a figure as SVG, made from its data, for the index of a gallery.

Lines, bars, points and matrices keep their shape and colors; axes, text and small detail are left
out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechint.figures.theme import COLORS, WHOLE_VIRIDIS, faint, ramp
from mechint.results import Figure

Mark = tuple[str, dict[str, str]]
"""An SVG element: its tag and its attributes. A template writes it, and escapes every value."""

COLOR = re.compile(r"#[0-9a-fA-F]{3,8}|rgba?\([0-9., %]{1,40}\)|[a-zA-Z]{1,20}")
"""What may stand as a color; anything else in a page of others is replaced by a color of ours."""

WIDTH, HEIGHT, MARGIN = 320, 180, 16
CELLS, POINTS = 28, 160
RED_BLUE = ("#2166AC", "#92C5DE", "#F7F7F7", "#F4A582", "#B2182B")


def thumbnail(figure: Figure) -> list[Mark]:
    """The elements of an SVG of 320 x 180; none when the figure holds nothing that can be drawn
    small.
    """
    traces = list(figure.spec.get("data", []))
    layout = figure.spec.get("layout", {})
    maps = [trace for trace in traces if trace.get("type") == "heatmap"]
    try:
        return _matrices(maps[:4], layout) if maps else _curves(traces, layout)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return []  # a figure that others wrote may hold anything; plotly.js draws what it can


def amount(figure: Figure) -> int:
    """How many numbers the figure draws: cells of its matrices, else points, bars and vertices."""
    count = 0
    traces = figure.spec.get("data", [])
    for trace in traces if isinstance(traces, list | tuple) else ():
        z, y = (trace.get(name) if isinstance(trace, Mapping) else None for name in ("z", "y"))
        if isinstance(z, list | tuple):
            count += sum(len(row) for row in z if isinstance(row, list | tuple))
        elif isinstance(y, list | tuple):
            count += len(y)
    return count


def _color(value: Any, fallback: str) -> str:
    """`value` where it is the text of a color, else `fallback`."""
    return value if isinstance(value, str) and COLOR.fullmatch(value) else fallback


def _rectangle(left: float, top: float, width: float, height: float, fill: str) -> Mark:
    sides = {"x": left, "y": top, "width": width, "height": height}
    return "rect", {name: f"{side:.1f}" for name, side in sides.items()} | {"fill": fill}


def _matrices(traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]) -> list[Mark]:
    """Up to four matrices side by side, each reduced to at most CELLS x CELLS means."""
    marks = []
    width = (WIDTH - MARGIN * (len(traces) + 1)) / len(traces)
    side = min(width, HEIGHT - 2 * MARGIN) if len(traces) > 1 else width
    for i, trace in enumerate(traces):
        z = np.array(
            [[math.nan if value is None else value for value in row] for row in trace["z"]],
            dtype=np.float64,
        )
        scale = layout.get(
            "coloraxis",
            {
                "cmin": trace.get("zmin"),
                "cmax": trace.get("zmax"),
                "colorscale": trace.get("colorscale"),
            },
        )
        low, high = scale["cmin"], scale["cmax"]
        stops = WHOLE_VIRIDIS if isinstance(scale["colorscale"], str) else RED_BLUE
        tall = min(side, HEIGHT - 2 * MARGIN)
        left, top = MARGIN + i * (width + MARGIN) + (width - side) / 2, (HEIGHT - tall) / 2
        blocks = [
            np.array_split(rows, min(CELLS, z.shape[1]), axis=1)
            for rows in np.array_split(z, min(CELLS, z.shape[0]), axis=0)
        ]
        w, h = side / len(blocks[0]), tall / len(blocks)
        for row, line in enumerate(blocks):
            for column, block in enumerate(line):
                seen = block[np.isfinite(block)]
                if seen.size:
                    fill = ramp(stops, (float(seen.mean()) - low) / ((high - low) or 1.0))
                    place = (left + column * w, top + row * h)
                    marks.append(_rectangle(*place, w + 0.3, h + 0.3, fill))
    return marks


def _place(values: Sequence[Any], names: list[Any]) -> np.ndarray:
    """Axis values as numbers; names count from 0 in the order met."""
    for value in values:
        if isinstance(value, str) and value not in names:
            names.append(value)
    return np.array(
        [
            math.nan if value is None else names.index(value) if isinstance(value, str) else value
            for value in values
        ],
        dtype=np.float64,
    )


def _curves(traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]) -> list[Mark]:
    """Lines, bars and points in one frame; lying bars stand up, grouped ones beside each other."""
    beside = [i for i, one in enumerate(traces) if one.get("type") == "bar"]
    beside = beside if layout.get("barmode") == "group" else []
    if any(trace.get("orientation") == "h" for trace in traces):
        layout = {"xaxis": layout.get("yaxis", {}), "yaxis": layout.get("xaxis", {})}
    traces = [
        {**trace, "x": trace.get("y", []), "y": trace.get("x", [])}
        if trace.get("orientation") == "h"
        else trace
        for trace in traces
    ]
    names_x: list[Any] = []
    names_y: list[Any] = []
    across = [_place(trace.get("x", []), names_x) for trace in traces]
    up = [_place(trace.get("y", []), names_y) for trace in traces]
    for axis, columns in (("xaxis", across), ("yaxis", up)):
        if layout.get(axis, {}).get("type") == "log":
            for values in columns:
                values[values <= 0] = math.nan
                np.log10(values, out=values)
    bars = any(trace.get("type") == "bar" for trace in traces)
    x_span, y_span = (_span(np.concatenate([np.zeros(0), *columns])) for columns in (across, up))
    if bars:  # they stand on zero, and the outer ones need half their width
        y_span = (min(0.0, y_span[0]), max(0.0, y_span[1]))
        half = (x_span[1] - x_span[0]) / max(1, 2 * (max(map(len, across)) - 1)) or 0.5
        x_span = (x_span[0] - half, x_span[1] + half)
    marks = []
    for i, (trace, x, y) in enumerate(zip(traces, across, up, strict=True)):
        u = MARGIN + (x - x_span[0]) / ((x_span[1] - x_span[0]) or 1.0) * (WIDTH - 2 * MARGIN)
        v = (
            HEIGHT
            - MARGIN
            - (y - y_span[0]) / ((y_span[1] - y_span[0]) or 1.0) * (HEIGHT - 2 * MARGIN)
        )
        floor = (
            HEIGHT
            - MARGIN
            - (0.0 - y_span[0]) / ((y_span[1] - y_span[0]) or 1.0) * (HEIGHT - 2 * MARGIN)
        )
        share = (beside.index(i), len(beside)) if i in beside else (0, 1)
        marks += _trace(trace, u, v, floor, COLORS[i % len(COLORS)], share)
    return marks


def _span(values: np.ndarray) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _trace(
    trace: Mapping[str, Any],
    u: np.ndarray,
    v: np.ndarray,
    floor: float,
    fallback: str,
    share: tuple[int, int],
) -> list[Mark]:
    """One trace at pixel coordinates (u, v); `share`: which of how many bars of one place it is."""
    keep = np.isfinite(u) & np.isfinite(v)
    if trace.get("type") == "bar":
        return _bars(trace, u, v, keep, floor, fallback, share)
    if "lines" in trace.get("mode", "lines"):
        return _line(trace, u, v, keep, fallback)
    return _points(trace, u, v, keep, fallback)


def _bars(
    trace: Mapping[str, Any],
    u: np.ndarray,
    v: np.ndarray,
    keep: np.ndarray,
    floor: float,
    fallback: str,
    share: tuple[int, int],
) -> list[Mark]:
    fill = trace.get("marker", {}).get("color", fallback)
    fills = fill if isinstance(fill, list) and len(fill) == len(u) else [fill] * len(u)
    room = 0.8 * (WIDTH - 2 * MARGIN) / max(len(u), 1)
    which, many = share
    width, left = max(1.0, room / many), room * (which / many - 0.5)
    return [
        _rectangle(a + left, min(b, floor), width, abs(floor - b), _color(color, fallback))
        for a, b, color, ok in zip(u, v, fills, keep, strict=True)
        if ok
    ]


def _line(
    trace: Mapping[str, Any], u: np.ndarray, v: np.ndarray, keep: np.ndarray, fallback: str
) -> list[Mark]:
    if trace.get("fill") == "toself":
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(u[keep], v[keep], strict=True))
        fill = _color(trace.get("fillcolor"), faint(fallback, 0.2))
        return [("polygon", {"points": points, "fill": fill})]
    step = max(1, len(u) // POINTS)
    parts, open_path = [], False
    for a, b, ok in zip(u[::step], v[::step], keep[::step], strict=True):
        parts.append(f"{'L' if open_path else 'M'}{a:.1f} {b:.1f}" if ok else "")
        open_path = bool(ok)
    stroke = _color(trace.get("line", {}).get("color"), fallback)
    return [("path", {"d": "".join(parts), "fill": "none", "stroke": stroke, "stroke-width": "2"})]


def _points(
    trace: Mapping[str, Any], u: np.ndarray, v: np.ndarray, keep: np.ndarray, fallback: str
) -> list[Mark]:
    color = trace.get("marker", {}).get("color", fallback)
    chosen = np.flatnonzero(keep)[:: max(1, int(keep.sum()) // POINTS)]
    shades: list[Any] = [color] * len(u)
    if isinstance(color, list) and len(color) == len(u):
        values = [value if isinstance(value, int | float) else math.nan for value in color]
        low, high = _span(np.array(values, dtype=np.float64))
        shades = [
            ramp(WHOLE_VIRIDIS, (value - low) / ((high - low) or 1.0))
            if math.isfinite(value)
            else ""
            for value in values
        ]
    return [
        (
            "circle",
            {
                "cx": f"{u[i]:.1f}",
                "cy": f"{v[i]:.1f}",
                "r": "3",
                "fill": _color(shades[i], fallback),
            },
        )
        for i in chosen
    ]
