"""Figures: what builders keep of their numbers, and what both drawings show of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text

from mechint import figures
from mechint.errors import ParameterError
from mechint.figures import Figure
from mechint.figures.static import DPI, HALF, STYLE, draw, height_of, inline_svg

WORDS: dict[str, Any] = {"title": "A title", "caption": "A caption."}
XY: dict[str, Any] = {**WORDS, "x_title": "step", "y_title": "loss (nats)"}
LOOKS: dict[str, Any] = {**WORDS, "chosen": figures.Chosen("L0H0", 1)}
WEIGHTS = np.array([[[1.0, 0.0], [0.25, 0.75]]])


def every_kind() -> dict[str, Figure]:
    """A figure of every kind, with names that are markup."""
    names = ["<b>", "a & b", "="]
    panel = figures.Panel("loss (nats)", {"a": ([1, 2], [3, 1]), "b": ([1, 2], [1, 3])}, log=True)
    other = figures.Panel("share (0–1)", {"a": ([1, 2], [0, 1])}, y_range=(0, 1))
    return {
        "lines": figures.lines(
            [0, 1, 2],
            {"a": [1, None, 3], "b": [2, 2, 2]},
            bands={"a": ([0, 1, 2], [2, 3, 4])},
            levels={"chance": 0.5},
            null=(1.0, 0.5, 1.5),
            **XY,
        ),
        "bars": figures.bars(names, {"a": [1, 2, 3]}, highlight=["="], **XY),
        "lying": figures.bars(names, {"a": [1, 2, 3], "b": [3, 2, 1]}, horizontal=True, **XY),
        "points": figures.scatter(
            [0, 1], [1, 0], color=[0.5, 1], color_title="c", text=["<i>", "b"], **XY
        ),
        "groups": figures.scatter(
            [0, 1], [1, 0], groups=["a", "b"], labels=True, text=["x", "y"], **XY
        ),
        "histogram": figures.histogram(
            {"null": [0.0, 0.1, 0.2, 0.2]},
            marks={"observed": 2.0},
            x_title="share (0–1)",
            null=True,
            **WORDS,
        ),
        "matrix": figures.heatmap([[1, 2], [3, 4]], x=names[:2], z_title="z (nats)", **XY),
        "grid": figures.beside(
            *(figures.heatmap(np.eye(5), z_title="z", square=True, **XY) for _ in range(2))
        ),
        "beside": figures.beside(
            figures.bars(names, {"a": [1, 2, 3]}, horizontal=True, **XY),
            figures.lines([0, 1], {"kept": [0, 1], "left": [1, 0]}, **XY),
        ),
        "panels": figures.stacked([panel, other], x_title="step", marks={"learned": 1.5}, **WORDS),
        "attention": figures.attention(["L0H0"], {"<a>": ["<s>", "="]}, {"<a>": WEIGHTS}, **LOOKS),
        "graph": figures.graph(
            {"embed": (0, 0), "L0H0": (0, 1), "logits": (0, 2)},
            [("embed", "L0H0", 2.0), ("L0H0", "logits", 1.0)],
            faint=[("embed", "logits")],
            **WORDS,
        ),
    }


KINDS = every_kind()


@pytest.mark.parametrize("name", KINDS)
def test_a_figure_is_data(name: str) -> None:
    figure = KINDS[name]
    data = json.loads(json.dumps(figure.to_dict()))
    assert Figure.from_dict(data) == Figure.from_dict(figure.to_dict())
    assert Figure.from_dict(data).spec == json.loads(json.dumps(figure.spec))
    assert figure.title == "A title" and figure.caption.startswith("A caption.")


@pytest.mark.parametrize("name", ["lines", "matrix"])
def test_a_drawing_is_text_of_the_page(name: str) -> None:
    svg = inline_svg(KINDS[name], name)
    assert svg == inline_svg(KINDS[name], name), "equal each time"
    assert svg.startswith("<svg viewBox=") and 'aria-label="A caption."' in svg
    assert "var(--ink" in svg and "<b>" not in svg and "loss (nats)" in svg


@pytest.mark.full
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_drawn_as_a_file(name: str, tmp_path: Path) -> None:
    starts = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}
    for ending, start in starts.items():
        path = KINDS[name].save(tmp_path / f"f.{ending}", width=3.25)
        assert path.read_bytes().startswith(start)
    first = (tmp_path / "f.svg").read_bytes()
    assert KINDS[name].save(tmp_path / "g.svg", width=3.25).read_bytes() == first
    assert inline_svg(KINDS[name], name).count("<svg") == 1


def test_both_drawings_show_the_numbers() -> None:
    figure = KINDS["lines"]
    (axes,) = draw(figure, 5.0).axes
    drawn = [line.get_ydata().tolist() for line in axes.lines if len(line.get_xdata()) == 3]
    assert [2.0, 2.0, 2.0] in drawn
    traces = {trace.get("name"): trace for trace in figure.spec["data"] if "fill" not in trace}
    assert traces["a"]["y"] == [1, None, 3] and traces["b"]["y"] == [2, 2, 2]


def test_a_matrix_stands_as_it_is_printed() -> None:
    """Row 0 is on top in both drawings, and the axis runs down."""
    figure = KINDS["matrix"]
    axes = draw(figure, 5.0).axes[0]
    (image,) = axes.get_images()
    assert image.get_array().tolist() == [[1, 2], [3, 4]]
    low, high = axes.get_ylim()
    assert low > high and image.origin == "upper"
    assert figure.spec["layout"]["yaxis"]["autorange"] == "reversed"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["<b>", "a & b"]


def test_texts_are_shown_letter_by_letter() -> None:
    layout = KINDS["matrix"].spec["layout"]
    assert layout["xaxis"]["ticktext"] == ["&lt;b>", "a &amp; b"]
    assert KINDS["points"].spec["data"][0]["text"][0] == "&lt;i>"


def test_a_diverging_scale_is_symmetric() -> None:
    z = [[0.5, -2.0], [1.0, 0.0]]
    own = figures.heatmap(z, z_title="effect (nats)", diverging=True, **XY).plots[0].layers[0].scale
    assert own is not None and (own.low, own.high) == (-2.0, 2.0)


@pytest.mark.parametrize("scale", [1e-17, 0.004])
def test_what_is_negligible_is_a_sentence(scale: float) -> None:
    made = figures.bars([1, 2], {"a": [scale, -scale / 2]}, total=45.4, **XY)
    assert made.kind == "sentence" and not made.plots
    assert f"{scale:.2g} of 45.4 nats" in made.caption


def test_what_is_constant_is_a_sentence() -> None:
    made = figures.heatmap(np.full((3, 3), 0.25), z_title="share (0–1)", **XY)
    assert made.kind == "sentence" and "0.25 everywhere" in made.caption
    even = figures.attention(["L0H0"], {"a": ["x", "y"]}, {"a": np.full((1, 2, 2), 0.5)}, **LOOKS)
    assert even.kind == "sentence" and "0.5 from every token" in even.caption


def test_a_caption_follows_the_verdict() -> None:
    both = {"yes": "The tokens lie on a circle.", "no": "The tokens lie on no circle."}
    made = figures.scatter([0], [0], **{**XY, "caption": both})
    assert made.caption == both["yes"] and made.for_verdict("no").caption == both["no"]
    assert made.for_verdict("unclear").caption == both["yes"]
    assert Figure.from_dict(made.to_dict()).for_verdict("no").caption == both["no"]


def test_an_observed_value_stands_beside_its_null() -> None:
    (axes,) = draw(KINDS["histogram"], 4.0).axes
    lines = [line.get_xdata()[0] for line in axes.lines if len(set(line.get_xdata())) == 1]
    assert lines == [2.0] and axes.get_xlim()[1] >= 2.0


# --- steps ----------------------------------------------------------------------------------------
def merged(own: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The frame that the page's script makes."""
    made = {**own, **changes}
    return {name: value for name, value in made.items() if value is not None}


