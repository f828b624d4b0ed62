"""What stands beside a plot as text of the page: its title, its axes, and the scale of its colors.

Text of the page wraps and is never cut, whatever the width; a plot's own titles are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mechint.figures.figure import Figure
from mechint.figures.scales import ends
from mechint.figures.steps import at_steps
from mechint.figures.theme import WHOLE_VIRIDIS

HEX = re.compile(r"#[0-9a-fA-F]{6}")
AXIS = re.compile(r"([xy])axis\d*")


@dataclass(frozen=True)
class Scale:
    """A scale of colors: what it shows, its ends, and the colors between them."""

    title: str
    low: float | None
    high: float | None
    colors: Sequence[str]


@dataclass(frozen=True)
class Legend:
    """title: of the figure; x, y: what the axes show, "" where panels differ; scale: of the
    colors.
    """

    title: str
    x: str
    y: str
    scale: Scale | None

    @property
    def hoisted(self) -> str:
        """The axes, "x" and "y", whose title the page shows, so that the plot does not."""
        return " ".join(name for name in ("x", "y") if getattr(self, name))


def legend_of(figure: Figure) -> Legend:
    """What the page writes around `figure`.

    >>> from mechint import figures
    >>> drawn = figures.lines([0, 1], {"a": [1, 2]}, title="T", x_title="step", y_title="loss",
    ...     caption="")
    >>> legend_of(drawn).hoisted, legend_of(drawn).y
    ('x y', 'loss')
    """
    layout = figure.spec.get("layout") or {}
    axes: dict[str, set[str]] = {"x": set(), "y": set()}
    for name, style in layout.items():
        if (match := AXIS.fullmatch(name)) and isinstance(style, Mapping):
            axes[match[1]].add(_text(style))
    shared = {name: texts - {""} for name, texts in axes.items()}
    x, y = (next(iter(texts)) if len(texts) == 1 else "" for texts in shared.values())
    return Legend(_text(layout), x, y, _scale(figure.spec.get("data") or [], layout))


def words_of(figure: Figure) -> list[tuple[Legend, str]]:
    """What the page writes around `figure`, and its caption, at each step of its slider; one pair
    where there is no slider or they are the same at all steps.
    """
    words = [(legend_of(one), one.caption) for one in at_steps(figure)]
    return words if any(other != words[0] for other in words) else words[:1]


def _text(holder: Any) -> str:
    """The text of a title, which Plotly takes as a text or as an object."""
    title = holder.get("title") if isinstance(holder, Mapping) else None
    text = title.get("text") if isinstance(title, Mapping) else title
    return text if isinstance(text, str) else ""


def _scale(traces: Sequence[Any], layout: Mapping[str, Any]) -> Scale | None:
    """The first scale of colors: shared by the panels, of a matrix, or of points."""
    if isinstance(shared := layout.get("coloraxis"), Mapping):
        return _made(shared, "cmin", "cmax", ())
    for trace in traces:
        if trace.get("type") == "heatmap":
            return _made(trace, "zmin", "zmax", ())
        marker = trace.get("marker")
        if isinstance(marker, Mapping) and marker.get("showscale"):
            values = marker.get("color")
            return _made(marker, "cmin", "cmax", values if isinstance(values, list) else ())
    return None


def _made(held: Mapping[str, Any], low: str, high: str, values: Sequence[Any]) -> Scale:
    first, last = ends(held, low, high, values)
    return Scale(_text(held.get("colorbar")), first, last, _stops(held.get("colorscale")))


def _stops(scale: Any) -> list[str]:
    """The colors of a scale, those of Viridis where it is a name."""
    colors = [stop[-1] for stop in scale if stop] if isinstance(scale, list) else [*WHOLE_VIRIDIS]
    return [color for color in colors if isinstance(color, str) and HEX.fullmatch(color)]
