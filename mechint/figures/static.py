"""Figures drawn by Matplotlib: SVG for pages, SVG, PDF and PNG for papers."""

from __future__ import annotations

import io
import itertools
import math
import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mechint.figures.parts import Axis, Layer, Line, Plot, Scale
from mechint.figures.theme import (
    GRID,
    INK,
    MAX_TICKS,
    QUIET,
    SCALES,
    finite,
    shorten_label,
    wrap_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    from mechint.figures.figure import Figure

DPI = 96
"""Pixels of a page in an inch of a drawing."""
HALF, WHOLE = 440, 800
"""Pixels of a figure beside another in a page, and of one that needs the whole width."""
PANEL, SHORTEST, TALL, NARROWEST = 110, 190, 290, 130
"""Pixels: height of a stacked panel, least one of lying bars, beside which a title stands, that of
an ordinary figure; least width of a panel in a grid.
"""
DASHES = {"": "-", "dash": (0, (4, 2)), "dot": (0, (1, 2))}
END_LABELS = 16
"""Curves that are labeled at their ends; more are named in a legend."""
PAGE_COLORS = {INK: "--ink,currentColor", QUIET: "--quiet,currentColor", GRID: "--grid,#8884"}
"""Color of a drawing → variable of the page that it follows, and what is drawn without one."""
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.5,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "xtick.bottom": False,
    "ytick.left": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": QUIET,
    "ytick.labelcolor": QUIET,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "text.color": INK,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "svg.fonttype": "none",
    "text.parse_math": False,
    "figure.dpi": 72,
    "path.simplify_threshold": 0.3,
}


def height_of(figure: Figure, width: int) -> int:
    """Pixels of the height of `figure` at a width in pixels."""
    if not figure.plots:
        return 60
    if figure.kind == "panels":
        return 70 + (PANEL + 24) * len(figure.plots)
    if figure.columns > 1 or len(figure.plots) > 1:
        across = _columns(figure, width)
        panel = figure.size or min(230, round((width - 110) / across))
        return 60 + math.ceil(len(figure.plots) / across) * (panel + 28)
    plot = figure.plots[0]
    bars = [layer for layer in plot.layers if layer.lying]
    if bars:
        rows = len(bars[0].y) * (1 if bars[0].kind == "points" else len(bars))
        return min(1100, max(SHORTEST, 80 + (20 if rows == len(bars[0].y) else 12) * rows))
    if plot.equal:  # the color bar takes a part of the width
        return min(figure.size or width, round(0.8 * width))
    return figure.size or TALL


def _columns(figure: Figure, width: int) -> int:
    """Panels beside each other: fewer where the figure is narrow."""
    return max(1, min(figure.columns, len(figure.plots), width // NARROWEST))


def drawing(figure: Figure, form: str, width: float, height: float | None = None) -> bytes:
    """Bytes of the figure as "svg", "pdf" or "png" (300 dots per inch), equal each time.

    Args:
        width, height: in inches.
    """
    import matplotlib

    matplotlib.set_loglevel("ERROR")  # fonts that are not installed are replaced
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": figure.title}):
        drawn = draw(figure, width, height, titled=True)
        stamp: Any = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[form]
        held = io.BytesIO()
        drawn.savefig(held, format=form, dpi=300, metadata=stamp)
    return held.getvalue()


def inline_svg(figure: Figure, name: str) -> str:
    """The figure as an SVG element of a page, whose colors follow the page's and whose ids begin
    with a hash of `name`.
    """
    import matplotlib

    width = WHOLE if figure.wide else HALF
    matplotlib.set_loglevel("ERROR")
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        drawn = draw(figure, width / DPI, height_of(figure, width) / DPI)
        held = io.BytesIO()
        drawn.savefig(held, format="svg", metadata={"Date": None, "Creator": None})
    return _embedded(held.getvalue().decode(), figure)


def _embedded(svg: str, figure: Figure) -> str:
    """An SVG document as an element without what a page does not need."""
    import html

    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r"[(\"]#([\w-]+)", svg))
    svg = re.sub(r' id="([\w.-]+)"', lambda m: m[0] if m[1] in used else "", svg)
    svg = re.sub(r"font-family: [^;\"]*;? ?| transform=\"rotate\(-0 [^\"]*\"", "", svg)
    for color, variable in PAGE_COLORS.items():
        svg = svg.replace(color, f"var({variable})")
    svg = re.sub(r"<[^>]+>", lambda tag: _shortened(tag[0]), re.sub(r"\s+", " ", svg))
    svg = svg.replace("> <", "><")
    view = re.search(r'viewBox="[^"]*"', svg)
    head = f'<svg {view[0] if view else ""} role="img" aria-label="{html.escape(figure.caption)}">'
    return head + svg[svg.index(">") + 1 :].strip()


