"""A figure over steps shows at each step what that step's own figure shows, on shared scales."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mechint import figures
from mechint.figures import Figure, stepped
from mechint.figures.steps import MOST_OVER_STEPS, at_steps
from mechint.report import Page, Section, render
from mechint.report.validate import check_figure, check_page

XY = {"x_title": "component", "y_title": "loss (nats)"}
LONG = "embedding: second harmonics of the frequencies {} and {}"


def bars(values: dict[str, float], caption: str, **more: Any) -> Figure:
    names, heights = list(values), list(values.values())
    return figures.bars(names, {"loss": heights}, title="Loss", caption=caption, **XY, **more)


def removals() -> dict[int, Figure]:
    """Bars that stand at first and lie later, under other names, levels and captions."""
    few = {LONG.format(k, 2 * k): float(k) for k in (3, 1)}
    many = {LONG.format(k, 2 * k): float(k) for k in (1, 2, 4)}
    return {
        0: bars({"nothing": 5.0, "all": 4.0}, "No key frequency."),
        10: bars(few, "Key: 3."),
        20: bars(many, "Key: 1, 2, 4.", levels={"key above": 1.5}),
    }


def circuits() -> dict[int, Figure]:
    """The matrix of another head at each step."""
    words = {"x_title": "class", "y_title": "token", "z_title": "entry", "caption": "c"}
    return {
        step: figures.heatmap(
            [[-0.5 * size, 0.0, size]], title=f"OV circuit of L0H{step}", diverging=True, **words
        )
        for step, size in ((0, 0.1), (1, 4.0), (2, 2.0))
    }


def grids() -> dict[int, Figure]:
    """Panels under the layout's scale of colors, two at one step and one at the other."""
    words = {"title": "t", "x_title": "x", "y_title": "y", "z_title": "activation", "caption": "c"}
    both = {"neuron 1": [[0.0, 33.0]], "neuron 2": [[1.0, 2.0]]}
    return {
        0: figures.image_grid(both, **words),
        1: figures.image_grid({"neuron 7": [[2.0, 21.0]]}, **words),
    }


