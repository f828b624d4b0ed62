"""Figures drawn by plotly.js: the specification, and a page with one figure."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.figures.parts import Axis, Layer, Line, Plot, Scale
from mechint.figures.static import WHOLE, height_of, inline_svg
from mechint.figures.theme import (
    FONT,
    GRID,
    MAX_TICKS,
    QUIET,
    SCALES,
    finite,
    shorten_label,
    with_alpha,
    wrap_title,
)

if TYPE_CHECKING:
    from mechint.figures.figure import Figure

VIEW = Path(__file__).parent / "view"


def specification(figure: Figure) -> dict[str, Any]:
    """The dictionary that plotly.js draws: "data", "layout", "frames" of the steps, and "view"."""
    made = {"data": _traces(figure), "layout": _layout(figure)}
    if figure.view is not None:
        made["view"] = figure.view
    if figure.steps:
        made["frames"] = [
            {"name": name, "caption": step.caption, **_changes(specification(step), made)}
            for name, step in figure.steps.items()
        ]
    return made


def _changes(spec: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """The changes that make `spec` of the `last` one: per trace the fields that differ, and those
    of the layout; all traces where their number differs.
    """
    if len(spec["data"]) != len(last["data"]):
        return {"data": spec["data"], "whole": True, "layout": spec["layout"]}
    pairs = zip(spec["data"], last["data"], strict=True)
    return {
        "data": [_difference(own, other) for own, other in pairs],
        "layout": _difference(spec["layout"], last["layout"]),
    }


def _difference(own: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `own` that `last` has not so; None for those that it lacks."""
    changed = {name: value for name, value in own.items() if last.get(name) != value}
    return changed | {name: None for name in last if name not in own}


def _traces(figure: Figure) -> list[dict[str, Any]]:
    traces = []
    for place, plot in enumerate(figure.plots):
        number = "" if place == 0 else str(place + 1)
        shared = figure.kind == "panels"  # one x axis for all
        axes = {"xaxis": "x" if shared else f"x{number}", "yaxis": f"y{number}"}
        for layer in plot.layers:
            for trace in _trace(layer, plot, first=not place):
                place_of = {name: value for name, value in axes.items() if value != name[0]}
                traces.append({**trace, **place_of})
    return traces


def _trace(layer: Layer, plot: Plot, first: bool) -> list[dict[str, Any]]:
    color = layer.color if isinstance(layer.color, str) else list(layer.color)
    common: dict[str, Any] = {"x": list(layer.x), "y": list(layer.y)}
    if layer.name:
        common |= {"name": layer.name, "legendgroup": layer.name}
    if not layer.name or not layer.legend:
        common["showlegend"] = False
    if layer.kind == "matrix":
        return [_matrix(layer, plot, first)]
    if layer.kind == "edges":
        return _edges(layer, common)
    names = _hover_names(layer, plot)
    if layer.kind == "bars":
        bar = {**common, "type": "bar", "marker": {"color": color, "line": {"width": 0}}}
        bar |= {"orientation": "h"} if layer.lying else {}
        return [bar | names]
    if layer.kind == "curve":
        line: dict[str, Any] = {"color": color, "width": layer.width}
        line |= {"shape": "hv"} if layer.step else {}
        mode = "lines+markers" if layer.markers else "lines"
        curve = {**common, "type": "scatter", "mode": mode, "line": line}
        if layer.step:
            return [curve | {"fill": "tozeroy", "fillcolor": with_alpha(str(color), 0.2)}]
        return [*_band(layer, common), curve | names]
    marker: dict[str, Any] = {"size": 9 if layer.lying else 7, "color": color}
    if layer.values is not None and layer.scale is not None:
        marker |= {"color": list(layer.values), **_colors(layer.scale, "c"), "showscale": True}
    mode = "markers+text" if layer.labels else "markers"
    points = {**common, "type": "scatter", "mode": mode, "marker": marker}
    if layer.text is not None:
        points |= {"text": [_plain(text) for text in layer.text], "textposition": "top center"}
        points |= {"textfont": {"size": 10}}
        return [points]
    return [points | names]


