"""Figures over the steps of a run: one figure per step, on common scales."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from mechint.figures.figure import Figure
from mechint.figures.parts import Axis, Line, Plot
from mechint.figures.theme import INK, finite, numbers

MAX_WEIGHTS = 120_000
"""Weights of attention that one view holds, and numbers of a figure over all its steps."""
MARGIN = 0.05
"""Share of an axis left free beyond the least and the largest value."""


def with_cursor(made: Figure, steps: Sequence[float]) -> Figure:
    """`made` with a line at the step at which the page's slider stands, the last one at first."""

    def at(step: float) -> Figure:
        line = Line("x", step, dash="", color=INK)
        plots = [dataclasses.replace(plot, lines=[*plot.lines, line]) for plot in made.plots]
        return dataclasses.replace(made, plots=plots)

    shown = {f"{step:g}": at(step) for step in steps}
    return dataclasses.replace(list(shown.values())[-1], steps=shown)


def stepped(steps: Mapping[float, Figure]) -> Figure:
    """One figure whose slider goes through `steps`, which stands at the last one.

    Axes and color scales of one name span the same range at all steps. Where the figure has many
    numbers, every second, third … step is kept. Attention views go through the steps by their own
    slider.

    >>> from mechint.figures import bars
    >>> text = {"title": "t", "x_title": "x", "y_title": "y", "caption": "c"}
    >>> made = stepped({s: bars([1, 2], {"a": [s, 1]}, **text) for s in (0, 5)})
    >>> list(made.steps), made.plots[0].y.span
    (['0', '5'], (0.0, 5.25))
    """
    drawn = {step: figure for step, figure in steps.items() if figure.plots}
    if not drawn:
        return list(steps.values())[-1]
    last = list(drawn.values())[-1]
    if last.view is not None:
        return _view_through({s: one for s, one in drawn.items() if one.view is not None})
    cells = max(_cells(figure) for figure in drawn.values())
    every = max(1, math.ceil(cells * len(drawn) / MAX_WEIGHTS))
    kept = dict(list(drawn.items())[::-1][::every][::-1])
    shown = on_one_scale(list(kept.values()))
    named = {f"{step:g}": one for step, one in zip(kept, shown, strict=True)}
    return dataclasses.replace(shown[-1], steps=named)


def _cells(figure: Figure) -> int:
    layers = [layer for plot in figure.plots for layer in plot.layers]
    return sum(len(one.x) + sum(map(len, one.z or ())) for one in layers)


def _view_through(steps: Mapping[float, Figure]) -> Figure:
    """The attention views of all steps as one, over the examples that all of them show; the last
    one alone where they share no example or their heads differ.
    """
    last = list(steps.values())[-1]
    views: dict[str, Any] = {f"{step:g}": shown.view for step, shown in steps.items()}
    own = views[list(views)[-1]]
    places = [
        {(one["name"], *one["tokens"]): place for place, one in enumerate(view["examples"])}
        for view in views.values()
    ]
    common = [key for key in places[-1] if all(key in place for place in places)]
    if not common or any(view["heads"] != own["heads"] for view in views.values()):
        caption = f"{last.caption} Of step {list(views)[-1]} alone."
        return dataclasses.replace(last, caption=caption)
    limit = 4 * MAX_WEIGHTS
    sizes = [len(own["heads"]) * (len(key) - 1) ** 2 for key in common]
    every = max(1, math.ceil(sizes[0] * len(views) / limit))
    kept = list(views)[::-1][::every][::-1]
    held = [sum(sizes[: i + 1]) * len(kept) <= limit for i in range(len(sizes))]
    common = [key for i, key in enumerate(common) if i == 0 or held[i]]
    frames = [
        [views[step]["frames"][-1][place[key]] for key in common]
        for step, place in zip(views, places, strict=True)
        if step in kept
    ]
    examples = [own["examples"][places[-1][key]] for key in common]
    view = {**own, "examples": examples, "frames": frames, "steps": kept}
    return dataclasses.replace(last, view=view)


def on_one_scale(figures: Sequence[Figure]) -> list[Figure]:
    """The figures with equal ends of the axes and color scales that show one quantity."""
    spans: dict[str, list[float]] = {}
    colors: dict[str, list[float]] = {}
    for figure in figures:
        for plot in figure.plots:
            for letter in "xy":
                axis: Axis = getattr(plot, letter)
                if _shows_values(figure, plot, letter):
                    spans.setdefault(f"{letter} {axis.title}", []).extend(_seen(plot, letter))
            for layer in plot.layers:
                if layer.scale is not None:
                    ends = [layer.scale.low, layer.scale.high]
                    colors.setdefault(layer.scale.title, []).extend(ends)
    return [_scaled(figure, spans, colors) for figure in figures]


def _scaled(
    figure: Figure, spans: Mapping[str, list[float]], colors: Mapping[str, list[float]]
) -> Figure:
    plots = []
    for plot in figure.plots:
        axes: dict[str, Any] = {}
        for letter in "xy":
            axis: Axis = getattr(plot, letter)
            values = spans.get(f"{letter} {axis.title}")
            if values and _shows_values(figure, plot, letter):
                axes[letter] = dataclasses.replace(axis, span=_span(axis, plot, values))
        layers = []
        for layer in plot.layers:
            if layer.scale is not None:
                ends = colors[layer.scale.title]
                scale = dataclasses.replace(layer.scale, low=min(ends), high=max(ends))
                layer = dataclasses.replace(layer, scale=scale)
            layers.append(layer)
        plots.append(dataclasses.replace(plot, layers=layers, **axes))
    return dataclasses.replace(figure, plots=plots)


def _shows_values(figure: Figure, plot: Plot, letter: str) -> bool:
    """Return whether an axis shows measured values, not places of bars, curves or cells."""
    if getattr(plot, letter).names is not None or plot.bare:
        return False
    if figure.kind == "dots":
        return True
    if figure.kind in ("bars", "lines", "panels", "histogram"):
        lying = any(layer.lying for layer in plot.layers)
        return letter == ("x" if lying else "y")
    return False


def _seen(plot: Plot, letter: str) -> list[float]:
    """Values that the range of an axis has to hold."""
    axis: Axis = getattr(plot, letter)
    if axis.span is not None:
        return list(axis.span)
    values = [0.0] if _from_zero(plot, axis) else []
    for layer in plot.layers:
        values += finite(list(getattr(layer, letter)))
    values += [line.at for line in plot.lines if line.axis == letter]
    return [value for value in values if value > 0] if axis.log else values


def _from_zero(plot: Plot, axis: Axis) -> bool:
    return not axis.log and any(one.kind == "bars" or one.step for one in plot.layers)


def _span(axis: Axis, plot: Plot, values: Sequence[float]) -> tuple[float, float]:
    """From the least to the largest value with a margin, but not beyond a zero that bars stand on
    nor beyond ends that were asked for.
    """
    low, high = min(values), max(values)
    if axis.span is not None:
        return (low, high)
    if axis.log:
        margin = (high / low) ** MARGIN if high > low else 2.0
        return tuple(numbers([low / margin, high * margin]))
    margin = MARGIN * (high - low or 1.0)
    zero = _from_zero(plot, axis)
    down = low if zero and low == 0 else low - margin
    up = high if zero and high == 0 and low < 0 else high + margin
    return tuple(numbers([float(down), float(up)]))