def without_scales(figure: Figure) -> Any:
    """The specification without what steps may share: ranges of axes and ends of colors."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            ends = {"range", "zmin", "zmax", "cmin", "cmax"}
            return {name: bare(item) for name, item in value.items() if name not in ends}
        return [bare(item) for item in value] if isinstance(value, list) else value

    return bare({name: figure.spec[name] for name in ("data", "layout")})


def bare() -> dict[int, Figure]:
    """Figures of others, of which one says less than the other."""
    data = [{"type": "scatter", "x": [0], "y": [1]}]
    layouts = {0: {"yaxis": {}}, 1: {"yaxis": {}, "height": 500, "title": {"text": "T"}}}
    return {s: Figure({"data": data, "layout": layouts[s]}, f"At {s}.") for s in layouts}


@pytest.mark.parametrize("steps", [removals(), circuits(), grids(), bare()])
def test_a_step_is_the_figure_of_that_step_alone(steps: dict[int, Figure]) -> None:
    made = stepped(steps)
    check_figure(made.to_dict())
    assert Figure(**made.to_dict()).spec == made.to_dict()["spec"], "through JSON and back"
    for own, shown in zip(steps.values(), at_steps(Figure(**made.to_dict())), strict=True):
        assert without_scales(shown) == without_scales(own)
        assert (shown.title, shown.caption) == (own.title, own.caption)
    assert made.spec["data"] == made.spec["frames"][-1]["data"]
    assert not made.spec["frames"][-1]["layout"], "the last step is the figure itself"
    assert len(made.show().frames) == len(steps), "plotly reads it"


def test_lying_bars_share_the_range_of_their_values_and_standing_ones_keep_theirs() -> None:
    first, second, last = at_steps(stepped(removals()))
    assert second.spec["layout"]["xaxis"]["range"] == [0, 4.2]
    assert last.spec["layout"]["xaxis"]["range"] == [0, 4.2]
    assert first.spec["layout"]["yaxis"]["range"] == [0, 5.25]
    assert "range" not in first.spec["layout"]["xaxis"]
    assert "range" not in last.spec["layout"]["yaxis"]


def test_a_range_holds_errors_levels_and_powers_of_ten() -> None:
    lying = {"horizontal": True}
    steps = {
        0: bars({"a": 1.0}, "c", errors={"loss": [0.5]}, **lying),
        1: bars({"a": -2.0}, "c", levels={"chance": 3.0}, **lying),
    }
    room = 0.05 * (3.0 - -2.0)
    for shown in at_steps(stepped(steps)):
        assert shown.spec["layout"]["xaxis"]["range"] == pytest.approx([-2.0 - room, 3.0 + room])
    powers = {s: bars({"a": 10.0**s, "b": 1.0}, "c", y_log=True, **lying) for s in (-4, 1)}
    for shown in at_steps(stepped(powers)):
        low, high = shown.spec["layout"]["xaxis"]["range"]
        assert -4.5 < low < -4 and 1 < high < 1.5
    asked = {
        s: figures.lines([0, 1], {"a": [0, s]}, title="t", caption="c", y_range=(-0.03, 1.03), **XY)
        for s in (0.1, 0.2)
    }
    assert stepped(asked).spec["layout"]["yaxis"]["range"] == [-0.03, 1.03]


def test_zero_keeps_the_middle_color_and_no_color_is_clipped() -> None:
    for shown in at_steps(stepped(circuits())):
        (trace,) = shown.spec["data"]
        assert (trace["zmin"], trace["zmax"]) == (-4.0, 4.0), "the largest of all, symmetric"
    for shown in at_steps(stepped(grids())):
        scale = shown.spec["layout"]["coloraxis"]
        assert (scale["cmin"], scale["cmax"]) == (0.0, 33.0)
        assert all("zmax" not in trace for trace in shown.spec["data"])
    words = {"title": "t", "x_title": "x", "y_title": "y", "z_title": "cosine", "caption": "c"}
    cosines = {
        s: figures.heatmap([[-0.1, s]], diverging=True, limits=(-1, 1), **words) for s in (0.2, 0.9)
    }
    for shown in at_steps(stepped(cosines)):
        (trace,) = shown.spec["data"]
        assert (trace["zmin"], trace["zmax"]) == (-1, 1), "as asked for"


def test_matrices_of_other_things_keep_their_own_colors() -> None:
    words = {"title": "t", "x_title": "x", "y_title": "y", "caption": "c"}
    steps = {
        0: figures.heatmap([[0.0, 1.0]], z_title="attention (0–1)", **words),
        1: figures.heatmap([[0.0, 50.0]], z_title="logits", **words),
    }
    ends = [figure.spec["data"][0]["zmax"] for figure in at_steps(stepped(steps))]
    assert ends == [1.0, 50.0]


# --- attention ------------------------------------------------------------------------------------
def attention(first: float, examples: str = "ab", heads: int = 2) -> Figure:
    """A view in which every head looks at token 0 by `first` from token 1."""
    pattern = np.array([[[1.0, 0.0], [first, 1 - first]]] * heads)
    return figures.attention(
        [f"L0H{i}" for i in range(heads)],
        {name: [name, "="] for name in examples},
        dict.fromkeys(examples, pattern),
        title="Attention",
        caption="c",
    )


def test_an_attention_view_holds_every_step() -> None:
    made = stepped({step: attention(step / 100) for step in (0, 30, 90)})
    view = made.spec["view"]
    assert view["steps"] == ["0", "30", "90"]
    seen = [[example[1][2] for example in frame] for frame in view["frames"]]
    assert seen == [[0.0, 0.0], [0.3, 0.3], [0.9, 0.9]]
    assert "frames" not in made.spec, "one slider, that of the view"
    html = render(Page("p", [Section("s", figures={"a": made})]))
    assert '<input type="range"' not in html


def test_views_meet_in_the_examples_that_all_steps_show() -> None:
    made = stepped({0: attention(0.1, "ba"), 5: attention(0.5, "ac")})
    view = made.spec["view"]
    assert [example["name"] for example in view["examples"]] == ["a"]
    assert [frame[0][0][2] for frame in view["frames"]] == [0.1, 0.5]
    alone = stepped({0: attention(0.1, "a"), 5: attention(0.5, "b")})
    assert alone.spec == attention(0.5, "b").spec and alone.caption == "c Of step 5 alone."
    other = stepped({0: attention(0.1, heads=1), 5: attention(0.5)})
    assert other.caption == "c Of step 5 alone."


def test_a_view_of_many_steps_stays_small_and_ends_at_the_last() -> None:
    heads, most = 48, 64
    pattern = np.full((heads, most, most), 0.5)
    tokens = {"a": [str(i) for i in range(most)], "b": ["x"] * most}
    names = [f"L0H{i}" for i in range(heads)]
    shown = figures.attention(names, tokens, dict.fromkeys(tokens, pattern), title="t", caption="c")
    view = stepped(dict.fromkeys(range(0, 110, 10), shown)).spec["view"]
    held = sum(len(head) for frame in view["frames"] for heads in frame for head in heads)
    assert held <= MOST_OVER_STEPS and view["steps"][-1] == "100" and len(view["steps"]) > 1
    assert len(view["examples"]) == 1


# --- the page -------------------------------------------------------------------------------------
def test_a_page_has_the_words_of_every_step_and_shows_the_last() -> None:
    steps = circuits()
    page = Page("p", [Section("s", figures={"ov": stepped(steps), "bars": stepped(removals())})])
    check_page(page.to_dict())
    html = render(page)
    for place, own in enumerate(steps.values()):
        hidden = "" if place == 2 else " hidden"
        assert f'<h3 class="title" data-step="{place}"{hidden}>{own.title}</h3>' in html
    for place, own in enumerate(removals().values()):
        hidden = "" if place == 2 else " hidden"
        assert f'<span class="caption" data-step="{place}"{hidden}>{own.caption}</span>' in html
    assert render(Page.from_dict(page.to_dict())) == html
    same = stepped({s: bars({"a": float(s)}, "c") for s in (1, 2)})
    assert "data-step=" not in render(Page("p", [Section("s", figures={"a": same})]))


def test_no_number_of_a_range_is_lost() -> None:
    """A figure without any number has no range, and one of a single number has a wide one."""
    nothing = {s: bars({"a": math.nan}, "c", y_log=True) for s in (0, 1)}
    assert "range" not in stepped(nothing).spec["layout"]["yaxis"]
    single = {s: figures.lines([0], {"a": [2.0]}, title="t", caption="c", **XY) for s in (0, 1)}
    assert stepped(single).spec["layout"]["yaxis"]["range"] == [1.95, 2.05]
