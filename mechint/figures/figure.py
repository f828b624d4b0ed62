"""Figure: plots of marks with a title and a caption, which draws and saves itself.

A figure is data. `mechint.figures.interactive` draws it with Plotly for pages and notebooks,
`mechint.figures.static` with Matplotlib for everything else.
"""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mechint.errors import ParameterError
from mechint.figures.theme import finite
from mechint.files import write_bytes, write_text
from mechint.jsonable import to_jsonable

Kind = Literal[
    "lines", "bars", "dots", "histogram", "matrix", "panels", "attention", "graph", "sentence"
]
LETTERS = 48
"""Of the names of lines, across a figure of half a page."""
DPI = 96
"""Pixels of a page in an inch of a drawing."""


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
    bar: bool = True


@dataclass(frozen=True)
class Layer:
    """Marks of one series.

    kind: "curve", "points", "bars" (`lying`: from left to right), "matrix" or "edges". x, y: places
    (n,); of "edges" pairs (n, 2). color: of all marks or of each. low, high: (n,) ends of a band
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


@dataclass(frozen=True, repr=False)
class Figure:
    """A figure of one of eight kinds, or a sentence where there is nothing to draw.

    caption: what to see in it; captions: verdict of the finding ("no", "unclear") → the caption
    that stands in its place. plots: panels, in lines of `columns`; with one column they share the
    x axis. view: of attention, whose example, head and query are chosen in a page. steps: name of a
    step → the figure there; the figure itself is that of the last. size: pixels of a panel's or of
    the figure's height, where the kind's own does not fit.
    """

    kind: Kind
    title: str
    caption: str
    plots: Sequence[Plot] = ()
    columns: int = 1
    captions: Mapping[str, str] = field(default_factory=dict)
    view: Mapping[str, Any] | None = None
    steps: Mapping[str, Figure] = field(default_factory=dict)
    size: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `from_dict` gives an equal figure."""
        return _data(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Figure:
        """The figure that `to_dict` wrote."""
        plots = [
            Plot(
                **{
                    **panel,
                    "x": _axis(panel["x"]),
                    "y": _axis(panel["y"]),
                    "layers": [_layer(layer) for layer in panel.get("layers", ())],
                    "lines": [Line(**line) for line in panel.get("lines", ())],
                }
            )
            for panel in data.get("plots", ())
        ]
        steps = {name: cls.from_dict(one) for name, one in data.get("steps", {}).items()}
        return cls(**{**data, "plots": plots, "steps": steps})

    def add(self, *layers: Layer) -> Figure:
        """The figure with more layers in its first panel."""
        first, *rest = self.plots
        first = dataclasses.replace(first, layers=[*first.layers, *layers])
        return dataclasses.replace(self, plots=[first, *rest])

    def for_verdict(self, verdict: str) -> Figure:
        """The figure with the caption that stands where the finding's verdict is `verdict`."""
        caption = self.captions.get(verdict, self.caption)
        return dataclasses.replace(self, caption=caption, captions={})

    @property
    def spec(self) -> dict[str, Any]:
        """The specification that plotly.js draws: "data", "layout", and "frames" of its steps."""
        from mechint.figures.interactive import specification

        return specification(self)

    def show(self) -> Any:
        """The plotly Figure, for notebooks."""
        import plotly.graph_objects as go

        spec = self.spec
        return go.Figure({"data": spec["data"], "layout": spec["layout"]})

    def save(self, path: str | Path, *, width: float = 5.5, height: float | None = None) -> Path:
        """Write the figure to `path`, without a browser or a network.

        Args:
            path: ``.svg``, ``.pdf`` or ``.png`` for a paper, ``.html`` for a page that opens
                offline, ``.csv`` for the numbers, ``.json`` for the figure as data.
            width, height: of the drawing in inches: 5.5 is the text of a one-column journal, 3.25
                one of two columns. The height follows from the figure when None.

        Raises:
            ParameterError: another ending, or a size out of range.
            RunError: `path` cannot be written.
        """
        path = Path(path)

        def draw() -> None:
            from mechint.figures.static import drawing

            write_bytes(path, drawing(self, path.suffix[1:], width, height))

        def page() -> None:
            from mechint.figures.interactive import page_of

            write_text(path, page_of(self))

        writers: dict[str, Callable[[], object]] = {
            ".csv": lambda: write_text(path, self.to_csv()),
            ".json": lambda: write_text(path, json.dumps(self.to_dict())),
            ".html": page,
            ".svg": draw,
            ".pdf": draw,
            ".png": draw,
        }
        if path.suffix not in writers:
            raise ParameterError(
                f"{path}: ending {path.suffix!r}: expected one of {', '.join(sorted(writers))}"
            )
        if not 1 <= width <= 40 or (height is not None and not 1 <= height <= 40):
            raise ParameterError(f"{path}: width={width}, height={height}: expected 1 to 40 inches")
        writers[path.suffix]()
        return path

    def to_csv(self) -> str:
        """The numbers, one row per mark or cell; columns have the names of the axes.

        >>> from mechint import figures
        >>> figures.lines([1, 2], {"a": [0.5, 1]}, title="T", x_title="step", y_title="loss (nats)",
        ...     caption="C").to_csv().splitlines()
        ['series,step,loss (nats)', 'a,1,0.5', 'a,2,1']
        """
        rows = list(_rows(self))
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    @property
    def wide(self) -> bool:
        """True if the figure needs the whole width of a page."""
        if self.kind in ("panels", "attention", "graph") or self.columns > 1:
            return True
        layers = [layer for panel in self.plots for layer in panel.layers]
        many = any(max((len(row) for row in one.z or ()), default=0) > 150 for one in layers)
        return many or any(layer.lying for layer in layers)

    @property
    def all_matrices(self) -> bool:
        """True if the figure shows matrices alone, a cell a pixel."""
        layers = [layer for panel in self.plots for layer in panel.layers]
        return all(one.kind == "matrix" and not len(one.x) for one in layers)

    def __repr__(self) -> str:
        return f"Figure({self.title}: {self.caption})"

    def drawing_html(self, name: str = "") -> str:
        """The figure as a static drawing with its caption."""
        if not self.plots:
            return f"<p>{html.escape(self.caption)}</p>"
        from mechint.figures.static import inline_svg

        caption = html.escape(self.caption)
        picture = inline_svg(self, name or self.title)
        return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"

    def _repr_html_(self) -> str:
        """The figure in a notebook: interactive, with the caption below it."""
        if not self.plots:
            return self.drawing_html()
        if self.view or self.steps:
            from mechint.figures.interactive import page_of

            held = html.escape(page_of(self), quote=True)
            size = 'width="100%" height="560" style="border:0"'
            return f'<iframe srcdoc="{held}" {size} title="{html.escape(self.caption)}"></iframe>'
        drawn = self.show().to_html(include_plotlyjs=True, full_html=False)
        return f"{drawn}<p>{html.escape(self.caption)}</p>"


def _axis(data: Mapping[str, Any]) -> Axis:
    span = data.get("span")
    return Axis(**{**data, "span": tuple(span) if span else None})


def _layer(data: Mapping[str, Any]) -> Layer:
    scale = data.get("scale")
    return Layer(**{**data, "scale": Scale(**scale) if scale else None})


def _data(value: Any) -> Any:
    """JSON values of a figure's part, without fields that have their default."""
    if dataclasses.is_dataclass(value):
        held = {one.name: (getattr(value, one.name), one) for one in dataclasses.fields(value)}
        return {
            name: _data(part)
            for name, (part, one) in held.items()
            if part != one.default and part not in ([], {})
        }
    if isinstance(value, Mapping):
        return {str(key): _data(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_data(part) for part in value]
    return to_jsonable(value)


def _rows(figure: Figure) -> list[dict[str, Any]]:
    """A mapping per mark or cell: name of a column → value."""
    if figure.view is not None:
        return _view_rows(figure.view)
    rows: list[dict[str, Any]] = []
    for panel in figure.plots:
        x, y = panel.x.title or "x", panel.y.title or "y"
        y = f"{y} (rows)" if x == y else y
        several = {"panel": panel.title} if panel.title else {}
        for layer in panel.layers:
            if layer.kind == "matrix":
                title = layer.scale.title if layer.scale else "value"
                for place, line in enumerate(layer.z or ()):
                    for column, value in enumerate(line):
                        at = layer.x[column] if layer.x else column
                        on = layer.y[place] if layer.y else place
                        cell = {x: _named(panel.x, at), y: _named(panel.y, on), title: value}
                        rows.append({**several, **cell})
                continue
            names = {"series": layer.name} if layer.name else {}
            more: dict[str, Sequence[Any] | None] = {
                "name": layer.text,
                "low": layer.low,
                "high": layer.high,
                layer.scale.title if layer.scale else "value": layer.values,
            }
            for place, (at, on) in enumerate(zip(layer.x, layer.y, strict=True)):
                row = {**several, **names, x: _named(panel.x, at), y: _named(panel.y, on)}
                row |= {key: held[place] for key, held in more.items() if held is not None}
                rows.append(row)
    return rows


def _named(axis: Axis, at: Any) -> Any:
    if axis.names is None or not isinstance(at, int) or not 0 <= at < len(axis.names):
        return at
    return axis.names[at]


def _view_rows(view: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All weights of an attention view at its last step."""
    rows = []
    for example, heads in zip(view["examples"], view["frames"][-1], strict=True):
        tokens = example["tokens"]
        for head, weights in zip(view["heads"], heads, strict=True):
            for place, weight in enumerate(weights):
                query, key = divmod(place, len(tokens))
                row = {"example": example["name"], "head": head, "query": query, "key": key}
                rows.append(
                    {**row, "from": tokens[query], "to": tokens[key], "attention (0–1)": weight}
                )
    return rows
