"""Figures of numbers against numbers: lines, bars, points and distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechint.figures.theme import (
    COLORS,
    CYCLIC,
    DIVERGING,
    MARGIN,
    SEQUENTIAL,
    axis,
    band,
    colors,
    faint,
    figure,
    level,
    numbers,
)
from mechint.results import Figure


def _names(values: Any) -> bool:
    """Whether axis values are names rather than numbers."""
    return len(values) > 0 and isinstance(values[0], str)


def _levels(
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


def lines(
    x: Any,
    series: Mapping[str, Any],
    *,
    title: str,
    x_title: str,
    y_title: str,
    caption: str,
    x_log: bool = False,
    y_log: bool = False,
    bands: Mapping[str, tuple[Any, Any]] | None = None,
    levels: Mapping[str, float] | None = None,
    null: tuple[float, float, float] | None = None,
    markers: bool = False,
    y_range: tuple[float, float] | None = None,
    height: int = 380,
) -> Figure:
    """Curves over one axis.

    Args:
        x: the common x values (n,), or a mapping name → x values where the curves differ.
        series: name → y values (n,); NaN makes a gap.
        x_title, y_title: what is measured, with its unit in brackets: "loss (nats)".
        bands: name → (low, high), an area around that curve.
        levels: label → y of a dashed horizontal line (chance, a threshold, a prediction).
        null: (mean, low, high) of the null, drawn as a grey band.
        markers: points on the curves, for few values.

    >>> lines([1, 2], {"train": [0.5, 1.0]}, title="Accuracy", x_title="step",
    ...     y_title="accuracy (0–1)", caption="It learns.").spec["data"][0]["y"]
    [0.5, 1.0]
    """
    data: list[dict[str, Any]] = []
    for color, (name, y) in zip(colors(len(series)), series.items(), strict=True):
        at = numbers(x[name] if isinstance(x, Mapping) else x)
        if bands and name in bands:
            low, high = (numbers(edge) for edge in bands[name])
            area = {
                "x": at + at[::-1],
                "y": high + low[::-1],
                "fill": "toself",
                "fillcolor": faint(color, 0.18),
                "line": {"width": 0},
            }
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": name,
                    "legendgroup": name,
                    "showlegend": False,
                    "hoverinfo": "skip",
                }
                | area
            )
        mode = "lines+markers" if markers else "lines"
        data.append(
            {
                "type": "scatter",
                "mode": mode,
                "name": name,
                "legendgroup": name,
                "x": at,
                "y": numbers(y),
                "line": {"color": color, "width": 2},
            }
            | ({"marker": {"color": color, "size": 6}} if markers else {})
        )
    first = data[0]["x"] if data else []
    x_axis = axis(x_title, log=x_log, labels=_names(first))
    y_axis = axis(y_title, log=y_log) | ({"range": list(y_range)} if y_range else {})
    marks = _levels(levels, null, y_log, len(series) == 1)
    return figure(
        data, title, caption, height=height, xaxis=x_axis, yaxis=y_axis, hovermode="x", **marks
    )


def bars(
    x: Any,
    series: Mapping[str, Any],
    *,
    title: str,
    x_title: str,
    y_title: str,
    caption: str,
    levels: Mapping[str, float] | None = None,
    null: tuple[float, float, float] | None = None,
    highlight: Sequence[Any] = (),
    stacked: bool = False,
    y_log: bool = False,
    errors: Mapping[str, Any] | None = None,
    height: int = 380,
) -> Figure:
    """Bars over categories or integers.

    Args:
        x: names or numbers (n,); series: name → heights (n,).
        highlight: values of `x` whose bars are colored; the others fade (one series only).
        errors: name → half-length of an error bar (n,).
        levels, null: as for `lines`.
    """
    at = numbers(x)
    data: list[dict[str, Any]] = []
    for color, (name, y) in zip(colors(len(series)), series.items(), strict=True):
        fill: Any = color
        if len(highlight) > 0 and len(series) == 1:
            chosen = set(numbers(highlight))
            fill = [COLORS[1] if value in chosen else faint(color, 0.55) for value in at]
        bar = {
            "type": "bar",
            "name": name,
            "x": at,
            "y": numbers(y),
            "marker": {"color": fill, "line": {"width": 0}},
        }
        if errors and name in errors:
            bar["error_y"] = {
                "type": "data",
                "array": numbers(errors[name]),
                "thickness": 1,
                "width": 3,
            }
        data.append(bar)
    layout = {
        "barmode": "stack" if stacked else "group",
        "bargap": 0.15,
        **_levels(levels, null, y_log, len(series) == 1),
    }
    return figure(
        data,
        title,
        caption,
        height=height,
        xaxis=axis(x_title, labels=_names(at)),
        yaxis=axis(y_title, log=y_log),
        **layout,
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
    mode = "markers+text" if labels else "markers"
    data: list[dict[str, Any]] = []
    if groups is not None:
        kinds = list(dict.fromkeys(groups))
        for color, kind in zip(colors(len(kinds)), kinds, strict=True):
            members = [i for i, group in enumerate(groups) if group == kind]
            trace = {
                "name": str(kind),
                "x": [x[i] for i in members],
                "y": [y[i] for i in members],
                "marker": {"color": color, "size": 8, "opacity": 0.85},
            }
            data.append(
                trace | ({"text": [str(text[i]) for i in members]} if text is not None else {})
            )
    else:
        marker: dict[str, Any] = {"size": 8, "opacity": 0.85, "color": COLORS[0]}
        if color is not None:
            scale = CYCLIC if cyclic else DIVERGING if diverging else SEQUENTIAL
            bar = {
                "title": {"text": color_title, "side": "right"},
                "thickness": 12,
                "outlinewidth": 0,
            }
            marker |= {
                "color": numbers(color),
                "colorscale": scale,
                "showscale": True,
                "colorbar": bar,
            } | ({"cmid": 0} if diverging else {})
        data.append(
            {"x": x, "y": y, "marker": marker}
            | ({"text": [str(item) for item in text]} if text is not None else {})
        )
    data = [
        {"type": "scatter", "mode": mode, "textposition": "top center", "textfont": {"size": 10}}
        | trace
        for trace in data
    ]
    return figure(
        data,
        title,
        caption,
        height=height,
        xaxis=axis(x_title, log=x_log, labels=_names(x)),
        yaxis=axis(
            y_title,
            log=y_log,
            labels=_names(y),
            **({"scaleanchor": "x", "scaleratio": 1} if equal else {}),
        ),
        hovermode="closest",
    )


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
    shapes, notes = [], []
    for name, value in (marks or {}).items():
        at = numbers(float(value))
        shapes.append(
            {
                "type": "line",
                "yref": "paper",
                "x0": at,
                "x1": at,
                "y0": 0,
                "y1": 1,
                "line": {"color": COLORS[1], "width": 1.5, "dash": "dash"},
            }
        )
        notes.append(
            {
                "yref": "paper",
                "x": at,
                "y": 1,
                "yanchor": "bottom",
                "text": name,
                "showarrow": False,
                "font": {"size": 11, "color": COLORS[1]},
            }
        )
    return figure(
        data,
        title,
        caption,
        height=height,
        xaxis=axis(x_title),
        yaxis=axis(y_title, rangemode="tozero"),
        shapes=shapes,
        annotations=notes,
    )