def test_frames_hold_what_differs_and_make_every_step() -> None:
    steps = {s: figures.bars([1, 2], {"a": [s, 1]}, highlight=[1], **XY) for s in (0, 5, 9)}
    made = figures.stepped(steps)
    spec = made.spec
    assert [frame["name"] for frame in spec["frames"]] == ["0", "5", "9"]
    for frame, own in zip(spec["frames"], made.steps.values(), strict=True):
        traces = [merged(*pair) for pair in zip(spec["data"], frame["data"], strict=True)]
        assert traces == own.spec["data"]
        assert merged(spec["layout"], frame["layout"]) == own.spec["layout"]
    assert set(spec["frames"][0]["data"][0]) == {"y"}, "numbers, not whole traces"
    assert {one.plots[0].y.span for one in made.steps.values()} == {(0.0, 9.45)}


def test_steps_share_the_scale_of_colors() -> None:
    steps = {s: figures.heatmap(np.eye(3) * s, z_title="z", **XY) for s in (1, 4)}
    scales = {one.plots[0].layers[0].scale for one in figures.stepped(steps).steps.values()}
    assert {(scale.low, scale.high) for scale in scales if scale} == {(0.0, 4.0)}


def test_many_numbers_keep_every_second_step_and_the_last() -> None:
    steps = {s: figures.heatmap(np.eye(100) * s, z_title="z", **XY) for s in range(1, 21)}
    kept = [int(name) for name in figures.stepped(steps).steps]
    assert kept == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]


