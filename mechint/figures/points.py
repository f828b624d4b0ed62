"""Points and distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechint.figures.figure import Figure, figure
from mechint.figures.marks import LINE, has_names, rows_of
from mechint.figures.theme import (
    COLORS,
    CYCLIC,
    DIVERGING,
    MARGIN,
    SEQUENTIAL,
    axis,
    colors,
    faint,
    numbers,
)


def scatter(
    x: Any,
    y: Any,
    *,
    title: str,
    x_title: str,
    y_title: str,
    caption: str,
    color: Any = None,
    color_title: str = "",
    groups: Sequence[str] | None = None,
    text: Sequence[str] | None = None,
    labels: bool = False,
    diverging: bool = False,
    cyclic: bool = False,
    equal: bool = False,
    x_log: bool = False,
    y_log: bool = False,
    height: int = 460,
) -> Figure:
    """Points.

    Args:
        x, y: coordinates (n,).
        color: numbers (n,), shown by a color scale named `color_title`: sequential, `diverging` or
            `cyclic` (residues, phases).
        groups: name of each point's class (n,), shown by color and legend, in place of `color`.
        text: shown on hover (n,), and beside the points with `labels`.
        equal: one unit is as long on both axes.
    """
    x, y = numbers(x), numbers(y)
    if groups is not None:
        data = _grouped(x, y, groups, text)
    else:
        scale = CYCLIC if cyclic else DIVERGING if diverging else SEQUENTIAL
        marker = _scaled(color, color_title, scale, 0 if diverging else None)
        data = [{"x": x, "y": y, "marker": marker} | _hover(text)]
    mode = "markers+text" if labels else "markers"
    common = {"type": "scatter", "mode": mode, "textposition": "top center"}
    data = [{**common, "textfont": {"size": 10}, **trace} for trace in data]
    return figure(
        data,
        title,
        caption,
        height=height,
        xaxis=axis(x_title, log=x_log, labels=has_names(x)),
        yaxis=axis(
            y_title,
            log=y_log,
            labels=has_names(y),
            **({"scaleanchor": "x", "scaleratio": 1} if equal else {}),
        ),
        hovermode="closest",
    )


def _grouped(
    x: list[Any], y: list[Any], groups: Sequence[str], text: Sequence[str] | None
) -> list[dict[str, Any]]:
    """One trace per class of points."""
    kinds = list(dict.fromkeys(groups))
    data = []
    for color, kind in zip(colors(len(kinds)), kinds, strict=True):
        members = [i for i, group in enumerate(groups) if group == kind]
        trace = {
            "name": str(kind),
            "x": [x[i] for i in members],
            "y": [y[i] for i in members],
            "marker": {"color": color, "size": 8, "opacity": 0.85},
        }
        data.append(trace | _hover(None if text is None else [text[i] for i in members]))
    return data


def _hover(text: Sequence[str] | None) -> dict[str, Any]:
    return {} if text is None else {"text": [str(item) for item in text]}


def _scaled(color: Any, title: str, scale: Any, middle: float | None) -> dict[str, Any]:
    """Markers of one color, or of numbers on a scale with its bar."""
    marker: dict[str, Any] = {"size": 8, "opacity": 0.85, "color": COLORS[0]}
    if color is None:
        return marker
    bar = {"title": {"text": title, "side": "right"}, "thickness": 12, "outlinewidth": 0}
    marker |= {"color": numbers(color), "colorscale": scale, "showscale": True, "colorbar": bar}
    return marker | ({} if middle is None else {"cmid": middle})


def histogram(
    series: Mapping[str, Any],
    *,
    title: str,
    x_title: str,
    caption: str,
    bins: int = 40,
    y_title: str = "density (1 / unit of x)",
    marks: Mapping[str, float] | None = None,
    height: int = 380,
) -> Figure:
    """Densities of samples, one step curve each over common bins; `marks`: label → x of a vertical
    line (the observed value).

    The samples themselves are not stored, so the figure stays small.
    """
    samples = {
        name: np.asarray(numbers(values, 9), dtype=np.float64).ravel()
        for name, values in series.items()
    }
    pool = np.concatenate(
        [*samples.values(), np.asarray(list((marks or {}).values()), dtype=np.float64)]
    )
    edges = np.histogram_bin_edges(pool[np.isfinite(pool)], bins=bins)
    data: list[dict[str, Any]] = []
    for color, (name, values) in zip(colors(len(samples)), samples.items(), strict=True):
        density, _ = np.histogram(values[np.isfinite(values)], bins=edges, density=True)
        line = {"color": color, "width": 1.5, "shape": "hv"}
        y = numbers([*density, 0.0])
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x": numbers(edges),
                "y": y,
                "line": line,
                "fill": "tozeroy",
                "fillcolor": faint(color, 0.2),
            }
        )
    shapes, notes = _marked(marks or {})
    names = [*(marks or {})]
    above = [LINE * row for row in rows_of([n["x"] for n in notes], names, edges[[0, -1]].tolist())]
    notes = [{**note, "yshift": up} if up else note for note, up in zip(notes, above, strict=True)]
    high = max(above, default=0)
    raised = {"margin": MARGIN | {"t": MARGIN["t"] + high}, "meta": {"top": 24 + high}}
    return figure(
        data,
        title,
        caption,
        height=height,
        xaxis=axis(x_title),
        yaxis=axis(y_title, rangemode="tozero"),
        shapes=shapes,
        annotations=notes,
        **(raised if high else {}),
    )


def _marked(marks: Mapping[str, float]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Dashed vertical lines and their labels."""
    shapes, notes = [], []
    for name, value in marks.items():
        at = numbers(float(value))
        up = {"type": "line", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1}
        shapes.append(up | {"line": {"color": COLORS[1], "width": 1.5, "dash": "dash"}})
        label = {"yref": "paper", "x": at, "y": 1, "yanchor": "bottom", "showarrow": False}
        notes.append(label | {"text": name, "font": {"size": 11, "color": COLORS[1]}})
    return shapes, notes
