"""Panels on one axis, and figures that go through steps."""

from __future__ import annotations

import itertools

import pytest

from mechint.errors import DataError
from mechint.figures import Figure, Panel, bars, heatmap, lines, stacked, stepped, with_cursor
from mechint.report import Page, Section, render
from mechint.report.validate import check_figure

TEXT = {"title": "t", "x_title": "x", "y_title": "y", "caption": "c"}


def test_panels_share_one_axis_and_do_not_overlap() -> None:
    panels = [
        Panel("accuracy", {"train": ([0, 5], [0.1, 1]), "test": ([0, 5], [0.1, 0.2])}),
        Panel("loss", {"train": ([0, 5], [3.0, 1e-7]), "test": ([0, 5], [3.0, 5.0])}, log=True),
        Panel("one", {"one": ([0, 5], [1, 2])}, {"one": ([0, 5], [0, 1], [2, 3])}),
        Panel("image", image=([0, 5], [1, 2], [[0, 1], [1, 0]])),
    ]
    made = stacked(panels, x_title="step", title="t", caption="c", marks={"here": 3.0})
    layout = made.spec["layout"]
    domains = [layout[name]["domain"] for name in ("yaxis", "yaxis2", "yaxis3", "yaxis4")]
    assert domains[0][1] == pytest.approx(1) and domains[-1][0] == pytest.approx(0)
    assert all(above[0] > below[1] for above, below in itertools.pairwise(domains))
    assert {trace.get("xaxis", "x") for trace in made.spec["data"]} == {"x"}
    assert layout["xaxis"]["anchor"] == "y4"
    assert layout["yaxis2"]["dtick"] == 2, "eight decades, at most about four of them labeled"
    named = [trace["name"] for trace in made.spec["data"] if trace.get("showlegend", True)]
    assert named == ["train", "test"], "one entry per name; a panel's only curve has its title"
    assert layout["shapes"][0]["x0"] == 3.0


def test_a_logarithmic_axis_leaves_step_0_out() -> None:
    panels = [Panel("a", {"a": ([0, 1, 10], [5, 6, 7])}, {"a": ([0, 1], [4, 5], [6, 7])})]
    band, curve = stacked(panels, x_title="s", title="t", caption="c", x_log=True).spec["data"]
    assert curve["x"] == [1, 10] and curve["y"] == [6, 7]
    assert band["x"] == [1, 1] and band["y"] == [7, 5]


def test_steps_are_frames_with_one_range() -> None:
    made = stepped({s: lines([1, 2], {"a": [s, 2.0 * s]}, **TEXT) for s in (10, 1, 5)})
    assert [frame["name"] for frame in made.spec["frames"]] == ["10", "1", "5"]
    assert [frame["data"][0]["y"] for frame in made.spec["frames"]] == [
        [10, 20.0],
        [1, 2.0],
        [5, 10.0],
    ]
    assert made.spec["data"] == made.spec["frames"][-1]["data"]
    low, high = made.spec["layout"]["yaxis"]["range"]
    assert low < 1 and high > 20
    maps = stepped({s: heatmap([[0.0, s]], z_title="z", **TEXT) for s in (1.0, 3.0)})
    assert {(f["data"][0]["zmin"], f["data"][0]["zmax"]) for f in maps.spec["frames"]} == {
        (0.0, 3.0)
    }
    assert made.show().frames[1].name == "1", "plotly reads it"


def test_a_cursor_moves_and_what_was_marked_stays() -> None:
    made = stacked(
        [Panel("a", {"a": ([0, 9], [0, 1])})],
        x_title="s",
        title="t",
        caption="c",
        marks={"m": 4.0},
    )
    moved = with_cursor(made, [0, 9])
    at = [[shape["x0"] for shape in f["layout"]["shapes"]] for f in moved.spec["frames"]]
    assert at == [[4.0, 0], [4.0, 9]] and "data" not in moved.spec["frames"][0]


def test_a_page_has_a_slider_per_stepped_figure_alone() -> None:
    steps = stepped({s: bars([1, 2], {"a": [s, 1]}, **TEXT) for s in (0, 7)})
    plain = bars([1, 2], {"a": [1, 2]}, **TEXT)
    html = render(Page("p", [Section("s", figures={"a": steps, "b": plain})]))
    assert html.count('<input type="range"') == 1
    assert 'max="1" value="1" data-steps="plot-1"' in html and "<output>7</output>" in html


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (3, r"frames\[0\]: got int"),
        ({"data": []}, "'name' is missing"),
        ({"name": "a", "data": [{"type": "scattergl"}]}, "expected one of"),
        ({"name": "a", "layout": {"images": [{"source": "https://x"}]}}, "not drawn"),
        ({"name": "a", "traces": [0]}, "unknown field 'traces'"),
    ],
)
def test_frames_of_others_are_checked(frame: object, text: str) -> None:
    figure = Figure({"data": [], "layout": {}, "frames": [frame]}, "c")
    with pytest.raises(DataError, match=text):
        check_figure(figure.to_dict())
