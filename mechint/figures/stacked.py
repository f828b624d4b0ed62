"""Panels above each other on one shared axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mechint.figures.figure import Figure, figure
from mechint.figures.marks import LINE, band_of, rows_of
from mechint.figures.theme import COLORS, INK, SEQUENTIAL, axis, numbers, powers, strokes

PANEL, GAP, FRAME = 110, 34, 170
"""Pixels of a panel, between two, and of what stands around them."""
ROOM = {"l": 56, "r": 20, "t": 80, "b": 90}
ONE = {"color": COLORS[0]}
"""The stroke of a curve that is alone in its panel, wherever it stands."""


@dataclass(frozen=True)
class Panel:
    """One panel of `stacked`.

    title: what is measured, with its unit in brackets; series: name → (x, y); bands: name → (x,
    low, high) around that curve; image: (x (n,), y (m,), z (m, n)) in place of curves; log: the
    axis is logarithmic; y_range: of a linear axis.
    """

    title: str
    series: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    bands: Mapping[str, tuple[Any, Any, Any]] = field(default_factory=dict)
    image: tuple[Any, Any, Any] | None = None
    log: bool = False
    y_range: tuple[float, float] | None = None


def stacked(
    panels: Sequence[Panel],
    *,
    x_title: str,
    title: str,
    caption: str,
    marks: Mapping[str, float] | None = None,
    x_log: bool = False,
) -> Figure:
    """Panels above each other whose x axis is one and the same.

    Args:
        marks: label → x of a dotted line through all panels.
        x_log: the x axis is logarithmic; points at 0 are then not drawn.

    >>> panels = [Panel("accuracy (0–1)", {"test": ([0, 9], [0.1, 1.0])}), Panel("loss (nats)")]
    >>> made = stacked(panels, x_title="step", title="Dynamics", caption="It learns.")
    >>> made.spec["layout"]["yaxis"]["domain"][0] > made.spec["layout"]["yaxis2"]["domain"][1]
    True
    """
    whole = PANEL * len(panels) + GAP * (len(panels) - 1)
    several = dict.fromkeys(name for one in panels if len(one.series) > 1 for name in one.series)
    drawn = strokes(several)
    lines, notes = _marks(marks or {}, x_log)
    layout: dict[str, Any] = {}
    data: list[dict[str, Any]] = []
    for place, panel in enumerate(panels):
        number = "" if place == 0 else str(place + 1)
        top = 1 - place * (PANEL + GAP) / whole
        domain = [max(0.0, top - PANEL / whole), top]
        layout[f"yaxis{number}"] = _y_axis(panel, domain)
        head = {"x": 0, "y": top, "xref": "paper", "yref": "paper", "xanchor": "left"}
        font = {"size": 11, "color": INK}
        notes.append(
            {**head, "yanchor": "bottom", "text": panel.title, "showarrow": False, "font": font}
        )
        traces = _traces(panel, f"y{number}", drawn, x_log)
        shown = {trace["name"] for trace in data if "name" in trace}
        data += [
            {**one, "showlegend": False}
            if one.get("name") in shown or len(panel.series) < 2
            else one
            for one in traces
        ]
    bottom = "y" if len(panels) == 1 else f"y{len(panels)}"
    layout["xaxis"] = axis(x_title, log=x_log, anchor=bottom) | _span(data, x_log)
    named = notes[: len(lines)]
    rows = rows_of(
        [note["x"] for note in named], [*(marks or {})], layout["xaxis"].get("range", (0, 1))
    )
    above = LINE * max(rows, default=0)
    for note, row in zip(named, rows, strict=True):
        note["yshift"] += LINE * row
    layout["legend"] = {"orientation": "h", "x": 0, "y": -52 / whole, "yanchor": "top"}
    made = figure(
        data,
        title,
        caption,
        height=whole + FRAME + above,
        hovermode="x",
        margin=ROOM | {"t": ROOM["t"] + above},
        shapes=lines,
        annotations=notes,
        **layout,
    )
    meta = {"legend": "below"} | ({"top": 40 + above} if marks else {})
    layout = {**made.spec["layout"], "showlegend": bool(several), "meta": meta}
    return Figure({**made.spec, "layout": layout}, caption)


def _span(data: Sequence[Mapping[str, Any]], x_log: bool) -> dict[str, Any]:
    """The range of the x axis: that of the points, with a little room."""
    at = [x for trace in data for x in flat(trace["x"]) if x > 0 or not x_log]
    if not at or min(at) == max(at):
        return {}
    low, high = (math.log10(end) if x_log else end for end in (min(at), max(at)))
    room = 0.015 * (high - low)
    return {"range": numbers([float(low - room), float(high + room)])}


def _y_axis(panel: Panel, domain: list[float]) -> dict[str, Any]:
    style = {**axis(panel.title, log=panel.log, domain=domain), "title": {"text": ""}}
    style["tickfont"] = {"size": 10}
    if panel.y_range is not None:
        style["range"] = list(panel.y_range)
    if panel.log:  # at most about four powers of ten
        values = [y for _, ys in panel.series.values() for y in flat(numbers(ys))]
        style["dtick"] = powers(values, 4)
    else:
        style["nticks"] = 4
    return style


def _traces(
    panel: Panel, y_axis: str, drawn: Mapping[str, dict[str, str]], x_log: bool
) -> list[dict[str, Any]]:
    if panel.image is not None:
        x, y, z = (numbers(values) for values in panel.image)
        span = flat(z) or [0.0, 1.0]
        shade = {"zmin": min(span), "zmax": max(span), "colorscale": SEQUENTIAL}
        shade |= {"showscale": False, "showlegend": False}
        shade |= {"colorbar": {"title": {"text": panel.title}}}
        return [{"type": "heatmap", "x": x, "y": y, "z": z, "yaxis": y_axis, **shade}]
    data: list[dict[str, Any]] = []
    for name, (x, low, high) in panel.bands.items():
        at, down, up = _drawable(x_log, x, low, high)
        color = drawn.get(name, ONE)["color"]
        data.append(band_of(name, at, down, up, color) | {"yaxis": y_axis})
    for name, (x, y) in panel.series.items():
        at, height = _drawable(x_log, x, y)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "legendgroup": name,
                "x": at,
                "y": height,
                "yaxis": y_axis,
                "line": {"width": 2, **drawn.get(name, ONE)},
            }
        )
    return data


def _drawable(x_log: bool, x: Any, *values: Any) -> list[list[Any]]:
    """x and values without the points that a logarithmic x axis has no place for."""
    rows = zip(numbers(x), *map(numbers, values), strict=True)
    kept = [row for row in rows if not x_log or row[0] > 0]
    return [list(column) for column in zip(*kept, strict=True)] or [[] for _ in (x, *values)]


def _marks(marks: Mapping[str, float], x_log: bool) -> tuple[list[Any], list[Any]]:
    """Dotted lines through all panels, each with its label at the top."""
    shapes, notes = [], []
    for text, x in marks.items():
        shapes.append(upright(x, "dot", 1.2))
        at = math.log10(x) if x_log and x > 0 else x  # annotations are placed by the exponent
        notes.append(
            {"x": numbers(float(at)), "y": 1, "yref": "paper", "yanchor": "bottom", "text": text}
            | {"showarrow": False, "font": {"size": 10, "color": INK}, "yshift": 14}
        )
    return shapes, notes


def upright(x: float, dash: str, width: float) -> dict[str, Any]:
    """A line through the whole height of a drawing, as a layout's shape."""
    line = {"color": INK, "width": width, "dash": dash}
    return {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": line}


def flat(values: Any) -> list[float]:
    """The numbers in nested lists, in their order.

    >>> flat([[1, None], [2.5, "a"]])
    [1, 2.5]
    """
    if isinstance(values, list | tuple):
        return [number for value in values for number in flat(value)]
    return [values] if isinstance(values, int | float) and not isinstance(values, bool) else []
