"""Plotly's traces as Matplotlib draws them: curves and points, bars, matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mechint.figures.scales import colormap, ends, title_of
from mechint.figures.theme import color, fitted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHES = {"dash": "--", "dot": ":", "dashdot": "-.", "longdash": "--"}
MOST_TICKS = 48
"""Names that are measured beside a matrix; `fit` leaves out those that have no room."""
STEPS = {"hv": "post", "vh": "pre", "hvh": "mid"}
"""Plotly's step curves; "hv" goes across first, from each x to the next, as a histogram does."""


def fill(
    axes: Axes, traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any], stack: bool
) -> None:
    """Draw the traces of one panel; `stack`: its x axis is that of other panels, too."""
    bars = [trace for trace in traces if trace.get("type") == "bar"]
    floor: dict[Any, float] = {}
    for trace in traces:
        kind = trace.get("type", "scatter")
        if kind == "heatmap" and stack:
            _map(axes, trace)
        elif kind == "heatmap":
            _matrix(axes, trace, layout)
        elif kind == "bar":
            _bar(axes, trace, bars, layout, floor)
        else:
            _curve(axes, trace)


def _values(values: Any) -> Any:
    """Axis values: names as they are, numbers with gaps as NaN."""
    held = list(values or [])
    if any(isinstance(value, str) for value in held):
        return [str(value) for value in held]
    return np.array([np.nan if value is None else value for value in held], dtype=np.float64)


def _curve(axes: Axes, trace: Mapping[str, Any]) -> None:
    x, y = _values(trace.get("x")), _values(trace.get("y"))
    line, marker = trace.get("line") or {}, trace.get("marker") or {}
    mode = trace.get("mode", "lines")
    stroke = color(line.get("color") or _one(marker.get("color")))
    if trace.get("fill") == "toself":
        axes.fill(x, y, color=color(trace.get("fillcolor"), "#bbbbbb"), linewidth=0)
        return
    label = trace.get("name") if trace.get("showlegend", True) else None
    step: Any = STEPS.get(line.get("shape", ""))
    if trace.get("fill") == "tozeroy":
        shade = color(trace.get("fillcolor"), "#bbbbbb")
        axes.fill_between(x, 0, y, color=shade, linewidth=0, step=step)
    if "lines" in mode:
        style = {"linestyle": DASHES.get(line.get("dash", ""), "-"), "label": label}
        style["drawstyle"] = f"steps-{step}" if step else "default"
        axes.plot(x, y, color=stroke, linewidth=float(line.get("width", 2)) * 0.7, **style)
        label = None
    if "markers" in mode:
        _points(axes, trace, x, y, label)
    if "text" in mode:
        for place, text in enumerate(trace.get("text") or []):
            above = {"xytext": (0, 2), "textcoords": "offset points", "ha": "center"}
            axes.annotate(str(text), (x[place], y[place]), fontsize=6, va="bottom", **above)


def _points(axes: Axes, trace: Mapping[str, Any], x: Any, y: Any, label: str | None) -> None:
    """Points with their error bars, in colors of their own or on a scale beside which a bar says
    what it shows.
    """
    marker = trace.get("marker") or {}
    shades = marker.get("color")
    size = float(_one(marker.get("size")) or 6)
    style: dict[str, Any] = {"s": size**2 * 0.35, "label": label, "linewidths": 0}
    errors = {f"{one}err": _spread(trace, one) for one in "xy"}
    if any(values is not None for values in errors.values()):
        axes.errorbar(x, y, **errors, fmt="none", ecolor=color(_one(shades)), elinewidth=0.7)
    if not isinstance(shades, list) or all(isinstance(one, str) for one in shades):
        each = shades if isinstance(shades, list) else [shades]
        axes.scatter(x, y, c=[color(one, color(_one(shades))) for one in each], **style)
        return
    low, high = ends(marker, "cmin", "cmax", shades)
    style |= {"vmin": low, "vmax": high, "cmap": colormap(marker.get("colorscale"))}
    shown = axes.scatter(x, y, c=_values(shades), **style)
    if marker.get("showscale"):
        scale_bar(shown, [axes], title_of(marker))


def _spread(trace: Mapping[str, Any], axis: str) -> Any:
    """Half the length of each error bar along an axis ("x" or "y"); None where there are none."""
    array = (trace.get(f"error_{axis}") or {}).get("array")
    return _values(array) if array else None


