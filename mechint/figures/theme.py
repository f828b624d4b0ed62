"""The look of every figure: colors that color-blind readers tell apart, one layout, numbers short
enough to ship.

A figure is the plain dictionary that plotly.js draws, so that making one imports no Plotly, and
equal numbers give equal bytes. Backgrounds are transparent and text is a gray that reads on white
and on black; a report refines it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Okabe & Ito (2008), the order changed so that the first three differ most in lightness too
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#7F7F7F")
SEQUENTIAL = "Viridis"
DIVERGING = [
    [0.0, "#2166AC"],
    [0.25, "#92C5DE"],
    [0.5, "#F7F7F7"],
    [0.75, "#F4A582"],
    [1.0, "#B2182B"],
]
CYCLIC = [
    [0.0, "#D55E00"],
    [0.2, "#E6C04B"],
    [0.4, "#4FA36B"],
    [0.6, "#2C7FB8"],
    [0.8, "#8C4FA3"],
    [1.0, "#D55E00"],
]
VIRIDIS = (
    "#440154",
    "#482878",
    "#3E4A89",
    "#31688E",
    "#26828E",
    "#1F9E89",
    "#35B779",
    "#6CCE59",
    "#B4DE2C",
)
WHOLE_VIRIDIS = (*VIRIDIS, "#FDE725")
"""Viridis to its last yellow, which fills cells and is too pale for lines."""
LINE_RAMP = VIRIDIS[2:]
"""Viridis without its darkest colors, which a line of them loses on a dark page."""
INK, GRID = "#7A828E", "rgba(128,136,148,0.25)"
MARGIN = {"l": 64, "r": 24, "t": 48, "b": 52}
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def numbers(values: Any, digits: int = 5) -> Any:
    """Nested lists of `values` (tensor, array or sequence) with floats of `digits` significant
    digits; non-finite is a gap.

    >>> numbers([1, 0.123456789, float("nan")])
    [1, 0.12346, None]
    """
    if isinstance(values, float):
        return float(f"{values:.{digits}g}") if math.isfinite(values) else None
    if hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, list | tuple | range):
        return [numbers(value, digits) for value in values]
    return values


PIXELS_PER_INCH = 130
"""How many pixels of a page stand for an inch of a drawing."""


def color(value: Any, otherwise: str = "#0072B2") -> Any:
    """A color of Plotly as Matplotlib takes it.

    >>> color("rgba(255,0,0,0.5)"), color("#D55E00"), color(None)
    ((1.0, 0.0, 0.0, 0.5), '#D55E00', '#0072B2')
    """
    if not isinstance(value, str):
        return otherwise
    match = re.fullmatch(r"rgba?\(([^)]*)\)", value.replace(" ", ""))
    if match is None:
        return value
    red, green, blue, *alpha = (float(part) for part in match[1].split(","))
    return (red / 255, green / 255, blue / 255, alpha[0] if alpha else 1.0)


def colors(n: int) -> list[str]:
    """`n` line colors: the palette while it lasts, an ordered ramp for long families such as
    primes or layers.
    """
    if n <= len(COLORS):
        return list(COLORS[:n])
    return [ramp(LINE_RAMP, i / (n - 1)) for i in range(n)]


def strokes(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Name → "color", and "dash" in a family for which the palette does not last: its curves are
    solid, dashed and dotted by turns, since neighbors on a ramp look alike.

    >>> [stroke.get("dash") for stroke in strokes(map(str, range(10))).values()][:4]
    [None, 'dash', 'dot', None]
    """
    own = list(dict.fromkeys(names))
    turns: tuple[dict[str, str], ...] = ({}, {"dash": "dash"}, {"dash": "dot"})
    turns = turns if len(own) > len(COLORS) else ({},)
    return {
        name: {"color": color, **turns[i % len(turns)]}
        for i, (name, color) in enumerate(zip(own, colors(len(own)), strict=True))
    }


