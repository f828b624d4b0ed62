"""Figure builders: what is drawn, its names and units, that Plotly accepts it, and that equal input
gives equal bytes.
"""

from __future__ import annotations

import itertools
import json

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mechint import figures
from mechint.figures.drawing import draw
from mechint.figures.theme import colors, faint, numbers
from mechint.results import Figure, ProbeResult

GENERATOR = np.random.default_rng(0)
NAMES = {"title": "A title", "caption": "What to see.", "x_title": "step", "y_title": "loss (nats)"}
MATRIX = GENERATOR.normal(size=(5, 7))

EXAMPLES = {
    "lines": lambda: figures.lines(
        range(3),
        {"a": [1, 2, 3], "b": torch.tensor([3.0, 2.0, 1.0])},
        bands={"a": ([0, 1, 2], [2, 3, 4])},
        levels={"chance": 1.5},
        null=(1, 0.5, 1.5),
        **NAMES,
    ),
    "lines, log": lambda: figures.lines(
        [1, 10, 100],
        {"a": [1.0, 0.1, 0.01]},
        x_log=True,
        y_log=True,
        levels={"goal": 0.1},
        markers=True,
        **NAMES,
    ),
    "bars": lambda: figures.bars(
        [1, 2, 3],
        {"share": [0.1, 0.7, 0.2]},
        highlight=[2],
        null=(0.1, 0.05, 0.2),
        levels={"threshold": 0.3},
        **NAMES,
    ),
    "bars, names": lambda: figures.bars(
        ["x", "y"], {"a": [1, 2], "b": [2, 1]}, errors={"a": [0.1, 0.2]}, stacked=True, **NAMES
    ),
    "scatter": lambda: figures.scatter(
        [1, 2],
        [3, 4],
        color=[0, 1],
        color_title="residue",
        cyclic=True,
        text=["p", "q"],
        equal=True,
        **NAMES,
    ),
    "scatter, groups": lambda: figures.scatter(
        [1, 2, 3],
        [3, 4, 5],
        groups=["odd", "even", "odd"],
        labels=True,
        text=["1", "2", "3"],
        **NAMES,
    ),
    "histogram": lambda: figures.histogram(
        {"null": GENERATOR.normal(size=500)},
        marks={"observed": 3.0},
        title="T",
        x_title="cosine",
        caption="C",
    ),
    "heatmap": lambda: figures.heatmap(
        MATRIX, z_title="logit (nats)", diverging=True, square=True, **NAMES
    ),
    "heatmap, names": lambda: figures.heatmap(
        MATRIX, z_title="share (0–1)", x=list("abcdefg"), y=range(5), limits=(0, 1), **NAMES
    ),
    "image_grid": lambda: figures.image_grid(
        {f"head {i}": MATRIX * i for i in range(1, 7)}, z_title="attention (0–1)", **NAMES
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_builder(name: str) -> None:
    made = EXAMPLES[name]()
    assert isinstance(made, Figure)
    drawn = go.Figure(made.spec)  # Plotly refuses properties it does not know
    assert drawn.layout.title.text and made.caption
    axes = [
        value for key, value in made.spec["layout"].items() if key.startswith(("xaxis", "yaxis"))
    ]
    assert len(axes) >= 2
    assert any(axis["title"]["text"] for axis in axes)
    text = json.dumps(made.spec, allow_nan=False)
    assert json.loads(text) == made.spec, "plain JSON values only"
    assert "uid" not in text
    result = ProbeResult("p", "q", {}, "f", {}, figures={"a": made})
    assert ProbeResult.from_json(result.to_json()).figures["a"] == made


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "histogram"])
def test_equal_input_gives_equal_bytes(name: str) -> None:
    assert json.dumps(EXAMPLES[name]().spec) == json.dumps(EXAMPLES[name]().spec)


def test_a_heatmap_has_its_first_row_on_top_and_a_symmetric_scale() -> None:
    made = figures.heatmap([[-1.0, 4.0], [2.0, float("nan")]], z_title="z", diverging=True, **NAMES)
    trace = made.spec["data"][0]
    assert trace["z"] == [[-1.0, 4.0], [2.0, None]]
    assert (trace["zmin"], trace["zmax"]) == (-4.0, 4.0)
    assert made.spec["layout"]["yaxis"]["autorange"] == "reversed"


def test_panels_share_one_scale_and_do_not_overlap() -> None:
    made = figures.image_grid(
        {"a": [[0.0, 1.0]], "b": [[5.0, 2.0]], "c": [[3.0, 3.0]]}, z_title="z", columns=2, **NAMES
    )
    layout = made.spec["layout"]
    assert (layout["coloraxis"]["cmin"], layout["coloraxis"]["cmax"]) == (0.0, 5.0)
    assert layout["xaxis"]["domain"][1] < layout["xaxis2"]["domain"][0]
    assert layout["yaxis3"]["domain"][1] < layout["yaxis"]["domain"][0]