def _matrix(layer: Layer, plot: Plot, first: bool) -> dict[str, Any]:
    assert layer.scale is not None and layer.z is not None, "a matrix without a scale"
    trace: dict[str, Any] = {"type": "heatmap", "z": [list(row) for row in layer.z]}
    trace |= _colors(layer.scale, "z") | {"showscale": first, "showlegend": False}
    if plot.title:
        trace["name"] = plot.title
    if layer.cells:
        texts = [[_plain(text) for text in row] for row in layer.cells]
        trace |= {"text": texts, "texttemplate": "%{text}", "textfont": {"size": 11}}
    x, y, z = (_plain(text) for text in (plot.x.title, plot.y.title, layer.scale.title))
    trace["hovertemplate"] = f"{x}: %{{x}}<br>{y}: %{{y}}<br>{z}: %{{z:.4g}}<extra></extra>"
    return trace


def _edges(layer: Layer, common: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A trace per edge, and invisible points in their middle that say what they are."""
    widths = layer.width if isinstance(layer.width, Sequence) else [layer.width] * len(layer.x)
    style = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    traces = [
        {**common, **style, "x": list(x), "y": list(y), "line": {"color": layer.color, "width": w}}
        | ({"showlegend": False} if place else {})
        for place, (x, y, w) in enumerate(zip(layer.x, layer.y, widths, strict=True))
    ]
    if layer.text is not None:
        middle = {"x": [x[len(x) // 2] for x in layer.x], "y": [y[len(y) // 2] for y in layer.y]}
        text = {"text": [_plain(one) for one in layer.text], "hoverinfo": "text"}
        hidden = {"marker": {"size": 12, "opacity": 0}, "showlegend": False}
        traces.append({"type": "scatter", "mode": "markers", **middle, **text, **hidden})
    return traces


def _band(layer: Layer, common: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The area around a curve, which comes and goes with it."""
    if layer.low is None or layer.high is None:
        return []
    area = {
        "x": [*layer.x, *reversed(layer.x)],
        "y": [*layer.high, *reversed(layer.low)],
        "fillcolor": with_alpha(str(layer.color), 0.18),
        "showlegend": False,
        "hoverinfo": "skip",
        "fill": "toself",
        "line": {"width": 0},
    }
    return [{**common, "type": "scatter", "mode": "lines", **area}]


def _hover_names(layer: Layer, plot: Plot) -> dict[str, Any]:
    """The names of the places, shown on hover where an axis has names."""
    axis, places = (plot.y, layer.y) if layer.lying else (plot.x, layer.x)
    if axis.names is None:
        return {}
    names = [_plain(axis.names[at]) if isinstance(at, int) else "" for at in places]
    value = "x" if layer.lying else "y"
    return {"customdata": names, "hovertemplate": f"%{{customdata}}: %{{{value}:.4g}}"}


def _colors(scale: Scale, letter: str) -> dict[str, Any]:
    stops = SCALES[scale.colors]
    colors = [[i / (len(stops) - 1), color] for i, color in enumerate(stops)]
    title = wrap_title(_plain(scale.title), True, "<br>")
    bar = {"title": {"text": title, "side": "right"}, "thickness": 10}
    ends = {f"{letter}min": scale.low, f"{letter}max": scale.high}
    return {**ends, "colorscale": colors, "colorbar": {**bar, "outlinewidth": 0}}


def _layout(figure: Figure) -> dict[str, Any]:
    named = [one for p in figure.plots for one in p.layers if one.name and one.legend]
    over = [plot.crowded(one) for plot in figure.plots for one in plot.lines if one.text]
    above = 13 * ((len(named) > 1) + max(over)) if over else 0  # names of lines, then series
    above += 16 * (figure.columns > 1 and any(plot.title for plot in figure.plots))
    layout: dict[str, Any] = {
        "title": {"text": _plain(figure.title), "x": 0, "xref": "container", "font": {"size": 15}},
        "font": {"family": FONT, "size": 12},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "height": height_of(figure, WHOLE),
        "showlegend": len(named) > 1,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "xanchor": "left"},
        "meta": {
            "top": 52 if figure.kind == "panels" and figure.plots[0].lines else 30 + above,
            "columns": figure.columns,
        },
        "hovermode": "x" if figure.kind in ("lines", "panels", "histogram") else "closest",
        "shapes": [],
        "annotations": [],
    }
    if any(one.kind == "bars" for plot in figure.plots for one in plot.layers):
        layout |= {"barmode": "group", "bargap": 0.15}
    for place, plot in enumerate(figure.plots):
        number = "" if place == 0 else str(place + 1)
        domains = _domains(figure, place)
        shared = figure.kind == "panels"
        layout[f"yaxis{number}"] = _axis(plot.y, plot, "y") | {"domain": domains[1]}
        if not shared or place == len(figure.plots) - 1:
            name = "xaxis" if shared else f"xaxis{number}"
            bottom = f"y{number}"
            layout[name] = _axis(plot.x, plot, "x") | {"domain": domains[0], "anchor": bottom}
        if not shared:
            layout[f"yaxis{number}"]["anchor"] = f"x{number}"
        if plot.equal:
            layout[f"yaxis{number}"] |= {"scaleanchor": f"x{number}", "constrain": "domain"}
            layout[f"xaxis{number}"]["constrain"] = "domain"
        _hide_inner_titles(figure, place, layout, number)
        for line in plot.lines:
            shape, note = _line(line, number, "" if shared else number, plot)
            layout["shapes"].append(shape)
            layout["annotations"] += (
                [{**one, "yshift": 12 + one.get("yshift", 0)} for one in note]
                if shared and line.axis == "x"
                else note
            )
        title = plot.y.title if shared else plot.title
        if title and len(figure.plots) > 1:
            head = {"text": _plain(title), "showarrow": False, "font": {"size": 11}}
            at = {"x": domains[0][0], "y": domains[1][1], "xref": "paper", "yref": "paper"}
            layout["annotations"].append({**head, **at, "xanchor": "left", "yanchor": "bottom"})
    lift = 26 if figure.kind == "panels" else above
    layout["legend"]["y"] = 1 + lift / layout["height"]
    layout["meta"]["lift"] = lift
    return layout