def ramp(stops: Sequence[str], share: float) -> str:
    """The color at `share` (0 to 1) of a scale whose `stops` ("#RRGGBB") are equally far apart.

    >>> ramp(["#000000", "#ff0000"], 0.2)
    '#330000'
    """
    place = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    ends = [[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops[low : low + 2]]
    return "#" + "".join(
        f"{round(a + (b - a) * (place - low)):02x}" for a, b in zip(*ends, strict=True)
    )


def faint(color: str, alpha: float) -> str:
    """`color` ("#RRGGBB") at opacity `alpha`."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def axis(title: str, *, log: bool = False, labels: bool = False, **more: Any) -> dict[str, Any]:
    """One axis; `title` names the quantity, with its unit in brackets; `labels`: the values are
    names, not numbers.
    """
    assert title.strip(), "an axis without a name"
    style = {
        "title": {"text": title, "standoff": 8},
        "gridcolor": GRID,
        "zeroline": False,
        "linecolor": INK,
        "ticks": "outside",
        "ticklen": 4,
    }
    if log:
        style |= {"type": "log", "dtick": 1, "exponentformat": "power"}
        style |= {"tickfont": {"size": 10}}  # powers are drawn a quarter larger
    if labels:
        style |= {"type": "category"}
    return style | {"tickcolor": INK, "automargin": True} | more


def powers(values: Sequence[Any], most: int) -> int:
    """Powers of ten from one tick of a logarithmic axis to the next, for about `most` ticks.

    >>> powers([1e-14, 0.0, 1e-2], 4), powers([0.1, 30.0], 4)
    (3, 1)
    """
    seen = [value for value in values if value is not None and value > 0]
    decades = math.log10(max(seen) / min(seen)) if seen else 1.0
    return max(1, math.ceil(decades / most))


LEGEND_EDGES, LEGEND_ROW = 120, 21
"""Pixels above and below a legend, and of one of its rows: all of them are shown."""


def layout_of(
    data: Sequence[Mapping[str, Any]], title: str, height: int = 380, **layout: Any
) -> dict[str, Any]:
    """The common layout of traces `data`, with what `layout` changes."""
    assert title.strip(), "a figure without a title"
    named = sum(1 for trace in data if trace.get("showlegend", True) and trace.get("name"))
    base = {
        "title": {
            "text": title,
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            "font": {"size": 15},
            "pad": {"l": 12, "t": 4},
        },
        "font": {"family": FONT, "size": 12, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": MARGIN,
        "height": max(height, LEGEND_EDGES + LEGEND_ROW * named) if named > 1 else height,
        "showlegend": named > 1,
        "legend": {"bgcolor": "rgba(0,0,0,0)", "tracegroupgap": 2},
        "hoverlabel": {"font": {"family": FONT}},
        "modebar": {
            "bgcolor": "rgba(0,0,0,0)",
            "color": "rgba(128,136,148,0.5)",
            "activecolor": INK,
        },
    }
    return base | layout


def level(
    value: float, text: str, color: str = INK, dash: str = "dash"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A horizontal line across the plot and its label, as a layout's shape and annotation."""
    y = numbers(float(value))
    shape = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": y,
        "y1": y,
        "line": {"color": color, "width": 1.2, "dash": dash},
    }
    note = {
        "xref": "paper",
        "x": 1,
        "xanchor": "right",
        "y": y,
        "yanchor": "bottom",
        "text": text,
        "showarrow": False,
        "font": {"size": 11, "color": color},
    }
    return shape, note


def band(low: float, high: float) -> dict[str, Any]:
    """A horizontal band from `low` to `high` across the plot, behind the data."""
    y0, y1 = numbers([float(low), float(high)])
    return {
        "type": "rect",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": y0,
        "y1": y1,
        "fillcolor": faint("#808894", 0.22),
        "line": {"width": 0},
        "layer": "below",
    }


NAME = 40
"""Letters of a name beside an axis; a telephone's width holds them and the plot."""


def fitted(name: str) -> str:
    """A name short enough to stand beside an axis: its begin and its end.

    >>> fitted("L0H1"), len(fitted("blocks.0.attn.hook_result of the head before the last one"))
    ('L0H1', 40)
    """
    if len(name) <= NAME:
        return name
    return f"{name[: NAME // 2 - 1]}…{name[-NAME // 2 :]}"
