"""A figure drawn by Matplotlib: the same panels, axes and marks, in the widths of journals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mechint.figures.scales import title_of
from mechint.figures.theme import INK, PIXELS_PER_INCH, color, fitted
from mechint.figures.traces import DASHES, fill
from mechint.jsonable import to_jsonable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LEFT, RIGHT, BOTTOM, TOP = 0.62, 0.15, 0.48, 0.42
"""Inches between the edges of the drawing and its panels."""
BAR, LETTER, ROW = 0.6, 0.062, 0.2
"""Inches that a scale of colors takes right of its panels, a letter of a name left of them, and a
row of marks' names above or of a legend below them.
"""


def draw(spec: Mapping[str, Any], width: float, height: float | None) -> Drawing:
    """Plotly's dictionary as a Matplotlib figure of `width` by `height` inches."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Drawing

    spec = to_jsonable(spec)
    layout, data = spec.get("layout", {}), spec.get("data", [])
    names = (fitted(n) for trace in data for n in trace.get("y") or [] if isinstance(n, str))
    layout = {**layout, "names": LETTER * (max(map(len, names), default=0) + 4)}
    tall = height or max(1.6, width * float(layout.get("height", 380)) / (PIXELS_PER_INCH * 7.2))
    with rc_context({"font.size": 8, "axes.linewidth": 0.6, "axes.edgecolor": INK}):
        drawing = Drawing(figsize=(width, tall))
        title = (layout.get("title") or {}).get("text", "")
        drawing.suptitle(title, x=0.02, ha="left", fontsize=9, fontweight="bold")
        panels: dict[tuple[str, str], Axes] = {}
        for trace in data:
            key = (trace.get("xaxis", "x"), trace.get("yaxis", "y"))
            if key not in panels:
                panels[key] = _panel(drawing, layout, *key)
        stack = _stacked(panels)
        for index, (key, axes) in enumerate(panels.items()):
            traces = [t for t in data if (t.get("xaxis", "x"), t.get("yaxis", "y")) == key]
            fill(axes, traces, layout, stack)
            _finish(axes, layout, key, legend=index == 0 and not stack)
        if stack:
            _join(drawing, layout, list(panels.values()))
        _color_bar(drawing, layout, list(panels.values()))
        _notes(drawing, layout, list(panels.values()))
    return drawing


def _axis(layout: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The layout of axis "x", "y2", … by Plotly's name of it ("xaxis", "yaxis2", …)."""
    return layout.get(f"{name[0]}axis{name[1:]}") or {}


def _stacked(panels: Mapping[tuple[str, str], Axes]) -> bool:
    """Whether several panels, the first above, have one x axis together."""
    return len(panels) > 1 and len({x for x, _ in panels}) == 1


def _join(drawing: Drawing, layout: Mapping[str, Any], panels: Sequence[Axes]) -> None:
    """One x axis below all panels, and one legend below it."""
    for axes in panels[:-1]:
        axes.set_xlim(panels[-1].get_xlim())
        axes.set_xlabel("")
        axes.tick_params(labelbottom=False)
    named = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        if not label.startswith("_")
    }
    if layout.get("showlegend") and named:
        style: dict[str, Any] = {"fontsize": 6.5, "frameon": False, "loc": "lower center"}
        drawing.legend(named.values(), named.keys(), ncols=min(6, len(named)), **style)


def _frame(drawing: Drawing, layout: Mapping[str, Any]) -> tuple[float, float, float, float]:
    """Left, bottom, width and height of all panels together, as shares of the drawing."""
    width, height = drawing.get_size_inches()
    right = RIGHT + (BAR if "coloraxis" in layout else 0)
    left = min(max(LEFT, layout["names"]), 0.6 * width)
    meta = layout.get("meta") or {}
    bottom = BOTTOM + (ROW if meta.get("legend") == "below" else 0)
    top = TOP + (ROW if meta.get("top") else 0)
    inches = left, bottom, max(width - left - right, 0.2), max(height - bottom - top, 0.2)
    return inches[0] / width, inches[1] / height, inches[2] / width, inches[3] / height


def _panel(drawing: Drawing, layout: Mapping[str, Any], x: str, y: str) -> Axes:
    """Axes at the place that the domains of the two axes name."""
    across = _axis(layout, x).get("domain") or [0, 1]
    up = _axis(layout, y).get("domain") or [0, 1]
    left, bottom, width, height = _frame(drawing, layout)
    size = (across[1] - across[0]) * width, (up[1] - up[0]) * height
    return drawing.add_axes((left + across[0] * width, bottom + up[0] * height, *size))