def _hide_inner_titles(figure: Figure, place: int, layout: dict[str, Any], number: str) -> None:
    """Titles of axes stand on the outer edges of a grid, and above the panels of a stack."""
    if figure.kind == "panels":
        layout[f"yaxis{number}"]["title"] = {"text": ""}
        return
    across = max(1, min(figure.columns, len(figure.plots)))
    if place % across:
        layout[f"yaxis{number}"]["title"] = {"text": ""}
    if place + across < len(figure.plots):
        layout[f"xaxis{number}"]["title"] = {"text": ""}


def _domains(figure: Figure, place: int) -> tuple[list[float], list[float]]:
    """The parts of the width and of the height that the panel `place` has."""
    across = max(1, min(figure.columns, len(figure.plots)))
    down = -(-len(figure.plots) // across)
    row, column = divmod(place, across)
    gap_x, gap_y = (0.06 if across > 1 else 0.0), (0.24 / down if down > 1 else 0.0)
    wide, tall = (1 - gap_x * (across - 1)) / across, (1 - gap_y * (down - 1)) / down
    left, top = column * (wide + gap_x), 1 - row * (tall + gap_y)
    x, y = [left, left + wide], [max(0.0, top - tall), top]
    return [round(end, 4) for end in x], [round(end, 4) for end in y]


def _axis(axis: Axis, plot: Plot, letter: str) -> dict[str, Any]:
    style: dict[str, Any] = {
        "title": {"text": wrap_title(_plain(axis.title), letter == "y", "<br>"), "standoff": 8},
        "gridcolor": GRID,
        "zeroline": False,
        "linecolor": QUIET,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": QUIET,
        "automargin": True,
    }
    matrix = any(layer.kind == "matrix" for layer in plot.layers)
    if axis.log:
        seen = [v for one in plot.layers for v in finite(list(getattr(one, letter))) if v > 0]
        decades = math.log10(max(seen, default=1.0) / min(seen, default=1.0))
        style |= {"type": "log", "exponentformat": "power", "dtick": 1 + int(decades / 4)}
    if plot.bare:
        style["visible"] = False
    if matrix:
        style["showgrid"] = False
    if axis.names is not None:
        step = -(-len(axis.names) // MAX_TICKS) or 1
        at = list(range(0, len(axis.names), step))
        texts = [_plain(shorten_label(axis.names[i])) for i in at]
        style |= {"tickmode": "array", "tickvals": at, "ticktext": texts}
        short = max((len(text) for text in texts), default=0) * len(texts) < 40
        style |= {"tickangle": 0} if letter == "x" and short else {}
    if axis.reverse:
        style["autorange"] = "reversed"
    if axis.span is not None:
        low, high = axis.span
        if axis.log:
            low, high = math.log10(low), math.log10(high)
        style["range"] = [high, low] if axis.reverse else [low, high]
        style.pop("autorange", None)
    return style


def _line(
    line: Line, y_number: str, x_number: str, plot: Plot
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A layout's shape across a panel, and the annotation with its name."""
    own, number, log = (
        ("x", x_number, plot.x.log) if line.axis == "x" else ("y", y_number, plot.y.log)
    )
    other = "y" if own == "x" else "x"
    across = f"{other}{y_number if other == 'y' else x_number} domain"
    end = line.at if line.to is None else line.to
    shape: dict[str, Any] = {
        "type": "line" if line.to is None else "rect",
        f"{own}ref": f"{own}{number}",
        f"{own}0": line.at,
        f"{own}1": end,
        f"{other}ref": across,
        f"{other}0": 0,
        f"{other}1": 1,
        "line": {"color": line.color, "width": 1.2 if line.to is None else 0},
    }
    if line.to is None and line.dash:
        shape["line"]["dash"] = line.dash
    if line.to is not None:
        shape |= {"fillcolor": line.color, "opacity": 0.2, "layer": "below"}
    if not line.text:
        return shape, []
    at = line.at if line.to is None else (line.at + line.to) / 2
    at = math.log10(at) if log and at > 0 else at
    note: dict[str, Any] = {
        "text": _plain(line.text),
        "showarrow": False,
        "font": {"size": 11},
        f"{own}ref": f"{own}{number}",
        own: at,
        f"{other}ref": across,
        other: 1,
        "yanchor": "bottom",
        "xanchor": plot.side(line) if own == "x" else "right",
    }
    crowded = plot.crowded(line)
    if crowded and own == "y":
        note |= {"x": 0, "xanchor": "left"}
    if crowded and own == "x":
        note["yshift"] = 13 * crowded
    return shape, [note]


def _plain(text: str) -> str:
    """A text that plotly.js, which reads markup, shows letter by letter."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def asset(name: str) -> str:
    """A script or a style sheet of a figure in a page: "figures.js", "attention.js" …"""
    return (VIEW / name).read_text(encoding="utf-8")


COLORS = (
    ":root{--ink:#1b1f24;--quiet:#626b76;--rule:#dfe2e4;--grid:#e4e7e9;--panel:#f5f6f5;"
    "--accent:#00639c;--bad:#b3420a;--paper:#fff}@media screen and (prefers-color-scheme:dark){"
    ":root{--ink:#e4e7ea;--quiet:#9aa4af;--rule:#2f353b;--grid:#2b3137;--panel:#1b1f23;"
    "--accent:#6cb8ea;--bad:#f0915a;--paper:#131619}}"
    "html{color:var(--ink);background:var(--paper);font:14px/1.5 system-ui,sans-serif;"
    "color-scheme:light dark}body{max-width:860px;margin:24px auto}svg{width:100%}"
)


def page_of(figure: Figure) -> str:
    """The figure as one HTML file that opens offline."""
    title, scripts = html.escape(figure.title), [asset("figures.js")]
    if figure.view is not None:
        scripts = [asset("attention.js")]
    elif figure.plots:
        from plotly.offline import get_plotlyjs

        scripts = [get_plotlyjs(), *scripts]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{COLORS}{asset('attention.css')}</style></head><body><h1>{title}</h1>"
        f'<figure>{element(figure, "figure")}<figcaption class="caption">'
        f"{html.escape(figure.caption)}</figcaption></figure>"
        + "".join(f"<script>{text}</script>" for text in scripts)
        + "</body></html>"
    )


def element(figure: Figure, name: str) -> str:
    """The figure's static drawing, and beside it what a script makes it interactive from."""
    if not figure.plots:
        return ""
    drawn = f'<div class="static">{inline_svg(figure, name)}</div>'
    if figure.view is not None:
        data = _json(figure.view)
        held = f'<script type="application/json" data-view="view-{name}">{data}</script>'
        return f'{drawn}<div class="view" id="view-{name}"></div>{held}'
    data = _json(figure.spec)
    held = f'<script type="application/json" data-plot="plot-{name}">{data}</script>'
    label = html.escape(figure.caption)
    plot = f'<div class="plot" id="plot-{name}" role="img" aria-label="{label}" hidden></div>'
    return f"{drawn}{plot}{held}"


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")
