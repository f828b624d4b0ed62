"""Figures that a slider takes through the steps of a run: at each step the whole figure, with its
own title, axes, names and caption, on one scale with the others where they show the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from mechint.figures.attention import MOST_WEIGHTS
from mechint.figures.figure import Figure
from mechint.figures.stacked import flat, upright
from mechint.figures.theme import numbers

ROOM = 0.05
"""Share of an axis that stands free beyond the least and the largest value."""
MOST_OVER_STEPS = 8 * MOST_WEIGHTS
"""Weights of attention that one figure holds over all its steps."""
Spec = Mapping[str, Any]


def with_cursor(made: Figure, steps: Sequence[float]) -> Figure:
    """`made` with a line at the step that the page's slider stands at, the last one at first."""
    before = list(made.spec["layout"].get("shapes", []))
    shapes = {step: [*before, upright(step, "solid", 1.5)] for step in steps}
    frames = [{"name": f"{step:g}", "layout": {"shapes": shapes[step]}} for step in steps]
    layout = {**made.spec["layout"], "shapes": shapes[steps[-1]]}
    return Figure({**made.spec, "layout": layout, "frames": frames}, made.caption)


def stepped(steps: Mapping[float, Figure]) -> Figure:
    """One figure that a slider takes through `steps`; it stands at the last one.

    Its specification holds Plotly's "frames", one per step: the data, what of the layout differs
    from the last one's (None for what is not there), and the "caption" where it differs. Axes and
    colors of one name, on one kind of scale, span the same range at all steps that have them. An
    attention view goes through the steps by its own slider and has no frames.

    >>> from mechint.figures import bars
    >>> text = {"title": "t", "x_title": "x", "y_title": "y", "caption": "c"}
    >>> made = stepped({s: bars([1, 2], {"a": [s, 1]}, **text) for s in (0, 5)})
    >>> [frame["name"] for frame in made.spec["frames"]], made.spec["layout"]["yaxis"]["range"]
    (['0', '5'], [0.0, 5.25])
    """
    if views := {step: shown for step, shown in steps.items() if "view" in shown.spec}:
        return _view_through(views)
    shown = dict(zip(steps, _on_one_scale(list(steps.values())), strict=True))
    last = list(shown.values())[-1]
    frames = [
        {
            "name": f"{step:g}",
            "data": one.spec["data"],
            "layout": _difference(one.spec["layout"], last.spec["layout"]),
        }
        | ({} if one.caption == last.caption else {"caption": one.caption})
        for step, one in shown.items()
    ]
    return Figure({**last.spec, "frames": frames}, last.caption)


def at_steps(figure: Figure) -> list[Figure]:
    """What `figure` shows at each step of its slider, as a figure of its own; itself where it has
    no slider.

    >>> from mechint.figures import bars
    >>> text = {"x_title": "x", "y_title": "y", "caption": "c"}
    >>> made = stepped({s: bars([1], {"a": [s]}, title=f"Head {s}", **text) for s in (0, 5)})
    >>> [one.title for one in at_steps(made)]
    ['Head 0', 'Head 5']
    """
    found = []
    for frame in figure.spec.get("frames") or []:
        layout = {**(figure.spec.get("layout") or {}), **(frame.get("layout") or {})}
        spec = {
            "data": frame.get("data", figure.spec.get("data") or []),
            "layout": {name: value for name, value in layout.items() if value is not None},
        }
        found.append(Figure(spec, frame.get("caption", figure.caption)))
    return found or [figure]


def _difference(layout: Spec, last: Spec) -> dict[str, Any]:
    """What makes `layout` of the last step's: its own values, None for what it does not have."""
    own = {name: value for name, value in layout.items() if last.get(name) != value}
    return own | {name: None for name in last if name not in layout}


def _view_through(steps: Mapping[float, Figure]) -> Figure:
    """The attention views of all steps as one, over the examples that all of them show.

    Examples, and then steps, are left out where one page cannot hold them; where the steps share no
    example, or their heads differ, the last one stands alone.
    """
    last = list(steps.values())[-1]
    views = {f"{step:g}": shown.spec["view"] for step, shown in steps.items()}
    own = last.spec["view"]
    places = [
        {(one["name"], *one["tokens"]): place for place, one in enumerate(view["examples"])}
        for view in views.values()
    ]
    common = [key for key in places[-1] if all(key in place for place in places)]
    if not common or any(view["heads"] != own["heads"] for view in views.values()):
        return Figure(last.spec, f"{last.caption} Of step {list(views)[-1]} alone.")
    sizes = [len(own["heads"]) * (len(key) - 1) ** 2 for key in common]
    every = max(1, math.ceil(sizes[0] * len(views) / MOST_OVER_STEPS))
    kept = list(views)[::-1][::every][::-1]
    held = [sum(sizes[: i + 1]) * len(kept) <= MOST_OVER_STEPS for i in range(len(sizes))]
    common = [key for i, key in enumerate(common) if i == 0 or held[i]]
    frames = [
        [views[step]["frames"][-1][place[key]] for key in common]
        for step, place in zip(views, places, strict=True)
        if step in kept
    ]
    examples = [own["examples"][places[-1][key]] for key in common]
    view = {**own, "examples": examples, "frames": frames, "steps": kept}
    return Figure({**last.spec, "view": view}, last.caption)


