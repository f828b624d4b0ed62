"""A figure drawn by Matplotlib: the same panels, axes and marks, in the widths of journals."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mechint.errors import ParameterError
from mechint.figures.fitting import fit, wrap
from mechint.figures.scales import title_of
from mechint.figures.theme import INK, PIXELS_PER_INCH, color
from mechint.figures.traces import DASHES, fill, scale_bar
from mechint.jsonable import to_jsonable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

BESIDE = 0.3
"""The share of the width that the name of a level may take right of a panel; a longer one stands
inside.
"""


def draw(spec: Mapping[str, Any], width: float, height: float | None) -> Drawing:
    """Plotly's dictionary as a Matplotlib figure of `width` by `height` inches; where None, as high
    as its panels and the texts around them need.

    Raises:
        ParameterError: the texts leave no room for the panels.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Drawing

    spec = _plain(to_jsonable(spec))
    layout, data = spec.get("layout", {}), spec.get("data", [])
    tall = height or max(1.6, width * float(layout.get("height", 380)) / (PIXELS_PER_INCH * 7.2))
    with rc_context({"font.size": 8, "axes.linewidth": 0.6, "axes.edgecolor": INK}):
        drawing = Drawing(figsize=(width, tall), layout="constrained")
        title = (layout.get("title") or {}).get("text", "")
        drawing.suptitle(title, x=0.02, ha="left", fontsize=9, fontweight="bold")
        panels = _panels(drawing, layout, data)
        stack = _stacked(panels)
        for key, axes in panels.items():
            traces = [trace for trace in data if _key(trace) == key]
            fill(axes, traces, layout, stack)
            _finish(axes, layout, key)
        held = list(panels.values())
        if stack:
            _join(held)
        elif len(held) > 1:
            _outer(drawing, held)
        shared, images = layout.get("coloraxis"), [i for axes in held for i in axes.get_images()]
        if shared and images:
            scale_bar(images[0], held, title_of(shared))
        _notes(drawing, layout, panels)
        if layout.get("showlegend"):
            _legend(drawing, held)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="constrained_layout not applied")
            try:
                fit(drawing, layout, held, grows=height is None)
            except UserWarning:
                size = f"width={width}" + (f", height={height}" if height else "")
                raise ParameterError(
                    f"{size}: titles and names leave no room for the plot; expected more inches"
                ) from None
    return drawing


def _plain(value: Any) -> Any:
    """`value` with every "$" of its texts as itself: Matplotlib reads "$x_$" as a formula."""
    if isinstance(value, str):
        return value.replace("$", r"\$")
    if isinstance(value, dict):
        return {name: _plain(held) for name, held in value.items()}
    return [_plain(held) for held in value] if isinstance(value, list) else value


def _axis(layout: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The layout of axis "x", "y2", … by Plotly's name of it ("xaxis", "yaxis2", …)."""
    return layout.get(f"{name[0]}axis{name[1:]}") or {}


def _domain(layout: Mapping[str, Any], name: str) -> tuple[float, float]:
    """Where an axis begins and ends, as shares of what all panels take."""
    low, high = _axis(layout, name).get("domain") or (0.0, 1.0)
    return low, high


def _key(trace: Mapping[str, Any]) -> tuple[str, str]:
    """The axes of a trace, which name its panel."""
    return trace.get("xaxis", "x"), trace.get("yaxis", "y")


def _panels(
    drawing: Drawing, layout: Mapping[str, Any], data: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, str], Axes]:
    """Axes in rows and columns, as the domains of their axes lie."""
    keys = list(dict.fromkeys(map(_key, data))) or [("x", "y")]
    columns = dict(sorted({_domain(layout, x)[0]: _domain(layout, x) for x, _ in keys}.items()))
    rows = {_domain(layout, y)[1]: _domain(layout, y) for _, y in keys}
    rows = dict(sorted(rows.items(), reverse=True))
    grid = drawing.add_gridspec(
        *(len(rows), len(columns)),
        width_ratios=[high - low for low, high in columns.values()],
        height_ratios=[high - low for low, high in rows.values()],
    )
    across, down = list(columns), list(rows)
    return {
        (x, y): drawing.add_subplot(
            grid[down.index(_domain(layout, y)[1]), across.index(_domain(layout, x)[0])]
        )
        for x, y in keys
    }


def _stacked(panels: Mapping[tuple[str, str], Axes]) -> bool:
    """Whether several panels, the first above, have one x axis together."""
    return len(panels) > 1 and len({x for x, _ in panels}) == 1