def scale_bar(shown: Any, panels: Sequence[Axes], title: str) -> None:
    """The bar of a scale of colors right of its panels; `title` says what the colors show."""
    first = panels[0]
    if len(panels) > 1:
        bar = first.figure.colorbar(shown, ax=list(panels), aspect=30)
    else:  # as high as a panel whose units are equal
        bar = first.figure.colorbar(shown, cax=first.inset_axes((1.02, 0, 0.03, 1)))
    bar.set_label(title)


def _one(value: Any) -> Any:
    """A setting of all points alike; None where each has its own."""
    return None if isinstance(value, list) else value


def _bar(
    axes: Axes,
    trace: Mapping[str, Any],
    bars: Sequence[Mapping[str, Any]],
    layout: Mapping[str, Any],
    floor: dict[Any, float],
) -> None:
    """One group of bars, beside the others or on top of them."""
    lying = trace.get("orientation") == "h"
    across, up = ("y", "x") if lying else ("x", "y")
    x, y = list(trace.get(across) or []), np.nan_to_num(_values(trace.get(up)))
    names = any(isinstance(value, str) for value in x)
    places = np.arange(len(x), dtype=np.float64) if names else np.asarray(x, dtype=np.float64)
    gaps = np.diff(np.sort(places))
    room = 0.8 * (float(gaps.min()) if len(gaps) else 1.0)
    stacked = layout.get("barmode") == "stack"
    width = room if stacked else room / len(bars)
    shift = 0.0 if stacked else (bars.index(trace) - (len(bars) - 1) / 2) * width
    below = np.array([floor.get(place, 0.0) if stacked else 0.0 for place in places])
    shades = (trace.get("marker") or {}).get("color")
    fill = [color(one) for one in shades] if isinstance(shades, list) else color(shades)
    style = {"color": fill, "label": trace.get("name"), "error_kw": {"linewidth": 0.7}}
    spans = _spread(trace, up)
    if lying:
        axes.barh(places + shift, y, width, left=below, xerr=spans, **style)
    else:
        axes.bar(places + shift, y, width, bottom=below, yerr=spans, **style)
    floor.update(
        {place: float(base + top) for place, base, top in zip(places, below, y, strict=True)}
    )
    if names and lying:
        axes.set_yticks(places, [str(value) for value in x])
    elif names:
        axes.set_xticks(places, [str(value) for value in x], rotation=40 if len(x) > 8 else 0)


def _map(axes: Axes, trace: Mapping[str, Any]) -> None:
    """A matrix over two axes of numbers, which other panels have too."""
    limits: dict[str, Any] = {"vmin": trace.get("zmin"), "vmax": trace.get("zmax")}
    limits["cmap"] = colormap(trace.get("colorscale"))
    x, y = _values(trace["x"]), _values(trace["y"])
    shown = axes.pcolormesh(x, y, _cells(trace), shading="nearest", rasterized=True, **limits)
    scale_bar(shown, [axes], "")  # the panel's name says what the colors show


def _cells(trace: Mapping[str, Any]) -> Any:
    return np.array(
        [[np.nan if value is None else value for value in row] for row in trace["z"]],
        dtype=np.float64,
    )


def _matrix(axes: Axes, trace: Mapping[str, Any], layout: Mapping[str, Any]) -> None:
    from matplotlib.ticker import MaxNLocator

    z = _cells(trace)
    shared = layout.get("coloraxis") or {}
    low, high = trace.get("zmin", shared.get("cmin")), trace.get("zmax", shared.get("cmax"))
    shown = axes.imshow(
        z,
        origin="upper",
        aspect="auto",
        interpolation="nearest",
        vmin=low,
        vmax=high,
        cmap=colormap(trace.get("colorscale", shared.get("colorscale"))),
    )
    for values, set_ticks in ((trace.get("x"), axes.set_xticks), (trace.get("y"), axes.set_yticks)):
        if values:
            step = max(1, len(values) // MOST_TICKS)
            set_ticks(range(0, len(values), step), [fitted(str(v)) for v in values[::step]])
    for side, values in ((axes.xaxis, trace.get("x")), (axes.yaxis, trace.get("y"))):
        if not values:
            locator = side.get_major_locator()
            assert isinstance(locator, MaxNLocator)
            locator.set_params(integer=True)
    if trace.get("showscale", "coloraxis" not in trace):
        scale_bar(shown, [axes], title_of(trace))
