"""Figures of matrices: heat maps, and small multiples of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechint.figures.figure import Figure, figure
from mechint.figures.marks import has_repeats
from mechint.figures.markup import hover
from mechint.figures.theme import DIVERGING, SEQUENTIAL, axis, fitted, numbers


def _scale(values: Any, diverging: bool, limits: tuple[float, float] | None) -> dict[str, Any]:
    """Color scale of one or more matrices; a diverging one is symmetric about zero."""
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    low, high = limits or (
        float(finite.min(initial=0.0 if diverging else math.inf)),
        float(finite.max(initial=0.0 if diverging else -math.inf)),
    )
    if diverging and limits is None:
        high = max(-low, high) or 1.0
        low = -high
    if not finite.size and limits is None:
        low, high = 0.0, 1.0
    return {
        "zmin": numbers(low),
        "zmax": numbers(high),
        "colorscale": DIVERGING if diverging else SEQUENTIAL,
    }


def _matrix(z: Any) -> np.ndarray:
    values = np.asarray(z.tolist() if hasattr(z, "tolist") else z, dtype=np.float64)
    assert values.ndim == 2, f"a matrix was expected, got shape {values.shape}"
    return values


def heatmap(
    z: Any,
    *,
    title: str,
    x_title: str,
    y_title: str,
    z_title: str,
    caption: str,
    x: Sequence[Any] | None = None,
    y: Sequence[Any] | None = None,
    diverging: bool = False,
    limits: tuple[float, float] | None = None,
    annotate: bool | None = None,
    square: bool = False,
    height: int | None = None,
) -> Figure:
    """A matrix as colors, row 0 on top as matrices are printed.

    Args:
        z: (rows, columns); NaN leaves a hole.
        x, y: names or numbers of columns and rows, which may repeat; their indices when None.
        z_title: what the color shows, with its unit in brackets: "attention (0–1)".
        diverging: colors symmetric about zero.
        limits: (least, largest) of the color scale.
        annotate: write the numbers into the cells; when None, where there are at most 80.
        square: cells as high as wide.

    >>> heatmap([[1.0, 2.0]], title="T", x_title="key", y_title="query", z_title="attention (0–1)",
    ...     caption="C").spec["data"][0]["zmax"]
    2.0
    """
    values = _matrix(z)
    rows, columns = values.shape
    bar = {"title": {"text": z_title, "side": "right"}, "thickness": 12, "outlinewidth": 0}
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": numbers(values, 4),
        "colorbar": bar,
        **_scale(values, diverging, limits),
    }
    trace["hovertemplate"] = hover(x_title, y_title, z_title)
    ticks: dict[str, dict[str, Any]] = {"x": {}, "y": {}}
    for name, given in (("x", x), ("y", y)):
        names = None if given is None else numbers(list(given))
        if names is not None and has_repeats(names):
            ticks[name] = _ticks([str(text) for text in names])
        elif names is not None:
            trace[name] = names
    if annotate if annotate is not None else values.size <= 80:
        trace |= {"text": _cells(values), "texttemplate": "%{text}", "textfont": {"size": 11}}
    named_x, named_y = (
        any(isinstance(label, str) for label in trace.get(name, ())) for name in ("x", "y")
    )
    shape = {"scaleanchor": "x", "scaleratio": 1, "constrain": "domain"} if square else {}
    return figure(
        [trace],
        title,
        caption,
        height=height or (520 if square else min(640, max(260, 150 + 26 * rows))),
        xaxis=axis(
            x_title, labels=named_x, showgrid=False, constrain="domain", **_whole(columns, x)
        )
        | ticks["x"],
        yaxis=axis(
            y_title,
            labels=named_y,
            showgrid=False,
            autorange="reversed",
            **shape,
            **_whole(rows, y),
        )
        | ticks["y"],
    )


def _cells(values: np.ndarray) -> list[list[str]]:
    """The numbers as they stand in the cells: two digits, and 0 for what is small beside the
    largest.

    >>> _cells(np.array([[0.2181, -0.0000136, 1.0]]))
    [['0.22', '0', '1']]
    """
    finite = np.abs(values[np.isfinite(values)])
    least = float(finite.max(initial=0.0)) / 200

    def shown(value: float) -> str:
        if not math.isfinite(value):
            return ""
        return "0" if abs(value) < least else f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"

    return [[shown(value) for value in row] for row in values.tolist()]


def _whole(n: int, labels: Sequence[Any] | None) -> dict[str, Any]:
    """Ticks at whole numbers where indices of a small matrix are shown."""
    return {"dtick": 1} if labels is None and n <= 16 else {}


def image_grid(
    panels: Mapping[str, Any],
    *,
    title: str,
    x_title: str,
    y_title: str,
    z_title: str,
    caption: str,
    columns: int | None = None,
    diverging: bool = False,
    limits: tuple[float, float] | None = None,
    size: int | None = None,
    labels: Sequence[str] | None = None,
) -> Figure:
    """Small multiples: matrices under one color scale, one panel per head, neuron or layer.

    Args:
        panels: name → matrix (rows, columns) each, row 0 on top.
        columns: panels per line; when None, up to four.
        size: height of a panel in pixels; about its width when None.
        labels: of the rows and columns of square panels, which may repeat: the tokens of a text.
    """
    matrices = {name: _matrix(panel) for name, panel in panels.items()}
    assert matrices, "no panel"
    across = columns or min(4, len(matrices))
    down = math.ceil(len(matrices) / across)
    size = size or min(260, round(660 / across))
    gap_x, gap_y = 0.05, 0.30 / max(down, 1.5)
    width, tall = (1 - gap_x * (across - 1)) / across, (1 - gap_y * (down - 1)) / down
    scale = _scale(
        np.concatenate([matrix.ravel() for matrix in matrices.values()]), diverging, limits
    )
    data, layout, notes = [], {}, []
    for i, (name, matrix) in enumerate(matrices.items()):
        row, column = divmod(i, across)
        left, top = column * (width + gap_x), 1 - row * (tall + gap_y)
        n = "" if i == 0 else str(i + 1)
        data.append(_panel(name, matrix, n, (x_title, y_title, z_title)))
        # names on the outer edge only: the panels share their axes
        lowest = row == down - 1 or i + across >= len(matrices)
        x_style = {"domain": numbers([left, left + width]), "anchor": f"y{n}"}
        y_style = {"domain": numbers([max(0.0, top - tall), top]), "anchor": f"x{n}"}
        layout[f"xaxis{n}"] = _edge(x_title, lowest) | x_style
        layout[f"yaxis{n}"] = _edge(y_title, column == 0) | y_style | {"autorange": "reversed"}
        if labels is not None:
            layout[f"xaxis{n}"] |= _ticks(labels)
            layout[f"yaxis{n}"] |= _ticks(labels)
        place = {"x": numbers(left + width / 2), "y": numbers(top), "xanchor": "center"}
        notes.append({"text": name, "showarrow": False, "font": {"size": 12}} | place | ABOVE)
    bar = {"title": {"text": z_title, "side": "right"}, "thickness": 12, "outlinewidth": 0}
    color_axis = {"cmin": scale["zmin"], "cmax": scale["zmax"], "colorbar": bar}
    color_axis["colorscale"] = scale["colorscale"]
    return figure(
        data,
        title,
        caption,
        height=110 + down * (size + 40),
        annotations=notes,
        coloraxis=color_axis,
        showlegend=False,
        meta={"grid": {"across": across, "panels": len(matrices), "size": size}},
        **layout,
    )


def _ticks(labels: Sequence[str], most: int = 24) -> dict[str, Any]:
    """Ticks with these texts at 0, 1, …; every second, third … where there are more than `most`."""
    step = -(-len(labels) // most)
    at = list(range(0, len(labels), step))
    return {"tickmode": "array", "tickvals": at, "ticktext": [fitted(str(labels[i])) for i in at]}


ABOVE = {"xref": "paper", "yref": "paper", "yanchor": "bottom"}
"""Where the name of a panel stands: on its upper edge."""


def _panel(name: str, matrix: Any, n: str, titles: tuple[str, str, str]) -> dict[str, Any]:
    """One matrix as a trace on the axes numbered `n`."""
    return {
        "type": "heatmap",
        "z": numbers(matrix, 4),
        "xaxis": f"x{n}",
        "yaxis": f"y{n}",
        "coloraxis": "coloraxis",
        "name": name,
        "hovertemplate": hover(*titles, name),
    }


def _edge(title: str, shown: bool) -> dict[str, Any]:
    """A small axis; its title stands where it is `shown`."""
    style = axis(title, showgrid=False, tickfont={"size": 10}, nticks=4, automargin=False)
    return style if shown else style | {"title": {"text": ""}}