def _shortened(tag: str) -> str:
    """A tag with numbers of two decimals and without spaces that say nothing.

    >>> _shortened('<path style="fill: none; width: 1.23456 "/>')
    '<path style="fill:none;width:1.23"/>'
    """
    return re.sub(r"([:;]) | +(?=\")", r"\1", re.sub(r"(\d+\.\d{2})\d+", r"\1", tag))


def draw(
    figure: Figure, width: float, height: float | None = None, titled: bool = False
) -> Drawing:
    """The Matplotlib figure, `width` by `height` inches; its title above it where `titled`."""
    from matplotlib.figure import Figure as Drawing

    height = height or height_of(figure, round(width * DPI)) / DPI * (1.05 if titled else 1.0)
    square = any(plot.equal for plot in figure.plots)  # whose labels "constrained" would cut
    made = Drawing(figsize=(width, height), layout="compressed" if square else "constrained")
    made.patch.set_visible(False)
    made.get_layout_engine().set(w_pad=0.03, h_pad=0.03, hspace=0.02, wspace=0.02)  # type: ignore[union-attr]
    if titled:
        lines = textwrap.fill(figure.title, max(20, int(13 * width)))
        made.suptitle(lines, x=0.01, ha="left", fontsize=9.5)
    if not figure.plots:
        made.text(0.01, 0.4, figure.caption, wrap=True)
        return made
    across = _columns(figure, round(width * DPI))
    down = -(-len(figure.plots) // across)
    grid = made.subplots(down, across, squeeze=False, sharex=figure.kind == "panels").ravel()
    for spare in grid[len(figure.plots) :]:
        spare.set_visible(False)
    for place, (axes, plot) in enumerate(zip(grid, figure.plots, strict=False)):
        edge = place % across == 0, place + across >= len(figure.plots)
        _draw_plot(axes, plot, several=len(figure.plots) > 1, stacked=figure.kind == "panels")
        if figure.columns > 1:
            axes.set_ylabel(wrap_title(plot.y.title, up=True) if edge[0] else "")
            axes.set_xlabel(plot.x.title if edge[1] else "")
            axes.label_outer()
        elif len(figure.plots) > 1 and not edge[1]:
            axes.set_xlabel("")
    scales = [one.scale for plot in figure.plots for one in plot.layers if one.scale]
    if scales:
        _color_bar(made, grid[: len(figure.plots)].tolist(), scales[0])
    for axes, plot in zip(grid, figure.plots, strict=False):
        _name_series(axes, plot)
    return made


def _draw_plot(axes: Axes, plot: Plot, *, several: bool, stacked: bool) -> None:
    axes.patch.set_visible(False)
    matrix = any(layer.kind == "matrix" for layer in plot.layers)
    if plot.bare:
        axes.set_axis_off()
        axes.margins(0.12)
    elif not matrix:
        axes.grid(True)
    axes.spines["left"].set_visible(plot.y.names != [])
    for name in "xy":
        if getattr(plot, name).log:
            getattr(axes, f"set_{name}scale")("log")
            ticks = getattr(axes, f"{name}axis")
            ticks.set_major_formatter(lambda value, _: power(value))
            ticks.set_minor_formatter(lambda *_: "")
    groups = [layer for layer in plot.layers if layer.kind == "bars"]
    for layer in plot.layers:
        place = groups.index(layer) if layer in groups else 0
        _draw_layer(axes, layer, place, max(1, len(groups)))
    for line in plot.lines:
        _draw_line(axes, line, plot, 15 if stacked else 2)
    if groups and min(finite([one.x if one.lying else one.y for one in groups]), default=-1) >= 0:
        axes.set_xlim(left=0) if groups[0].lying else axes.set_ylim(bottom=0)
    for name, axis in (("x", plot.x), ("y", plot.y)):
        _set_axis(axes, name, axis, matrix)
    if plot.equal:
        axes.set_aspect("equal", adjustable="box")
    if stacked:
        letters = int(12 * axes.figure.get_figwidth())  # pyright: ignore[reportAttributeAccessIssue]
        axes.set_title(textwrap.fill(plot.y.title, letters), loc="left", color=QUIET, pad=4)
        axes.set_ylabel("")
        axes.locator_params(axis="y", nbins=4) if not plot.y.log else None
    elif several and plot.title:
        across = axes.get_subplotspec().get_gridspec().ncols  # pyright: ignore[reportOptionalMemberAccess]
        letters = int(10 * axes.figure.get_figwidth() / across)  # pyright: ignore[reportAttributeAccessIssue]
        axes.set_title(textwrap.fill(plot.title, letters), pad=3)


def _set_axis(axes: Axes, name: str, axis: Axis, matrix: bool) -> None:
    setter = getattr(axes, f"set_{name}label")
    setter(wrap_title(axis.title, name == "y"))
    if axis.span is not None:
        getattr(axes, f"set_{name}lim")(*axis.span)
    if axis.names is not None:
        step = -(-len(axis.names) // MAX_TICKS) or 1
        at = list(range(0, len(axis.names), step))
        texts = [shorten_label(axis.names[i]) for i in at]
        tilted = name == "x" and _crowded(axes, [len(text) for text in texts])
        style: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
        getattr(axes, f"set_{name}ticks")(at, texts, **(style if tilted else {}))
        if not matrix and len(axis.names) > 1:
            getattr(axes, f"set_{name}lim")(-0.6, len(axis.names) - 0.4)
    elif matrix:
        from matplotlib.ticker import MaxNLocator

        ticks = getattr(axes, f"{name}axis")
        ticks.set_major_locator(MaxNLocator(6, integer=True))
    if axis.reverse and not matrix:
        axes.invert_yaxis()


def _crowded(axes: Axes, lengths: Sequence[int]) -> bool:
    """Return whether texts of so many letters, side by side below the axes, would touch."""
    grid = axes.get_subplotspec()
    across = grid.get_gridspec().ncols if grid is not None else 1
    room = 0.8 * 72 * axes.figure.get_figwidth() / across / max(1, len(lengths))  # pyright: ignore[reportAttributeAccessIssue]
    return any(5 * (a + b) / 2 + 4 > room for a, b in itertools.pairwise(lengths))


def _draw_layer(axes: Axes, layer: Layer, place: int, groups: int) -> None:
    x, y = _values(layer.x), _values(layer.y)
    color: Any = layer.color
    if layer.kind == "curve":
        if layer.low is not None and layer.high is not None:
            step: Any = "post" if layer.step else None
            low, high = _values(layer.low), _values(layer.high)
            axes.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0, step=step)
        style: dict[str, Any] = {"linewidth": 0.75 * layer.width}  # type: ignore[operator]
        if layer.markers:
            style |= {"marker": "o", "markersize": 3.5}
        if layer.step:
            style["drawstyle"] = "steps-post"
        axes.plot(x, y, color=color, **style)
    elif layer.kind == "points":
        _draw_points(axes, layer, x, y)
    elif layer.kind == "bars":
        _draw_bars(axes, layer, x, y, place, groups)
    elif layer.kind == "matrix":
        _draw_matrix(axes, layer)
    elif layer.kind == "edges":
        for xs, ys, width in zip(layer.x, layer.y, layer.width, strict=True):  # type: ignore[arg-type]
            axes.plot(xs, ys, color=color, linewidth=0.75 * width, zorder=1)


def _draw_points(axes: Axes, layer: Layer, x: np.ndarray, y: np.ndarray) -> None:
    style: dict[str, Any] = {"s": 26 if layer.lying else 18, "linewidths": 0, "zorder": 3}
    style["rasterized"] = len(x) > 1500
    if layer.values is not None and layer.scale is not None:
        scale = layer.scale
        style |= {"c": _values(layer.values), "cmap": _map(scale)}
        style |= {"vmin": scale.low, "vmax": scale.high}
    else:
        style["c"] = layer.color if isinstance(layer.color, str) else list(layer.color)
    axes.scatter(x, y, **style)
    if layer.labels and layer.text is not None:
        step = -(-len(layer.text) // 45)
        style = {"textcoords": "offset points", "ha": "center", "fontsize": 7.5}
        for at, on, text in list(zip(x, y, layer.text, strict=True))[::step]:
            axes.annotate(text, (at, on), (0, 4), **style)


def _draw_bars(
    axes: Axes, layer: Layer, x: np.ndarray, y: np.ndarray, place: int, groups: int
) -> None:
    places, values = (y, x) if layer.lying else (x, y)
    gap = np.diff(np.sort(places)).min() if len(places) > 1 else 1.0
    thick = 0.85 * gap / groups
    at = places + (place - (groups - 1) / 2) * thick
    draw = axes.barh if layer.lying else axes.bar
    draw(at, values, thick, color=layer.color, linewidth=0)  # type: ignore[arg-type]


def _draw_matrix(axes: Axes, layer: Layer) -> None:
    z = np.array([_values(row) for row in layer.z or ()])
    scale = layer.scale
    assert scale is not None, "a matrix without a scale"
    axes.imshow(
        z,
        cmap=_map(scale),
        vmin=scale.low,
        vmax=scale.high,
        interpolation="none",
        aspect="auto",
        origin="upper",
    )
    for row, line in enumerate(layer.cells or ()):
        for column, text in enumerate(line):
            value = z[row, column]
            share = (value - scale.low) / ((scale.high - scale.low) or 1.0)
            red, green, blue, _ = _map(scale)(share)
            light = 0.3 * red + 0.59 * green + 0.11 * blue > 0.55
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5}
            axes.text(column, row, text, color="#101418" if light else "#ffffff", **style)


def _draw_line(axes: Axes, line: Line, plot: Plot, lift: int) -> None:
    span = axes.axvspan if line.axis == "x" else axes.axhspan
    straight = axes.axvline if line.axis == "x" else axes.axhline
    if line.to is not None:
        span(line.at, line.to, color=line.color, alpha=0.18, linewidth=0, zorder=0)
    else:
        straight(line.at, color=line.color, linewidth=0.9, linestyle=DASHES[line.dash])  # type: ignore[arg-type]
    if not line.text:
        return
    at = line.at if line.to is None else (line.at + line.to) / 2
    style: dict[str, Any] = {"fontsize": 7.5, "color": line.color, "textcoords": "offset points"}
    crowded = plot.crowded(line)
    if line.axis == "x":
        style |= {"xycoords": axes.get_xaxis_transform(), "ha": plot.side(line), "va": "bottom"}
        axes.annotate(line.text, (at, 1), (0, lift + 9 * crowded), **style)
    else:
        style |= {"xycoords": axes.get_yaxis_transform(), "ha": "left" if crowded else "right"}
        axes.annotate(line.text, (0 if crowded else 1, at), (0, 1), va="bottom", **style)


def _name_series(axes: Axes, plot: Plot) -> None:
    """Names of the series: at the ends of curves where they are few, else above the plot."""
    named = [layer for layer in plot.layers if layer.name and layer.legend]
    if len(named) < 2:
        return
    if len(named) <= END_LABELS and all(one.kind == "curve" and not one.step for one in named):
        _label_ends(axes, named)
        return
    from matplotlib.lines import Line2D

    over = [plot.crowded(line) for line in plot.lines if line.axis == "x" and line.text]
    handles = [
        Line2D(
            [],
            [],
            color=one.color if isinstance(one.color, str) else one.color[0],
            marker="o" if one.kind == "points" else "s" if one.kind == "bars" else "",
            linestyle="" if one.kind in ("points", "bars") else "-",
            markersize=4.5,
            label=one.name,
        )
        for one in named
    ]
    letters = 13 * axes.figure.get_figwidth() * axes.get_position().width  # pyright: ignore[reportAttributeAccessIssue]
    columns = max(1, min(len(named), int(letters / (max(len(one.name) for one in named) + 5))))
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        columnspacing=1.2,
        handletextpad=0.4,
        borderpad=0.2,
        borderaxespad=3.0 + 1.2 * max(over) if over else 0.5,
    )