def _join(panels: Sequence[Axes]) -> None:
    """One x axis below all panels."""
    for axes in panels[:-1]:
        axes.set_xlim(panels[-1].get_xlim())
        axes.set_xlabel("")
        axes.tick_params(labelbottom=False)


def _outer(drawing: Drawing, panels: Sequence[Axes]) -> None:
    """Names of panels in rows and columns on their outer edges: ticks where they are alike, and
    each title once.
    """
    places = [axes.get_subplotspec() for axes in panels]
    taken = {(place.rowspan.start, place.colspan.start) for place in places if place is not None}
    alike = len({(axes.get_xlim(), axes.get_ylim()) for axes in panels}) == 1
    for axes, place in zip(panels, places, strict=True):
        if alike and place is not None:
            row, column = place.rowspan.start, place.colspan.start
            axes.tick_params(left=column == 0, labelleft=column == 0)
            lowest = (row + 1, column) not in taken
            axes.tick_params(bottom=lowest, labelbottom=lowest)
    for get, clear, once in (
        ("get_xlabel", "set_xlabel", drawing.supxlabel),
        ("get_ylabel", "set_ylabel", drawing.supylabel),
    ):
        titles = {getattr(axes, get)() for axes in panels} - {""}
        if len(titles) == 1:
            once(titles.pop(), fontsize=8)
            for axes in panels:
                getattr(axes, clear)("")


def _legend(drawing: Drawing, panels: Sequence[Axes]) -> None:
    """Each name once, below the panels, where no curve runs; as many beside each other as fit."""
    named = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        if not label.startswith("_")
    }
    style: dict[str, Any] = {"fontsize": 6.5, "frameon": False, "loc": "outside lower center"}
    wide = drawing.dpi * drawing.get_figwidth()
    for columns in range(min(6, len(named)), 0, -1):
        legend = drawing.legend(named.values(), named.keys(), ncols=columns, **style)
        if columns == 1 or legend.get_window_extent().width < 0.98 * wide:
            return
        legend.remove()


def _finish(axes: Axes, layout: Mapping[str, Any], key: tuple[str, str]) -> None:
    """Titles, scales and ranges of the axes, levels and bands."""
    x, y = (_axis(layout, name) for name in key)
    axes.set_xlabel((x.get("title") or {}).get("text", ""))
    axes.set_ylabel((y.get("title") or {}).get("text", ""))
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


def _notes(
    drawing: Drawing, layout: Mapping[str, Any], panels: Mapping[tuple[str, str], Axes]
) -> None:
    """Names of panels and of levels; plotly.js places these in log10 of a logarithmic axis."""
    if not panels:
        return
    first = next(iter(panels.values()))
    wide = drawing.dpi * drawing.get_figwidth()
    for note in layout.get("annotations") or []:
        text, x, y = str(note.get("text", "")), note.get("x"), note.get("y")
        if x is None or y is None:
            continue
        lifted: dict[str, Any] = {"fontsize": 6.5, "textcoords": "offset points", "va": "bottom"}
        shift = 0.55 * note.get("yshift", 0)
        if note.get("xref") == "paper" and note.get("yref") == "paper":
            axes = panels[min(panels, key=lambda key: _far(layout, key, x, y))]
            side = "left" if note.get("xanchor") == "left" else "center"
            axes.set_title(text, loc=side, fontsize=7, pad=2)
        elif note.get("xref") == "paper":
            at = 10**y if first.get_yscale() == "log" else y
            lifted["xycoords"] = first.get_yaxis_transform()
            held = first.annotate(text, (1, at), xytext=(0, shift), ha="right", **lifted)
            beside = note.get("xanchor") == "left"
            if beside and held.get_window_extent().width < BESIDE * wide:
                held.set(ha="left", va="center", position=(3, shift))
        elif note.get("yref") == "paper":
            at = 10**x if first.get_xscale() == "log" else x
            above = shift + (6 if first.get_title(loc="left") else 0)
            lifted["xycoords"] = first.get_xaxis_transform()
            held = first.annotate(text, (at, 1.0), xytext=(0, above), ha="center", **lifted)
            wrap(held, 0.9 * wide)


def _far(layout: Mapping[str, Any], key: tuple[str, str], x: float, y: float) -> float:
    """How far a point is from the upper edge of a panel."""
    low, high = _domain(layout, key[0])
    return max(low - x, 0.0, x - high) + abs(y - _domain(layout, key[1])[1])