def _finish(
    axes: Axes,
    layout: Mapping[str, Any],
    key: tuple[str, str],
    *,
    legend: bool,
) -> None:
    """Titles, scales and ranges of the axes, levels and bands, the legend."""
    x, y = (_axis(layout, name) for name in key)
    axes.set_xlabel((x.get("title") or {}).get("text", ""))
    axes.set_ylabel((y.get("title") or {}).get("text", ""))
    if (_axis(layout, key[0]).get("domain") or [0])[0] > 0 and not axes.get_ylabel():
        axes.set_yticklabels([])  # a panel right of another that names its rows
    matrix = bool(axes.get_images())
    for style, scale, limits in (
        (x, axes.set_xscale, axes.set_xlim),
        (y, axes.set_yscale, axes.set_ylim),
    ):
        if style.get("type") == "log":
            scale("log")
        if style.get("range") and style.get("type") != "log" and not matrix:
            limits(*style["range"])
    if y.get("scaleanchor"):
        axes.set_aspect("equal", adjustable="box")
    if y.get("autorange") == "reversed" and not matrix:
        axes.invert_yaxis()
    for style, set_ticks in ((x, axes.set_xticks), (y, axes.set_yticks)):
        if style.get("tickvals"):
            set_ticks(style["tickvals"], [str(text) for text in style.get("ticktext") or []])
    axes.tick_params(length=2.5, width=0.6, color=INK)
    axes.spines[["top", "right"]].set_visible(matrix)
    for shape in layout.get("shapes") or []:
        _shape(axes, shape, key)
    if legend and layout.get("showlegend") and not matrix:
        axes.legend(fontsize=6.5, frameon=False)


def _shape(axes: Axes, shape: Mapping[str, Any], key: tuple[str, str]) -> None:
    """A level across the panel, a line up it, or a band."""
    line = shape.get("line") or {}
    style = {
        "color": color(line.get("color"), INK),
        "linewidth": 0.8,
        "linestyle": DASHES.get(line.get("dash", ""), "-"),
    }
    if shape.get("yref", "y") not in (key[1], "paper"):
        return
    if shape.get("type") == "rect" and shape.get("yref") == "paper":
        shade = color(shape.get("fillcolor"), "#dddddd")
        axes.axvspan(shape["x0"], shape["x1"], facecolor=shade, linewidth=0, zorder=0)
    elif shape.get("type") == "rect":
        shade = color(shape.get("fillcolor"), "#dddddd")
        axes.axhspan(shape["y0"], shape["y1"], facecolor=shade, linewidth=0, zorder=0)
    elif shape.get("xref") == "paper" and shape.get("y0") == shape.get("y1"):
        axes.axhline(shape["y0"], **style)
    elif shape.get("yref") == "paper" and shape.get("x0") == shape.get("x1"):
        axes.axvline(shape["x0"], **style)
    else:
        axes.plot([shape["x0"], shape["x1"]], [shape["y0"], shape["y1"]], **style)


def _color_bar(drawing: Drawing, layout: Mapping[str, Any], panels: Sequence[Axes]) -> None:
    """The one scale of panels that share it."""
    shared = layout.get("coloraxis")
    images = [image for axes in panels for image in axes.get_images()]
    if not shared or not images:
        return
    left, bottom, width, height = _frame(drawing, layout)
    inch = 1 / drawing.get_size_inches()[0]
    place = drawing.add_axes((left + width + 0.1 * inch, bottom, 0.1 * inch, height))
    bar = drawing.colorbar(images[0], cax=place)
    bar.set_label(title_of(shared))


def _notes(drawing: Drawing, layout: Mapping[str, Any], panels: Sequence[Axes]) -> None:
    """Names of panels and of levels; plotly.js places these in log10 of a logarithmic axis."""
    left, bottom, width, height = _frame(drawing, layout)
    for note in layout.get("annotations") or []:
        text, x, y = str(note.get("text", "")), note.get("x"), note.get("y")
        if x is None or y is None:
            continue
        if note.get("xref") == "paper" and note.get("yref") == "paper":
            place = left + x * width, bottom + y * height
            drawing.text(*place, text, ha=note.get("xanchor", "center"), va="bottom", fontsize=7)
        elif note.get("xref") == "paper" and panels:
            axes = panels[0]
            at = 10**y if axes.get_yscale() == "log" else y
            axes.text(1.0, at, text, transform=axes.get_yaxis_transform(), ha="right", fontsize=6.5)
        elif note.get("yref") == "paper" and panels:
            axes, shift = panels[0], (0, 0.55 * note.get("yshift", 0))
            at = 10**x if axes.get_xscale() == "log" else x
            lifted = {"xytext": shift, "textcoords": "offset points", "ha": "center"}
            lifted |= {"xycoords": axes.get_xaxis_transform(), "va": "bottom"}
            axes.annotate(text, (at, 1.0), fontsize=6.5, **lifted)