# --- one scale for all steps ----------------------------------------------------------------------
def _on_one_scale(figures: Sequence[Figure]) -> list[Figure]:
    """The figures with equal ranges of the colors, and of the axes, that show the same."""
    ends: dict[Any, list[float]] = defaultdict(list)
    for one in figures:
        for holder in _color_scales(one.spec):
            own = flat([holder.get(name) for name in ("zmin", "zmax", "cmin", "cmax")])
            ends[_color_key(holder)] += own or flat(holder.get("z"))
        for letter in _value_axes(one.spec):
            ends[_axis_key(one.spec, letter)] += _seen(one.spec, letter)
    return [_scaled(one, ends) for one in figures]


def _scaled(figure: Figure, ends: Mapping[Any, Sequence[float]]) -> Figure:
    """`figure` with the ends of its colors and axes from `ends`: what is shown → its values."""

    def colored(holder: Spec, names: tuple[str, str]) -> Spec:
        values = ends.get(_color_key(holder), ())
        if not values:
            return holder
        return {**holder, **dict(zip(names, (min(values), max(values)), strict=True))}

    scales = [id(holder) for holder in _color_scales(figure.spec)]
    data = [colored(t, ("zmin", "zmax")) if id(t) in scales else t for t in figure.spec["data"]]
    layout = {
        name: colored(held, ("cmin", "cmax")) if id(held) in scales else held
        for name, held in figure.spec["layout"].items()
    }
    for letter in _value_axes(figure.spec):
        if values := ends.get(_axis_key(figure.spec, letter)):
            name = f"{letter}axis"
            layout[name] = {**layout.get(name, {}), "range": _range(figure.spec, letter, values)}
    return Figure({**figure.spec, "data": data, "layout": layout}, figure.caption)


def _color_scales(spec: Spec) -> list[Spec]:
    """What holds a scale of colors of matrices: a trace, or the layout for the traces that name it,
    whose own ends Plotly does not read.
    """
    own = [trace for trace in spec["data"] if "z" in trace and "coloraxis" not in trace]
    return own + [held for name, held in spec["layout"].items() if name.startswith("coloraxis")]


def _color_key(holder: Spec) -> tuple[str, str]:
    """What tells one scale of colors from another: its name and its colors."""
    return _title(holder.get("colorbar")), str(holder.get("colorscale"))


def _value_axes(spec: Spec) -> list[str]:
    """The letters of the axes that show values; none where there are panels, or bars on bars.

    Lying bars have their values on x, points on both axes, curves and bars on y.
    """
    traces, layout = spec["data"], spec["layout"]
    plain = all(t.get("type") in ("bar", "scatter") and "yaxis" not in t for t in traces)
    if not traces or not plain or layout.get("barmode") == "stack":
        return []
    points = all(t["type"] == "scatter" and t.get("mode") in POINTS for t in traces)
    lying = any(trace.get("orientation") == "h" for trace in traces)
    letters = "x" if lying else "xy" if points else "y"
    kinds = {letter: layout.get(f"{letter}axis", {}).get("type") for letter in letters}
    return [letter for letter, kind in kinds.items() if kind in (None, "log")]


POINTS = ("markers", "markers+text")


def _axis_key(spec: Spec, letter: str) -> tuple[str, str, str, bool]:
    """What tells one axis from another: its place, its name, its kind, and whether its range was
    asked for.
    """
    axis = spec["layout"].get(f"{letter}axis", {})
    return letter, _title(axis), axis.get("type") or "", bool(axis.get("range"))


def _seen(spec: Spec, letter: str) -> list[float]:
    """The values that the range of an axis has to hold: those of the data with their errors, of
    named levels, and the ends that were asked for; on a logarithmic axis their exponents.
    """
    axis = spec["layout"].get(f"{letter}axis", {})
    if axis.get("range"):
        return flat(axis["range"])
    values = [] if not _from_zero(spec, axis) else [0.0]
    for trace in spec["data"]:
        at = flat(trace.get(letter))
        around = flat((trace.get(f"error_{letter}") or {}).get("array"))
        values += at
        if len(around) == len(at):
            values += [v + sign * e for v, e in zip(at, around, strict=True) for sign in (-1, 1)]
    for shape in spec["layout"].get("shapes") or []:
        if shape.get(f"{letter}ref") != "paper":
            values += flat([shape.get(f"{letter}0"), shape.get(f"{letter}1")])
    if axis.get("type") == "log":
        return [math.log10(value) for value in values if value > 0]
    return values


def _from_zero(spec: Spec, axis: Spec) -> bool:
    bars = any(trace.get("type") == "bar" for trace in spec["data"])
    return axis.get("type") != "log" and (bars or axis.get("rangemode") == "tozero")


def _range(spec: Spec, letter: str, values: Sequence[float]) -> list[float]:
    """From the least to the largest of `values`; with a little room, but not beyond a zero that
    bars stand on, nor beyond ends that were asked for.
    """
    axis = spec["layout"].get(f"{letter}axis", {})
    low, high = min(values), max(values)
    if axis.get("range"):
        return [low, high]
    room = ROOM * (high - low or 1.0)
    stands = _from_zero(spec, axis)
    down = low if stands and low == 0 else low - room
    up = high if stands and high == 0 and low < 0 else high + room
    return numbers([float(down), float(up)])


def _title(holder: Any) -> str:
    title = holder.get("title") if isinstance(holder, Mapping) else None
    return str(title.get("text", "") if isinstance(title, Mapping) else title or "")