def test_a_histogram_integrates_to_one() -> None:
    trace = figures.histogram(
        {"a": GENERATOR.normal(size=999)}, title="T", x_title="x", caption="C"
    ).spec["data"][0]
    assert np.sum(np.diff(trace["x"]) * trace["y"][:-1]) == pytest.approx(1, abs=1e-3)


@given(st.lists(st.floats(-1e300, 1e300)))
def test_numbers_keep_five_digits(values: list[float]) -> None:
    for kept, value in zip(numbers(values), values, strict=True):
        assert kept == pytest.approx(value, rel=1e-4)


def _contrast(color: str, page: str) -> float:
    """The contrast ratio of WCAG 2."""

    def luminance(text: str) -> float:
        parts = [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    low, high = sorted((luminance(color), luminance(page)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("n", [1, 8, 9, 10, 24, 60])
def test_every_curve_of_a_family_has_a_color_of_its_own_that_both_pages_show(n: int) -> None:
    made = colors(n)
    assert len(made) == len(set(made)) == n
    assert min(_contrast(color, "#131619") for color in made) > 2
    assert min(_contrast(color, "#fdfdfc") for color in made) > 1.5


def test_neighbors_in_a_long_family_of_curves_differ_in_their_dash_too() -> None:
    def dashes(n: int) -> list[str | None]:
        family = {f"mod {i}": [0.0, i] for i in range(n)}
        made = figures.lines([1, 2], family, title="T", x_title="x", y_title="y", caption="C")
        panel = figures.Panel("accuracy (0–1)", {name: ([1, 2], y) for name, y in family.items()})
        above = figures.stacked([panel], x_title="x", title="T", caption="C")
        found, again = (
            [trace["line"].get("dash") for trace in one.spec["data"]] for one in (made, above)
        )
        assert found == again
        return found

    assert dashes(8) == [None] * 8
    assert dashes(12) == [None, "dash", "dot"] * 4


def test_a_faint_color() -> None:
    assert faint("#0072B2", 0.5) == "rgba(0,114,178,0.5)"


def test_a_logarithmic_axis_has_points_and_no_bars() -> None:
    """Where a bar begins on a logarithmic axis is arbitrary: its length would say nothing."""
    names = [f"frequency {i}" for i in range(9)]
    heights = 10.0 ** -np.arange(9)
    made = figures.bars(names, {"loss": heights}, highlight=names[:1], y_log=True, **NAMES)
    (trace,) = made.spec["data"]
    assert (trace["type"], trace["mode"]) == ("scatter", "markers")
    assert trace["y"] == names and trace["x"] == pytest.approx(heights)
    assert made.spec["layout"]["xaxis"]["type"] == "log"
    assert made.spec["layout"]["yaxis"]["autorange"] == "reversed"
    assert len(set(trace["marker"]["color"])) == 2


def test_long_names_are_shown_by_both_ends_and_kept_whole() -> None:
    names = [
        f"blocks.{i}.attn.hook_result of the head that looks at the token before {i}"
        for i in range(4)
    ]
    made = figures.bars(names, {"loss": [1.0, 2.0, 3.0, 4.0]}, **NAMES)
    axis = made.spec["layout"]["yaxis"]
    assert made.spec["data"][0]["y"] == names and axis["tickvals"] == [0, 1, 2, 3]
    for name, text in zip(names, axis["ticktext"], strict=True):
        begin, end = text.split("…")
        assert len(text) == 40 and name.startswith(begin) and name.endswith(end)
    assert (
        "ticktext"
        not in figures.bars(["a" * 40, "b"], {"s": [1, 2]}, horizontal=True, **NAMES).spec[
            "layout"
        ]["yaxis"]
    )
    drawing = draw(made.spec, 5.5, None)
    drawing.draw_without_rendering()
    shown = [label.get_window_extent() for label in drawing.axes[0].get_yticklabels()]
    assert len(shown) == 4 and all(box.x0 > 0 for box in shown)


def test_curves_of_one_group_have_one_color_and_one_entry() -> None:
    groups = {"a": "a", "a, seed 1": "a", "b": "b"}
    series = {name: [0.0, 1.0] for name in groups}
    made = figures.lines([1, 2], series, groups=groups, **NAMES)
    shown = {trace["name"]: trace for trace in made.spec["data"]}
    assert list(shown) == list(groups)
    assert shown["a"]["line"] == shown["a, seed 1"]["line"] != shown["b"]["line"]
    assert [trace.get("showlegend", True) for trace in shown.values()] == [True, False, True]


@pytest.mark.parametrize(("lowest", "step"), [(1e-3, 1), (1e-14, 3)])
def test_powers_of_ten_have_room_beside_each_other(lowest: float, step: int) -> None:
    made = figures.bars(
        ["x", "y", "z"], {"s": [lowest, float("nan"), 1.0]}, y_log=True, horizontal=True, **NAMES
    )
    assert made.spec["layout"]["xaxis"]["dtick"] == step


def test_columns_and_bars_of_one_name_are_not_merged() -> None:
    texts = {"title": "T", "x_title": "token", "y_title": "layer", "caption": "C"}
    tokens = ["the", "cat", "the"]
    made = figures.heatmap([[1.0, 2.0, 3.0]], x=tokens, y=["L0"], z_title="z", **texts)
    axis = made.spec["layout"]["xaxis"]
    assert "x" not in made.spec["data"][0] and made.spec["data"][0]["y"] == ["L0"]
    assert (axis["tickvals"], axis["ticktext"], axis.get("type")) == ([0, 1, 2], tokens, None)
    for lying in (False, True):
        made = figures.bars(tokens, {"a": [1, 2, 3]}, horizontal=lying, highlight=["cat"], **texts)
        across = "y" if lying else "x"
        (trace,), axis = made.spec["data"], made.spec["layout"][f"{across}axis"]
        assert trace[across] == [0, 1, 2] and axis.get("type") is None
        assert (axis["tickvals"], axis["ticktext"]) == ([0, 1, 2], tokens)
        assert len(set(trace["marker"]["color"])) == 2
    once = figures.bars(["a", "b"], {"a": [1, 2]}, **texts)
    assert (
        once.spec["data"][0]["x"] == ["a", "b"] and "tickvals" not in once.spec["layout"]["xaxis"]
    )


def test_plotly_is_given_texts_that_it_shows_letter_by_letter() -> None:
    tokens = ["<s>", "&lt;", "a"]
    made = figures.heatmap(
        np.eye(3), x=tokens, y=tokens, title="<b>", x_title="x < 1", y_title="y", z_title="z",
        caption="C",
    )  # fmt: skip
    shown = made.show()
    assert list(shown.data[0].x) == ["&lt;s>", "&amp;lt;", "a"]
    assert shown.layout.title.text == "&lt;b>"
    assert shown.data[0].hovertemplate == ("y: %{y}<br>x &lt; 1: %{x}<br>z: %{z}<extra></extra>")
    assert made.spec["data"][0]["x"] == tokens


def _labels(made: figures.Figure, pixels: float, low: float, high: float) -> list[float]:
    """Pixels from the lower edge of the plot to the lower edge of each level's name."""
    return [
        pixels * (note["y"] - low) / (high - low) + note.get("yshift", 0)
        for note in made.spec["layout"]["annotations"]
    ]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5), st.integers(1, 2))
def test_no_name_of_a_level_stands_over_another(places: list[float], n: int) -> None:
    """Names are 14 pixels high; the plot has 270 of 380, and the least its values take is 85%."""
    family = {f"curve {i}": [0.0, 1.0] for i in range(n)}
    levels = {f"level {i}": place for i, place in enumerate(places)}
    texts = {"title": "T", "x_title": "x", "y_title": "y", "caption": "C"}
    made = figures.lines([0, 1], family, levels=levels, **texts)
    lower = _labels(made, 0.85 * 270, 0.0, 1.0)
    order = sorted(range(len(places)), key=lambda i: (places[i], lower[i]))
    for before, after in itertools.pairwise(order):
        assert lower[after] - lower[before] >= 13, "rounded to pixels"
    if n == 2:  # they stand inside the plot, where no line is to strike them out
        for place in places:
            line = 0.85 * 270 * place
            assert not any(low + 1 < line < low + 13 for low in lower)


def test_a_level_that_is_not_a_number_has_no_name_in_the_plot() -> None:
    for log in (False, True):
        made = figures.lines(
            [1, 2], {"a": [1, 2]}, levels={"none": float("nan"), "one": 1.0}, y_log=log,
            title="T", x_title="x", y_title="y", caption="C",
        )  # fmt: skip
        assert [note["text"] for note in made.spec["layout"]["annotations"]] == ["one"]


def test_names_of_marks_that_lie_close_stand_above_each_other() -> None:
    marks = {"training set learned": 100, "test set learned": 130, "end": 1000}
    panel = figures.Panel("acc", {"test": ([0, 10, 100, 1000], [0, 0.1, 0.9, 1])})
    made = figures.stacked([panel], x_title="step", title="T", caption="C", marks=marks)
    layout = made.spec["layout"]
    assert [note["yshift"] for note in layout["annotations"][:3]] == [14, 28, 14]
    assert layout["meta"]["top"] == 54
    apart = figures.stacked(
        [panel], x_title="step", title="T", caption="C", marks={"a": 100, "b": 900}
    )
    assert apart.spec["layout"]["meta"]["top"] == 40
    samples = {"n": np.linspace(0, 10, 50)}
    near = {"observed here": 5.0, "observed there": 5.1}
    made = figures.histogram(samples, marks=near, title="T", x_title="x", caption="C")
    assert [note.get("yshift", 0) for note in made.spec["layout"]["annotations"]] == [0, 14]
