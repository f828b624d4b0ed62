"""The parts of a figure: axes, color scales, layers of marks, lines, and plots of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mechint.figures.theme import finite

LETTERS = 48
"""Of the names of lines, across a figure of half a page."""


@dataclass(frozen=True)
class Axis:
    """One axis. title: quantity, with its unit in brackets; names: of the places 0, 1, … where the
    axis shows names; span: its ends; reverse: the first place on top.
    """

    title: str
    log: bool = False
    names: Sequence[str] | None = None
    span: tuple[float, float] | None = None
    reverse: bool = False


@dataclass(frozen=True)
class Scale:
    """A color scale: the quantity shown, its ends, and its kind."""

    title: str
    low: float
    high: float
    colors: Literal["sequential", "diverging", "cyclic"] = "sequential"


@dataclass(frozen=True)
class Layer:
    """Marks of one series.

    kind: "curve", "points", "bars" (`lying`: from left to right), "matrix" or "edges". x, y: places
    (n,); of "edges" lines (n, points). color: of all marks or each. low, high: (n,) ends of a band
    around a curve; values: (n,) numbers shown by `scale`; text: (n,) names of the points, shown on
    hover, and beside them with `labels`; width: of the line or of each edge; z: (rows, columns) of
    a matrix; cells: text in them.
    """

    kind: Literal["curve", "points", "bars", "matrix", "edges"]
    x: Sequence[Any] = ()
    y: Sequence[Any] = ()
    name: str = ""
    color: str | Sequence[str] = "#0072B2"
    low: Sequence[Any] | None = None
    high: Sequence[Any] | None = None
    values: Sequence[Any] | None = None
    text: Sequence[str] | None = None
    labels: bool = False
    markers: bool = False
    step: bool = False
    lying: bool = False
    legend: bool = True
    width: float | Sequence[float] = 2.0
    z: Sequence[Sequence[Any]] | None = None
    cells: Sequence[Sequence[str]] | None = None
    scale: Scale | None = None


@dataclass(frozen=True)
class Line:
    """A straight line across a panel at `at` on `axis`, or a band up to `to`, with its name."""

    axis: Literal["x", "y"]
    at: float
    text: str = ""
    to: float | None = None
    dash: Literal["", "dash", "dot"] = "dash"
    color: str = "#626b76"


@dataclass(frozen=True)
class Plot:
    """Layers over two axes. equal: one unit is as long on both; bare: no axes are drawn."""

    x: Axis
    y: Axis
    layers: Sequence[Layer] = ()
    lines: Sequence[Line] = ()
    title: str = ""
    equal: bool = False
    bare: bool = False

    def share(self, line: Line) -> float:
        """The place of `line` on its axis, from 0 to 1."""
        axis: Axis = getattr(self, line.axis)
        values = [*(axis.span or ()), *(one.at for one in self.lines if one.axis == line.axis)]
        for layer in self.layers if axis.span is None else ():
            values += finite(list(getattr(layer, line.axis)))
        at, *all_ = (math.log10(v) if axis.log and v > 0 else v for v in (line.at, *values))
        return (at - min(all_)) / ((max(all_) - min(all_)) or 1.0)

    def crowded(self, line: Line) -> int:
        """Number of named lines before `line` whose name would stand on its own: above the plot by
        the letters of both, beside it where lines are within a twelfth of the axis.
        """
        before = self.lines[: list(self.lines).index(line)]
        same = [one for one in before if one.text and one.axis == line.axis]
        if line.axis == "y":
            return sum(abs(self.share(one) - self.share(line)) < 1 / 12 for one in same)
        left, right = self._name(line)
        return sum(a < right + 1 and left < b + 1 for a, b in map(self._name, same))

    def side(self, line: Line) -> Literal["left", "center", "right"]:
        """The end of its name at which a vertical line stands, so that the name is not cut."""
        share = self.share(line)
        return "left" if share < 0.1 else "right" if share > 0.9 else "center"

    def _name(self, line: Line) -> tuple[float, float]:
        """First and last place of a vertical line's name, in letters of a figure of half a page."""
        part = {"left": 0.0, "center": 0.5, "right": 1.0}[self.side(line)]
        left = LETTERS * self.share(line) - part * len(line.text)
        return left, left + len(line.text)
