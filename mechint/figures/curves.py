"""Curves and bars: values over an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mechint.figures.figure import Figure, figure
from mechint.figures.marks import LINE, band_of, has_names, has_repeats, marked_levels
from mechint.figures.theme import (
    COLORS,
    axis,
    colors,
    faint,
    fitted,
    numbers,
    powers,
    strokes,
)


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
    groups: Mapping[str, str] | None = None,
    height: int = 380,
) -> Figure:
    """Curves over one axis.

    Args:
        x: the common x values (n,), or a mapping name → x values where the curves differ.
        series: name → y values (n,); NaN makes a gap.
        x_title, y_title: what is measured, with its unit in brackets: "loss (nats)".
        bands: name → (low, high), an area around that curve.
        levels: label → y of a dashed horizontal line (chance, a threshold, a prediction).
        null: (mean, low, high) of the null, drawn as a gray band.
        markers: points on the curves, for few values.
        groups: name → what it is one of, by which curves have their color; the first of each group
            stands in the legend for all.

    Where the palette does not last, colors are those of a ramp, and curves are solid, dashed and
    dotted by turns: neighbors on a ramp look alike.

    >>> lines([1, 2], {"train": [0.5, 1.0]}, title="Accuracy", x_title="step",
    ...     y_title="accuracy (0–1)", caption="It learns.").spec["data"][0]["y"]
    [0.5, 1.0]
    """
    data: list[dict[str, Any]] = []
    group_of = {name: (groups or {}).get(name, name) for name in series}
    first_of = {group: name for name, group in reversed(group_of.items())}
    drawn = strokes(group_of.values())
    for name, y in series.items():
        group = group_of[name]
        color = drawn[group]["color"]
        at = numbers(x[name] if isinstance(x, Mapping) else x)
        if bands and name in bands:
            low, high = (numbers(edge) for edge in bands[name])
            data.append(band_of(name, at, low, high, color))
        mode = "lines+markers" if markers else "lines"
        data.append(
            {
                "type": "scatter",
                "mode": mode,
                "name": name,
                "legendgroup": group,
                "x": at,
                "y": numbers(y),
                "line": {"width": 2, **drawn[group]},
            }
            | ({"marker": {"color": color, "size": 6}} if markers else {})
            | ({} if first_of[group] == name else {"showlegend": False})
        )
    first = data[0]["x"] if data else []
    x_axis = axis(x_title, log=x_log, labels=has_names(first))
    y_axis = axis(y_title, log=y_log) | ({"range": list(y_range)} if y_range else {})
    shown = [y_range] if y_range else [numbers(y) for y in series.values()]
    heights = [one for y in shown for one in y]
    marks = marked_levels(levels, null, y_log, len(series) == 1, values=heights, height=height)
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
    horizontal: bool | None = None,
    height: int | None = None,
) -> Figure:
    """Bars over categories or integers.

    Args:
        x: names, which may repeat, or numbers (n,); series: name → heights (n,).
        highlight: values of `x` whose bars are colored; the others fade (one series only).
        errors: name → half-length of an error bar (n,).
        levels, null: as for `lines`.
        y_log: heights on a logarithmic axis, as points: where a bar begins there is arbitrary, and
            so is its length.
        horizontal: bars from left to right, one line each; when None, where names are too long or
            too many to stand beside each other. `x_title` stays the name of the categories.

    >>> names = [f"L0 neuron {i}" for i in range(9)]
    >>> bars(names, {"loss": range(9)}, title="T", x_title="component", y_title="loss (nats)",
    ...     caption="C").spec["data"][0]["orientation"]
    'h'
    """
    at = numbers(x)
    lying = _too_long(at) if horizontal is None else horizontal
    repeat = has_names(at) and has_repeats(at)
    places = list(range(len(at))) if repeat else at
    data: list[dict[str, Any]] = []
    for color, (name, y) in zip(colors(len(series)), series.items(), strict=True):
        fill = _shades(color, at, highlight if len(series) == 1 else ())
        kind = {"type": "scatter", "mode": "markers"} if y_log else {"type": "bar"}
        bar = {
            **kind,
            "name": name,
            **({"y": places, "x": numbers(y), "orientation": "h"} if lying else {}),
            **({} if lying else {"x": places, "y": numbers(y)}),
            "marker": {"color": fill, "line": {"width": 0}, **({"size": 10} if y_log else {})},
        }
        if errors and name in errors:
            spread = {"type": "data", "array": numbers(errors[name]), "thickness": 1, "width": 3}
            bar["error_x" if lying else "error_y"] = spread
        data.append(bar)
    heights = [one for y in series.values() for one in numbers(y)]
    alone, room = len(series) == 1, {"values": [0.0, *heights], "height": height or 380}
    layout = {
        "barmode": "stack" if stacked else "group",
        "bargap": 0.15,
        **marked_levels(levels, null, y_log, alone, lying, **room),
    }
    names, values = axis(x_title, labels=has_names(places)), axis(y_title, log=y_log)
    if has_names(at) and (lying or repeat):
        names |= _fitted_ticks(at, repeat)
    if y_log:
        values["dtick"] = powers(heights, DECADES)
    if lying:
        names, values = values, names | {"autorange": "reversed", "showgrid": y_log}
        rows = len(at) * (1 if stacked else max(1, len(series)))
        notes = len(layout["annotations"])
        inside = max(40, (22 if rows == len(at) else 14) * rows)
        height = height or min(1200, 110 + inside + LINE * max(0, notes - 1))
        if notes and len(series) > 1:  # the names of the levels stand where a legend would
            layout["legend"] = {"orientation": "h", "x": 0, "y": -52 / inside, "yanchor": "top"}
            layout["meta"]["legend"] = "below"
            height += 24
    return figure(data, title, caption, height=height or 380, xaxis=names, yaxis=values, **layout)


def _shades(color: str, at: Sequence[Any], highlight: Sequence[Any]) -> str | list[str]:
    """The color of all bars, or of each where some are to stand out."""
    chosen = set(numbers(highlight))
    if not chosen:
        return color
    return [COLORS[1] if value in chosen else faint(color, 0.55) for value in at]


def _fitted_ticks(names: Sequence[Any], repeat: bool) -> dict[str, Any]:
    """Ticks with short forms of names; nothing where none is long, and none stands twice."""
    texts = [fitted(str(name)) for name in names]
    if texts == list(map(str, names)) and not repeat:
        return {}
    return {"tickmode": "array", "tickvals": list(range(len(texts))), "ticktext": texts}


DECADES = 6
"""Powers of ten that have room beside each other on a telephone's width."""

LONGEST = 60
"""Letters that the names below a plot may have together before its bars lie down."""


def _too_long(at: Any) -> bool:
    return has_names(at) and sum(len(str(name)) + 2 for name in at) > LONGEST