def _label_ends(axes: Axes, curves: Sequence[Layer]) -> None:
    """Each curve's name beside its last point, moved apart where curves end close together."""
    height = axes.figure.get_figheight() * 72 * axes.get_position().height  # pyright: ignore[reportAttributeAccessIssue]
    gap = 9.5 / max(height, 1.0)
    ends = []
    for curve in curves:
        held = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if y is not None]
        if not held or (axes.get_yscale() == "log" and held[-1][1] <= 0):
            continue
        share = axes.transAxes.inverted().transform(axes.transData.transform(held[-1]))[1]
        ends.append([float(np.clip(share, 0, 1)), curve])
    ends.sort(key=lambda end: end[0])
    for place in range(1, len(ends)):
        ends[place][0] = max(ends[place][0], ends[place - 1][0] + gap)
    over = max(0.0, ends[-1][0] - 1.0) if ends else 0.0
    for share, curve in ends:
        axes.annotate(
            curve.name,
            (1, share - over),
            (4, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=curve.color,
        )


def _color_bar(made: Drawing, axes: Sequence[Axes], scale: Scale) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    shown = ScalarMappable(Normalize(scale.low, scale.high), _map(scale))
    bar = made.colorbar(shown, ax=list(axes), fraction=0.05, pad=0.02, aspect=30)
    bar.set_label(wrap_title(scale.title, up=True))
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=2)


def _map(scale: Scale) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    made = LinearSegmentedColormap.from_list(scale.colors, list(SCALES[scale.colors]))
    return made.with_extremes(bad=(0, 0, 0, 0))


def power(value: float) -> str:
    """A tick of a logarithmic axis.

    >>> power(0.01), power(1e-07), power(3e5)
    ('0.01', '10⁻⁷', '3·10⁵')
    """
    if 1e-3 < value < 1e5:
        return f"{value:g}"
    digits, exponent = f"{value:.0e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if digits == "1" else f"{digits}·10{raised}"


def _values(values: Sequence[Any]) -> np.ndarray:
    return np.array([math.nan if one is None else one for one in values], dtype=np.float64)