def test_a_cursor_stands_at_each_step() -> None:
    made = figures.with_cursor(KINDS["panels"], [1, 2])
    assert [one.plots[1].lines[-1].at for one in made.steps.values()] == [1, 2]
    assert made.plots[0].lines[-1].at == 2


def test_attention_views_go_through_the_steps_of_the_examples_that_all_share() -> None:
    def view(weight: float, *names: str) -> Figure:
        pattern = np.array([[[1.0, 0.0], [weight, 1 - weight]]])
        tokens = {name: ["x", "="] for name in names}
        return figures.attention(["L0H0"], tokens, dict.fromkeys(names, pattern), **LOOKS)

    made = figures.stepped({0: view(0.5, "a", "b"), 5: view(0.25, "b")})
    assert made.view is not None and made.view["steps"] == ["0", "5"]
    assert [one["name"] for one in made.view["examples"]] == ["b"]
    assert [frame[0][0][2] for frame in made.view["frames"]] == [0.5, 0.25]
    alone = figures.stepped({0: view(0.5, "a"), 5: view(0.25, "b")})
    assert alone.caption.endswith("Of step 5 alone.")


def test_names_of_lines_and_titles_of_square_figures_stay_within_the_drawing() -> None:
    """By the boxes that Matplotlib measures: of a line at the end of its axis, and of the title
    beside a square figure.
    """
    ends = {"published clock": 0.0, "published pizza": 1.0}
    line = figures.between(0.4, ends, x_range=(0, 1), bands={}, x_title="cosine (0–1)", **WORDS)
    long = {**XY, "y_title": "token, as the task lists them"}
    square = figures.heatmap(np.eye(30), z_title="z", square=True, **long)
    for figure in (line, square):
        with matplotlib.rc_context(STYLE):
            made = draw(figure, HALF / DPI, height_of(figure, HALF) / DPI)
            made.draw_without_rendering()
            texts = [one for one in made.findobj(Text) if one.get_text() and one.get_visible()]
            boxes = [one.get_window_extent() for one in texts]
        assert len(boxes) > 5
        assert min(box.x0 for box in boxes) >= 0
        assert max(box.x1 for box in boxes) <= made.bbox.width


# --- files ----------------------------------------------------------------------------------------
def test_a_file_is_named_by_its_ending(tmp_path: Path) -> None:
    figure = KINDS["bars"]
    assert (
        Figure.from_dict(json.loads(figure.save(tmp_path / "f.json").read_text())).spec
        == figure.spec
    )
    page = figure.save(tmp_path / "f.html").read_text()
    assert page.index("<svg") < page.index("plotly.js v"), "the drawing comes before the script"
    assert "A caption." in page
    view = KINDS["attention"].save(tmp_path / "v.html").read_text()
    assert "data-view" in view and "plotly.js v" not in view and len(view) < 100_000
    for path, size in (("f.gif", {}), ("f.svg", {"width": 0.5}), ("f.svg", {"height": 99})):
        with pytest.raises(ParameterError):
            figure.save(tmp_path / path, **size)


def test_a_training_curve_needs_two_evaluations() -> None:
    rows = [{"step": s, "train.accuracy": s / 10, "test.loss": 1.0 - s / 20} for s in (0, 10)]
    made = figures.training_curve(rows, chance=0.1, step=10)
    assert made is not None and [plot.y.log for plot in made.plots] == [False, True]
    assert made.plots[0].layers[0].y == [0.0, 1.0]
    assert {line.at for line in made.plots[0].lines} == {0.1, 10}
    assert figures.training_curve(rows[:1]) is None
    errors = figures.training_curve([{"step": s, "train.loss": 2.0} for s in (0, 1)])
    assert errors is not None and errors.plots[0].y.title == "loss"
