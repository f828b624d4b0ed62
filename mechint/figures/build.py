"""Builders of figures: numbers in, a `Figure` out."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from mechint.figures.figure import Figure, Kind
from mechint.figures.parts import Axis, Layer, Line, Plot, Scale
from mechint.figures.theme import COLORS, MUTED, NULL, finite, numbers, palette
from mechint.system.jsonable import is_number

Caption = str | Mapping[str, str]
"""A caption, or verdict ("yes", "no", "unclear") → caption, that of "yes" being the default."""
LONGEST = 60
"""Characters that the names below a plot may have together before its bars lie down."""
NEGLIGIBLE = 0.01
"""Share of a total below which values are stated in a sentence and not drawn."""
FEW_EDGES = 16
"""Edges of a flow whose effect is written on them."""


def lines(
    x: Any,
    series: Mapping[str, Any],
    *,
    title: str,
    x_title: str,
    y_title: str,
    caption: Caption,
    x_log: bool = False,
    y_log: bool = False,
    bands: Mapping[str, tuple[Any, Any]] | None = None,
    levels: Mapping[str, float] | None = None,
    null: tuple[float, float, float] | None = None,
    markers: bool = False,
    y_range: tuple[float, float] | None = None,
    groups: Mapping[str, str] | None = None,
) -> Figure:
    """Curves over one axis.

    Args:
        x: common x values (n,), or a mapping name → x values where the curves differ.
        series: name → y values (n,); NaN makes a gap.
        x_title, y_title: the quantity, with its unit in brackets: "loss (nats)".
        bands: name → (low, high), an area around that curve.
        levels: label → y of a dashed horizontal line (chance, a threshold, a prediction).
        null: (mean, low, high) of the null, drawn as a gray band.
        markers: points on the curves, for few values.
        groups: name → group; curves of one group share a color and one entry in the legend.

    >>> lines([1, 2], {"train": [0.5, 1.0]}, title="Accuracy", x_title="step",
    ...     y_title="accuracy (0–1)", caption="It learns.").plots[0].layers[0].y
    [0.5, 1.0]
    """
    group_of = {name: (groups or {}).get(name, name) for name in series}
    names = list(dict.fromkeys(group_of.values()))
    color_of = dict(zip(names, palette(len(names)), strict=True))
    layers, seen = [], set[str]()
    axis_names: Sequence[str] | None = None
    for name, y in series.items():
        group = group_of[name]
        places, axis_names = _places(x[name] if isinstance(x, Mapping) else x)
        low, high = (numbers(edge) for edge in (bands or {}).get(name, (None, None)))
        layers.append(
            Layer(
                "curve",
                places,
                numbers(y),
                name=group,
                color=color_of[group],
                low=low,
                high=high,
                markers=markers,
                legend=group not in seen,
            )
        )
        seen.add(group)
    return _plot(
        "lines",
        title,
        caption,
        layers,
        Axis(x_title, x_log, axis_names),
        Axis(y_title, y_log, span=y_range),
        _levels(levels, null),
    )


def bars(
    x: Any,
    series: Mapping[str, Any],
    *,
    title: str,
    x_title: str,
    y_title: str,
    caption: Caption,
    levels: Mapping[str, float] | None = None,
    null: tuple[float, float, float] | None = None,
    highlight: Sequence[Any] = (),
    y_log: bool = False,
    y_range: tuple[float, float] | None = None,
    horizontal: bool | None = None,
    total: float | None = None,
) -> Figure:
    """Bars over categories or integers.

    Args:
        x: names, which may repeat, or numbers (n,); series: name → heights (n,).
        highlight: values of `x` whose bars are colored, the others gray (one series only).
        levels, null: as for `lines`; total: values below 1% of it are stated in a sentence and
            not drawn.
        y_log: heights on a logarithmic axis, as points, since a bar has no start there.
        horizontal: bars from left to right; when None, where names are too long or too many to
            stand beside each other. `x_title` stays the name of the categories.

    >>> names = [f"L0 MLP[{i}] of the layer" for i in range(9)]
    >>> bars(names, {"loss": range(9)}, title="T", x_title="component", y_title="loss (nats)",
    ...     caption="C").plots[0].layers[0].lying
    True
    """
    largest = max(map(abs, finite([numbers(one) for one in series.values()])), default=0.0)
    if total and largest < NEGLIGIBLE * abs(total):
        unit = y_title[y_title.rfind("(") + 1 : y_title.rfind(")")] if "(" in y_title else y_title
        said = f"at most {largest:.2g} of {abs(total):.3g} {unit}, below 1%."
        return Figure("sentence", title, said)
    places, names = _places(x)
    long = names is not None and sum(len(name) + 2 for name in names) > LONGEST
    lying = long if horizontal is None else horizontal
    chosen = set(numbers(highlight)) if len(series) == 1 else set()
    layers = []
    for color, (name, y) in zip(palette(len(series)), series.items(), strict=True):
        shown = [COLORS[1] if one in chosen else MUTED for one in names or places]
        layers.append(
            Layer(
                "points" if y_log else "bars",
                numbers(y) if lying else places,
                places if lying else numbers(y),
                name=name,
                color=shown if chosen else color,
                lying=lying,
            )
        )
    lines = _levels(levels, null)
    values, categories = Axis(y_title, y_log, span=y_range), Axis(x_title, names=names)
    if lying:
        lines = [dataclasses.replace(line, axis="x") for line in lines]
        axes = values, dataclasses.replace(categories, reverse=True)
    else:
        axes = categories, values
    return _plot("bars", title, caption, layers, *axes, lines)


def scatter(
    x: Any,
    y: Any,
    *,
    title: str,
    x_title: str,
    y_title: str,
    caption: Caption,
    color: Any = None,
    color_title: str = "",
    groups: Sequence[str] | None = None,
    text: Sequence[str] | None = None,
    labels: bool = False,
    cyclic: bool = False,
    equal: bool = False,
    levels: Mapping[str, float] | None = None,
) -> Figure:
    """Points.

    Args:
        x, y: coordinates (n,), numbers or names.
        color: numbers (n,), shown by a color scale named `color_title`: sequential, or
            `cyclic` (residues, phases).
        groups: class of each point (n,), shown by color and legend, in place of `color`.
        text: name of each point (n,), shown on hover, and beside the points with `labels`.
        equal: one unit is as long on both axes; levels: label → y of a dashed line.
    """
    (across, x_names), (up, y_names) = _places(x), _places(y)
    names = None if text is None else [str(item) for item in text]
    if groups is not None:
        kinds = list(dict.fromkeys(groups))
        layers = []
        for shade, kind in zip(palette(len(kinds)), kinds, strict=True):
            own = [i for i, group in enumerate(groups) if group == kind]
            own_text = None if names is None else [names[i] for i in own]
            at, on = [across[i] for i in own], [up[i] for i in own]
            layers.append(Layer("points", at, on, str(kind), shade, text=own_text, labels=labels))
    else:
        kind: Any = "cyclic" if cyclic else "sequential"
        scale = None if color is None else _scale(numbers(color), color_title, kind, None)
        values = None if color is None else numbers(color)
        layers = [
            Layer("points", across, up, text=names, labels=labels, values=values, scale=scale)
        ]
    return _plot(
        "dots",
        title,
        caption,
        layers,
        Axis(x_title, names=x_names),
        Axis(y_title, names=y_names),
        _levels(levels, None),
        equal=equal,
    )


BINS = 40
"""Of a histogram."""


def histogram(
    series: Mapping[str, Any],
    *,
    title: str,
    x_title: str,
    caption: Caption,
    marks: Mapping[str, float] | None = None,
    null: bool = False,
) -> Figure:
    """Densities of samples, one step curve each over common bins; the samples are not stored.

    Args:
        marks: label → x of a vertical line (the observed value).
        null: the samples are a null's and are drawn gray.
    """
    samples = {
        name: np.asarray(numbers(values, 9), dtype=np.float64).ravel()
        for name, values in series.items()
    }
    pool = np.concatenate([*samples.values(), np.asarray([*(marks or {}).values()], np.float64)])
    edges = np.histogram_bin_edges(pool[np.isfinite(pool)], bins=BINS)
    shades = [NULL] * len(samples) if null else palette(len(samples))
    layers = []
    for color, (name, values) in zip(shades, samples.items(), strict=True):
        density, _ = np.histogram(values[np.isfinite(values)], bins=edges, density=True)
        y = numbers([*density.tolist(), 0.0])
        zero = [0.0] * len(y)
        layers.append(
            Layer("curve", numbers(edges), y, name, color, low=zero, high=y, step=True, width=1.5)
        )
    lines = [
        Line("x", float(value), name, dash="", color=COLORS[1]) for name, value in _lines(marks)
    ]
    axes = Axis(x_title), Axis("density (1 / unit of x)")
    return _plot("histogram", title, caption, layers, *axes, lines)


def between(
    value: float,
    references: Mapping[str, float],
    *,
    title: str,
    x_title: str,
    caption: Caption,
    x_range: tuple[float, float],
    bands: Mapping[str, tuple[float, float]],
    interval: tuple[float, float] | None = None,
) -> Figure:
    """One value with its interval among those of others, on one axis.

    Args:
        references: label → value of each of the others, a vertical line.
        x_range: ends of the axis; bands: label → ends of the values that have a name.
        interval: ends of the 95% interval of `value`.

    >>> made = between(0.41, {"clock": 0.33, "pizza": 0.99}, title="T", x_title="s", caption="C",
    ...     x_range=(0, 1), bands={})
    >>> [line.text for line in made.plots[0].lines]
    ['clock 0.33', 'pizza 0.99', '']
    >>> made.title
    'T: this model 0.41'
    """
    ends = "" if interval is None else " [{:.3g}, {:.3g}]".format(*interval)
    layers = [Layer("points", [value], [0.5], "this model", COLORS[1], lying=True)]
    lines = [
        *(Line("x", a, label, b, color=NULL) for label, (a, b) in bands.items()),
        *(Line("x", float(at), f"{label} {at:.3g}", dash="") for label, at in references.items()),
        Line("x", value, dash="", color=COLORS[1]),
    ]
    if interval is not None:
        lines.append(Line("x", float(interval[0]), to=float(interval[1]), color=COLORS[1]))
    axes = Axis(x_title, span=x_range), Axis("", names=[], span=(0.0, 1.0))
    return _plot(
        "dots", f"{title}: this model {value:.3g}{ends}", caption, layers, *axes, lines, size=210
    )


def heatmap(
    z: Any,
    *,
    title: str,
    x_title: str,
    y_title: str,
    z_title: str,
    caption: Caption,
    x: Sequence[Any] | None = None,
    y: Sequence[Any] | None = None,
    diverging: bool = False,
    limits: tuple[float, float] | None = None,
    annotate: bool | None = None,
    square: bool = False,
) -> Figure:
    """A matrix as colors, row 0 on top as matrices are printed.

    Args:
        z: (rows, columns); NaN leaves a hole.
        x, y: names or numbers of columns and rows, which may repeat; their indices when None.
        z_title: quantity of the color, with its unit in brackets: "attention (0–1)".
        diverging: colors symmetric about zero.
        limits: (least, largest) of the color scale. A matrix that is the same everywhere is stated
            in a sentence.
        annotate: write the numbers into the cells; when None, where there are at most 80.
        square: cells as high as wide.

    >>> heatmap([[1.0, 2.0]], title="T", x_title="key", y_title="query", z_title="attention (0–1)",
    ...     caption="C", limits=(0, 4)).plots[0].layers[0].scale.high
    4.0
    """
    matrix = _matrix(z)
    held = matrix[np.isfinite(matrix)]
    if held.size > 1 and limits is None and np.ptp(held) <= 1e-6 * np.abs(held).max():
        said = f"{title}: {held.flat[0]:.3g} everywhere, {z_title}."
        return Figure("sentence", title, said)
    kind: Any = "diverging" if diverging else "sequential"
    scale = _scale(matrix, z_title, kind, limits)
    cells = _cells(matrix) if (matrix.size <= 80 if annotate is None else annotate) else None
    x_names, y_names = _tick_names(x), _tick_names(y)
    layers = [Layer("matrix", z=numbers(matrix, 4), scale=scale, cells=cells)]
    axes = Axis(x_title, names=x_names), Axis(y_title, names=y_names, reverse=True)
    size = 460 if square else min(640, max(220, 120 + 24 * len(matrix)))
    return _plot("matrix", title, caption, layers, *axes, (), equal=square, size=size)


def beside(*figures: Figure) -> Figure:
    """Figures side by side in one, under the first one's title, with their captions in turn; those
    that are a sentence add theirs alone. Panels are titled, and the first one's color scale is the
    one that is shown.
    """
    plots = [
        dataclasses.replace(plot, title=plot.title or one.title)
        for one in figures
        for plot in one.plots
    ]
    first, caption = figures[0], " ".join(one.caption for one in figures)
    if len(plots) < 2:
        shown = next((one for one in figures if one.plots), first)
        return dataclasses.replace(shown, caption=caption)
    return _made(first.kind, first.title, caption, plots, columns=len(plots), size=first.size)


def stacked(
    panels: Sequence[Panel],
    *,
    x_title: str,
    title: str,
    caption: Caption,
    marks: Mapping[str, float] | None = None,
    x_log: bool = False,
) -> Figure:
    """Panels above each other that share their x axis.

    Args:
        marks: label → x of a dotted line through all panels.
        x_log: the x axis is logarithmic; points at 0 are then not drawn.

    >>> panels = [Panel("accuracy (0–1)", {"test": ([0, 9], [0.1, 1.0])})]
    >>> stacked(panels, x_title="step", title="Dynamics", caption="It learns.").plots[0].y.title
    'accuracy (0–1)'
    """
    names = dict.fromkeys(name for one in panels if len(one.series) > 1 for name in one.series)
    color_of = dict(zip(names, palette(len(names)), strict=True))
    shown, seen = [], set[str]()
    for place, one in enumerate(panels):
        layers = []
        for name, (x, y) in one.series.items():
            band = one.bands.get(name)
            at, up, *edges = _drawable(x_log, x, y, *(band[1:] if band else ()))
            low, high = edges or (None, None)
            color = color_of.get(name, COLORS[0])
            first = len(one.series) > 1 and name not in seen
            kind = "bars" if one.bars else "curve"
            layers.append(Layer(kind, at, up, name, color, low=low, high=high, legend=first))
            seen |= {name} if first else set()
        lines = [
            Line("x", value, "" if place else name, dash="dot") for name, value in _lines(marks)
        ]
        lines += _levels(one.levels, None)
        y_axis = Axis(one.title, one.log, span=one.y_range)
        shown.append(Plot(Axis(x_title, x_log), y_axis, layers, lines))
    return _made("panels", title, caption, shown)


@dataclasses.dataclass(frozen=True)
class Panel:
    """One panel of `stacked`.

    title: the quantity, with its unit in brackets; series: name → (x, y); bands: name → (x, low,
    high) around that curve; log: the axis is logarithmic; y_range: of a linear axis; levels:
    label → y of a dashed line; bars: of what stands at whole numbers.
    """

    title: str
    series: Mapping[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)
    bands: Mapping[str, tuple[Any, Any, Any]] = dataclasses.field(default_factory=dict)
    log: bool = False
    y_range: tuple[float, float] | None = None
    levels: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])
    bars: bool = False


def _drawable(x_log: bool, x: Any, *values: Any) -> list[list[Any]]:
    """x and values without the points that a logarithmic x axis cannot show."""
    rows = zip(numbers(x), *map(numbers, values), strict=True)
    kept = [row for row in rows if not x_log or row[0] > 0]
    return [list(column) for column in zip(*kept, strict=True)] or [[] for _ in (x, *values)]


SPLITS = ("train", "test", "validation")
Curve = tuple[list[float], list[float], list[float], list[float]]


def mean_curve(rows: Sequence[Mapping[str, Any]], x: str, y: str) -> Curve:
    """Places along column `x`, and there the mean, the smallest and the largest `y` of the rows."""
    values_at: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        if is_number(row.get(x)) and is_number(row.get(y)):
            values_at[row[x]].append(float(row[y]))
    places = sorted(values_at)
    means, low, high = (
        [take(values_at[at]) for at in places] for take in (statistics.fmean, min, max)
    )
    return places, means, low, high


def step_panel(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], title: str, **more: Any
) -> Panel:
    """`columns` (name → label) over the steps, where they have two or more: means over the runs,
    with their range as a band; more: fields of the panel.
    """
    curves = {label: mean_curve(rows, "step", column) for column, label in columns.items()}
    drawn = {label: curve for label, curve in curves.items() if len(curve[0]) > 1}
    series = {label: (steps, means) for label, (steps, means, _, _) in drawn.items()}
    bands = {
        label: (steps, low, high) for label, (steps, _, low, high) in drawn.items() if low != high
    }
    return Panel(title, series, bands, **more)


def quality_panels(
    rows: Sequence[Mapping[str, Any]], levels: Mapping[str, float] = {}
) -> list[Panel]:
    """Accuracy above, loss below (log scale), over the steps; those that no two evaluations hold
    are left out.

    rows: a mapping per evaluation: "step", "train.accuracy", "test.loss" (nats) and so on; levels:
    of chance.
    """
    accuracy, loss = ({f"{split}.{of}": split for split in SPLITS} for of in ("accuracy", "loss"))
    above = step_panel(rows, accuracy, "accuracy (0–1)", y_range=(-0.03, 1.03), levels=levels)
    # without an accuracy the loss is a squared error
    below = step_panel(rows, loss, "loss (nats)" if above.series else "loss", log=True)
    return [panel for panel in (above, below) if panel.series]


def training_curve(
    rows: Sequence[Mapping[str, Any]], chance: float | None = None, step: int | None = None
) -> Figure | None:
    """Accuracy and loss of a run as it trained.

    Args:
        rows: as of `quality_panels`.
        chance: accuracy of the best constant answer, drawn as a dashed line.
        step: step of the checkpoint that is looked at, drawn as a vertical line.

    Returns:
        The figure, or None where fewer than two evaluations hold an accuracy or a loss.

    >>> rows = [{"step": 0, "test.accuracy": 0.1}, {"step": 10, "test.accuracy": 0.9}]
    >>> [layer.y for layer in training_curve(rows).plots[0].layers]
    [[0.1, 0.9]]
    """
    panels = quality_panels(rows, {} if chance is None else {"chance": float(chance)})
    if not panels:
        return None
    names = [panel.title.partition(" (")[0] for panel in panels]
    return stacked(
        panels,
        x_title="step (optimizer steps)",
        title="Training",
        caption=f"{' and '.join(names).capitalize()} as the model trained.",
        marks={} if step is None else {"": step},
    )


def graph(
    nodes: Mapping[str, tuple[float, float]],
    edges: Sequence[tuple[str, str, float]],
    *,
    title: str,
    caption: Caption,
    kinds: Sequence[str] | None = None,
    faint: Sequence[tuple[str, str]] = (),
    unit: str = "effect",
    ports: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """A flow from node to node, without axes.

    Args:
        nodes: name → (x, y), x along the flow, y upwards.
        edges: (from, to, effect); the width of an edge is its effect beside the largest, which is
            written on it where there are few.
        kinds: class of each edge, shown by color and legend.
        faint: edges drawn gray behind the others, such as those outside a circuit.
        ports: name → (x, y) of other ends of edges: the name of their node and a last word, which
            marks them.

    >>> made = graph({"a": (0, 0), "b": (1, 0)}, [("a", "b", 2.0)], title="T", caption="C")
    >>> made.plots[0].layers[0].width
    [6.0]
    """
    places = {**nodes, **(ports or {})}

    def curves(pairs: Sequence[tuple[str, str]]) -> list[list[list[Any]]]:
        """x and y of each edge, which bends around what stands in its way."""
        ends = [(places[a], places[b]) for a, b in pairs]
        drawn = [_bent(*one, any(_between(at, *one) for at in nodes.values())) for one in ends]
        return [[one[i] for one in drawn] for i in (0, 1)]

    largest = max((abs(effect) for _, _, effect in edges), default=0.0) or 1.0
    layers = []
    if faint:
        x, y = curves(faint)
        layers.append(Layer("edges", x, y, color=NULL, width=[0.6] * len(x), legend=False))
    groups = list(kinds) if kinds is not None else [""] * len(edges)
    names = list(dict.fromkeys(groups))
    for color, name in zip(palette(len(names)), names, strict=True):
        own = [edge for edge, group in zip(edges, groups, strict=True) if group == name]
        x, y = curves([(a, b) for a, b, _ in own])
        width = [round(1 + 5 * abs(effect) / largest, 2) for _, _, effect in own]
        text = [f"{a} → {b}: {effect:.3g} {unit}" for a, b, effect in own]
        layers.append(Layer("edges", x, y, name, color, width=width, text=text))
        if len(edges) <= FEW_EDGES:
            at = [[line[len(line) // 2] for line in lines] for lines in (x, y)]
            said = [f"{effect:.2g}" for *_, effect in own]
            layers.append(_labels(at, said))
    heights = [y for _, y in nodes.values()]
    x, y = zip(*nodes.values(), strict=True)
    node = Layer("points", numbers(x), numbers(y), color=COLORS[-1], text=list(nodes), labels=True)
    layers.append(dataclasses.replace(node, legend=False))
    if ports:
        ends = [(name, name.rpartition(" ")[0]) for name in ports]
        x, y = ([[places[a][i], places[b][i]] for a, b in ends] for i in (0, 1))
        stubs = Layer("edges", x, y, color=COLORS[-1], width=[1.5] * len(x), legend=False)
        layers.insert(0, stubs)
        at = [numbers(one) for one in zip(*ports.values(), strict=True)]
        layers.append(_labels(at, [name.rpartition(" ")[2] for name in ports]))
    drawn = [*heights, *(y for one in layers if one.kind == "edges" for y in np.ravel(one.y))]
    low, high = float(min(drawn)) - 0.3, float(max(drawn)) + 0.5  # with room for names
    panel = Plot(Axis(""), Axis("", span=(low, high)), layers, bare=True)
    return _made("graph", title, caption, [panel], size=round(min(900, 90 + 80 * (high - low))))


def _labels(at: Sequence[Sequence[Any]], text: Sequence[str]) -> Layer:
    """Texts at places, without marks."""
    x, y = at
    return Layer("points", x, y, color="#00000000", text=text, labels=True, legend=False)


def _between(at: tuple[float, float], a: tuple[float, float], b: tuple[float, float]) -> bool:
    """Return whether a node lies on the straight edge from `a` to `b`."""
    if not min(a[0], b[0]) + 0.5 < at[0] < max(a[0], b[0]) - 0.1:
        return False
    share = (at[0] - a[0]) / (b[0] - a[0])
    return abs(a[1] + share * (b[1] - a[1]) - at[1]) < 0.35


def _bent(a: tuple[float, float], b: tuple[float, float], around: bool) -> list[list[Any]]:
    """A curve from `a` to `b` that leaves and arrives along x, and swings out where `around`."""
    share = np.linspace(0, 1, 17)
    smooth = share**2 * (3 - 2 * share)
    out = (1.1 if b[1] >= a[1] else -1.1) * around * 4 * smooth * (1 - smooth)
    return [numbers(a[0] + share * (b[0] - a[0])), numbers(a[1] + smooth * (b[1] - a[1]) + out)]


# --- shared ---------------------------------------------------------------------------------------
def _plot(
    kind: Kind,
    title: str,
    caption: Caption,
    layers: Sequence[Layer],
    x: Axis,
    y: Axis,
    lines: Sequence[Line],
    *,
    equal: bool = False,
    size: int | None = None,
) -> Figure:
    """A figure of one panel."""
    return _made(kind, title, caption, [Plot(x, y, layers, lines, equal=equal)], size=size)


def _made(kind: Kind, title: str, caption: Caption, plots: Sequence[Plot], **more: Any) -> Figure:
    """The figure, with a caption for each verdict where there are several."""
    assert title.strip(), "a figure without a title"
    for plot in plots:
        without = plot.bare or plot.y.names == []  # the height says nothing
        assert without or plot.y.title.strip(), "an unnamed axis"
        assert plot.bare or plot.x.title.strip(), "an unnamed axis"
    if isinstance(caption, str):
        return Figure(kind, title, caption, list(plots), **more)
    others = {verdict: text for verdict, text in caption.items() if verdict != "yes"}
    return Figure(kind, title, caption["yes"], list(plots), captions=others, **more)


def _places(values: Any) -> tuple[list[Any], list[str] | None]:
    """Places on an axis, and the names of the places 0, 1, … where the values are names."""
    held = numbers(list(values) if isinstance(values, range | tuple) else values)
    if held and isinstance(held[0], str):
        return list(range(len(held))), [str(one) for one in held]
    return held, None


def _tick_names(values: Sequence[Any] | None) -> list[str] | None:
    return None if values is None else [str(one) for one in numbers(list(values))]


def _lines(marks: Mapping[str, float] | None) -> list[tuple[str, float]]:
    """Labels and short values of lines; those that are not finite are left out."""
    held = [(name, numbers(float(value))) for name, value in (marks or {}).items()]
    return [(name, value) for name, value in held if value is not None]


def _levels(
    levels: Mapping[str, float] | None, null: tuple[float, float, float] | None
) -> list[Line]:
    """Dashed horizontal lines, and the band of the null behind them."""
    lines = [Line("y", value, name) for name, value in _lines(levels)]
    if null is not None and all(map(math.isfinite, null)):
        mean, low, high = numbers([float(value) for value in null])
        lines += [Line("y", low, "", to=high, color=NULL)]
        lines += [Line("y", mean, "null", dash="dot", color=NULL)]
    return lines


def _matrix(z: Any) -> np.ndarray:
    values = np.asarray(z.tolist() if hasattr(z, "tolist") else z, dtype=np.float64)
    assert values.ndim == 2, f"a matrix was expected, got shape {values.shape}"
    return values


def _scale(
    values: Any,
    title: str,
    kind: Literal["sequential", "diverging", "cyclic"],
    limits: tuple[float, float] | None,
) -> Scale:
    """The color scale of `values`; a diverging one is symmetric about zero."""
    if limits is not None:
        low, high = map(float, limits)
        return Scale(title, numbers(low), numbers(high), kind)
    held = finite(numbers(values)) or [0.0, 1.0]
    low, high = float(min(held)), float(max(held))
    if kind == "diverging":
        high = max(-low, high) or 1.0
        low = -high
    return Scale(title, numbers(low), numbers(high), kind)


def _cells(values: np.ndarray) -> list[list[str]]:
    """The numbers that stand in the cells: two digits, and 0 for what is small beside the largest.

    >>> _cells(np.array([[0.2181, -0.0000136, 1.0]]))
    [['0.22', '0', '1']]
    """
    least = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) / 200

    def shown(value: float) -> str:
        if not math.isfinite(value):
            return ""
        return "0" if abs(value) < least else f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"

    return [[shown(value) for value in row] for row in values.tolist()]
