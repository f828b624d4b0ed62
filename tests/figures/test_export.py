"""Figures as files: what is drawn is what the specification holds, in every form, without a
browser.
"""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from matplotlib.cbook import STEP_LOOKUP_MAP
from matplotlib.collections import LineCollection, PathCollection, PolyCollection, QuadMesh
from matplotlib.figure import Figure as Drawing

from mechint import figures
from mechint.errors import ParameterError, RunError
from mechint.figures.drawing import draw
from mechint.figures.export import numbers_of

NAMES = {"title": "Title", "x_title": "step", "y_title": "loss (nats)", "caption": "C"}
MATRIX = np.arange(12.0).reshape(3, 4)
FIGURES = {
    "lines": figures.lines(
        [1, 10, 100],
        {"train": [3.0, 2.0, float("nan")], "test": [3.0, 2.5, 2.0]},
        bands={"test": ([2.5, 2.0, 1.5], [3.5, 3.0, 2.5])},
        levels={"chance": 2.2},
        x_log=True,
        **NAMES,
    ),
    "bars": figures.bars(["a", "b", "c"], {"s": [1.0, 2.0, 3.0]}, highlight=["b"], **NAMES),
    "points": figures.scatter([1, 2], [3, 4], color=[0.0, 1.0], color_title="c", **NAMES),
    "matrix": figures.heatmap(MATRIX, z_title="z", **NAMES),
    "panels": figures.image_grid({"a": MATRIX, "b": -MATRIX}, z_title="z", **NAMES, diverging=True),
    "training": figures.training_curve(
        [{"step": s, "test.accuracy": s / 9, "test.loss": 1 / (s + 1)} for s in range(10)],
        chance=0.2,
    ),
}


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("ending", ["svg", "pdf", "png", "html", "csv", "json"])
def test_every_figure_saves_itself_the_same_each_time(
    name: str, ending: str, tmp_path: Path
) -> None:
    figure = FIGURES[name]
    assert figure is not None
    first = figure.save(tmp_path / f"a.{ending}").read_bytes()
    assert first == figure.save(tmp_path / f"b.{ending}").read_bytes()
    start = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}.get(ending, b"")
    assert first.startswith(start) and len(first) > 20
    if ending == "svg":
        texts = [node.text for node in ElementTree.fromstring(first.decode()).iter() if node.text]
        title = figure.spec["layout"]["title"]["text"]
        assert any(title in text for text in texts)


def test_lines_hold_the_numbers_of_the_figure() -> None:
    (axes,) = draw(FIGURES["lines"].spec, 5.5, None).axes
    drawn = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
    assert np.allclose(drawn["train"], [3.0, 2.0, np.nan], equal_nan=True)
    assert np.allclose(drawn["test"], [3.0, 2.5, 2.0])
    assert any(np.allclose(line.get_ydata(), 2.2) for line in axes.get_lines())
    assert axes.get_xscale() == "log" and axes.get_xlabel() == "step"
    assert axes.get_ylabel() == "loss (nats)"


def test_bars_and_matrices_hold_the_numbers_of_the_figure() -> None:
    (axes,) = draw(FIGURES["bars"].spec, 5.5, None).axes
    assert [bar.get_height() for bar in axes.patches] == [1.0, 2.0, 3.0]
    assert len({bar.get_facecolor() for bar in axes.patches}) == 2, "one is highlighted"
    panels = draw(FIGURES["panels"].spec, 5.5, None).axes
    images = [image for axes in panels for image in axes.get_images()]
    assert np.allclose(images[0].get_array(), MATRIX)
    assert np.allclose(images[1].get_array(), -MATRIX)
    low, high = images[0].get_clim()
    assert (low, high) == images[1].get_clim() and low == -high


def test_a_histogram_is_drawn_as_steps_whose_area_is_one() -> None:
    made = figures.histogram({"a": [0.5] * 10 + [3.5]}, bins=4, title="T", x_title="x", caption="C")
    (axes,) = draw(made.spec, 5.5, None).axes
    (curve,) = (line for line in axes.get_lines() if line.get_label() == "a")
    corners = STEP_LOOKUP_MAP[curve.get_drawstyle()](curve.get_xdata(), curve.get_ydata())
    area = np.trapezoid(corners[1], corners[0])
    assert area == pytest.approx(1, abs=1e-4)
    (shade,) = (one for one in axes.collections if isinstance(one, PolyCollection))
    x, y = shade.get_paths()[0].vertices.T
    shoelace = 0.5 * abs(x @ np.roll(y, -1) - y @ np.roll(x, -1))
    assert shoelace == pytest.approx(1, abs=1e-4)
    inside = axes.collections[0].get_paths()[0]
    assert inside.contains_point((1.2, 1.0)), "the first bin is as high at its end"
    assert not inside.contains_point((1.3, 0.1)), "the second bin is empty"


NAMED = {
    "mark": figures.stacked(
        [figures.Panel("loss", {"test": ([1, 10, 1000], [3.0, 2.0, 1.0])})],
        **{name: NAMES[name] for name in ("title", "x_title", "caption")},
        marks={"named": 100},
        x_log=True,
    ),
    "level": figures.lines([1, 2], {"a": [1, 1e4]}, **NAMES, levels={"named": 100}, y_log=True),
    "fit": figures.fits({"a": ([1, 2], [1, 1e4])}, {}, **NAMES, levels={"named": 100}, y_log=True),
    "points": figures.bars(
        [f"component number {i} of seven" for i in range(7)],
        {"a": [10.0**i for i in range(7)]},
        **NAMES,
        levels={"named": 100},
        y_log=True,
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_name_on_a_logarithmic_axis_stands_at_its_line(name: str) -> None:
    drawing = draw(NAMED[name].spec, 5.5, None)
    drawing.draw_without_rendering()
    axes = drawing.axes[0]
    (note,) = (text for text in axes.texts if text.get_text() == "named")
    x, y = axes.transData.transform((100, 100))
    box = note.get_window_extent()
    if name in ("mark", "points"):
        assert axes.get_xscale() == "log" and box.x0 < x < box.x1
    else:
        assert axes.get_yscale() == "log" and box.y0 - 3 < y < box.y1


def test_width_is_the_journal_s() -> None:
    for width in (3.25, 5.5):
        assert draw(FIGURES["lines"].spec, width, 2.0).get_size_inches().tolist() == [width, 2.0]


def test_csv_holds_every_point_and_cell() -> None:
    rows = list(csv.DictReader(io.StringIO(numbers_of(FIGURES["matrix"].spec))))
    assert [float(row["z"]) for row in rows] == MATRIX.flatten().tolist()
    rows = list(csv.DictReader(io.StringIO(numbers_of(FIGURES["points"].spec))))
    assert [(float(row["x"]), float(row["y"])) for row in rows] == [(1, 3), (2, 4)]


def test_csv_holds_what_colors_texts_and_error_bars_say() -> None:
    made = figures.scatter(
        *([1, 2], [3, 4]), color=[0.5, None], color_title="c", text=["a, b", "c"], **NAMES
    )
    first, second = csv.DictReader(io.StringIO(numbers_of(made.spec)))
    assert (first["color"], first["text"]) == ("0.5", "a, b")
    assert (second["color"], second["text"]) == ("", "c")
    made = figures.bars(
        *([1, 2], {"a": [3.0, 4.0], "b": [5.0, 6.0]}), errors={"b": [0.1, 0.2]}, **NAMES
    )
    rows = list(csv.DictReader(io.StringIO(numbers_of(made.spec))))
    assert [row["error_y"] for row in rows] == ["", "", "0.1", "0.2"]
    assert "color" not in rows[0], "a palette's colors are no numbers"


def _seen(drawing: Drawing) -> tuple[PathCollection, list[str]]:
    """The points of a drawing with one panel, and what its scale shows."""
    drawing.draw_without_rendering()
    held = [one for axes in drawing.axes for one in axes.collections]
    (points,) = (one for one in held if isinstance(one, PathCollection))
    return points, _scales(drawing)


def _scales(drawing: Drawing) -> list[str]:
    """What the scales of colors right of the panels show."""
    bars = [bar for axes in drawing.axes for bar in axes.child_axes]
    return [bar.yaxis.label.get_text().replace("\n", " ") for bar in bars]


def test_points_keep_their_scale_of_colors_and_its_meaning() -> None:
    n = 113
    angle = 2 * np.pi * np.arange(n) / n
    circle = {"color": range(n), "color_title": "value mod 113", "cyclic": True, "equal": True}
    drawing = draw(figures.scatter(np.cos(angle), np.sin(angle), **circle, **NAMES).spec, 5.5, None)
    points, names = _seen(drawing)
    shades = points.get_facecolors()[:, :3]
    steps = np.abs(shades - np.roll(shades, 1, axis=0)).sum(1)
    assert steps.max() < 0.1, "neighbors on the circle, 112 and 0 too, have colors that are close"
    assert names == ["value mod 113"]
    unit = drawing.axes[0].transData.transform([(0, 0), (1, 0), (0, 1)])
    assert unit[1, 0] - unit[0, 0] == pytest.approx(unit[2, 1] - unit[0, 1])

    signed = figures.scatter(
        *([0, 1, 2], [0, 1, 2]), color=[-3, 0, 1], color_title="c", diverging=True, **NAMES
    )
    points, _ = _seen(draw(signed.spec, 5.5, None))
    assert points.get_clim() == (-3, 3)
    red, green, blue = points.get_facecolors()[1][:3]
    assert min(red, green, blue) > 0.95, "zero has the color of zero"


def test_a_matrix_s_scale_says_what_its_colors_show() -> None:
    made = figures.heatmap(MATRIX, **{**NAMES, "z_title": "share of energy (0–1)"})
    assert _scales(draw(made.spec, 5.5, None)) == ["share of energy (0–1)"]
    square = figures.heatmap(np.eye(4), z_title="z", square=True, **NAMES)
    drawing = draw(square.spec, 5.5, None)
    drawing.draw_without_rendering()
    box = drawing.axes[0].get_window_extent()
    assert box.width == pytest.approx(box.height)


def test_points_on_a_logarithmic_axis_keep_their_error_bars() -> None:
    made = figures.bars([1, 2], {"a": [10.0, 100.0]}, errors={"a": [1, 20]}, y_log=True, **NAMES)
    (axes,) = draw(made.spec, 5.5, None).axes
    (spans,) = (one for one in axes.collections if isinstance(one, LineCollection))
    assert [line[:, 1].tolist() for line in spans.get_segments()] == [[9, 11], [80, 120]]


def test_endings_and_sizes_are_checked(tmp_path: Path) -> None:
    figure = FIGURES["lines"]
    with pytest.raises(ParameterError, match=r"ending '.gif': expected one of .csv, .html"):
        figure.save(tmp_path / "x.gif")
    with pytest.raises(ParameterError, match="width=900"):
        figure.save(tmp_path / "x.svg", width=900)
    (tmp_path / "d.svg").mkdir()
    with pytest.raises(RunError, match="it is a directory"):
        figure.save(tmp_path / "d.svg")
    assert not (tmp_path / "x.gif").exists()


def test_stacked_panels_have_one_axis_and_one_legend_below() -> None:
    steps, frequencies = [0, 100, 300], [1, 2]
    energy = [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]]
    made = figures.stacked(
        [
            figures.Panel("accuracy", {"train": (steps, [0, 1, 1]), "test": (steps, [0, 0, 1])}),
            figures.Panel("energy", image=(steps, frequencies, energy)),
            figures.Panel("loss", {"train": (steps, [3, 2, 1]), "test": (steps, [3, 3, 1])}),
        ],
        x_title="step",
        title="Title",
        caption="C",
        marks={"learned": 100},
    )
    drawing = draw(made.spec, 5.5, None)
    drawing.draw_without_rendering()
    upper, matrix, lower = drawing.axes
    assert upper.get_xlim() == matrix.get_xlim() == lower.get_xlim()
    assert [axes.get_xlabel() for axes in drawing.axes] == ["", "", "step"]
    shown = [axes.xaxis.get_tick_params()["labelbottom"] for axes in drawing.axes]
    assert shown == [False, False, True]
    (cells,) = matrix.collections
    assert isinstance(cells, QuadMesh)
    corners = cells.get_coordinates()
    np.testing.assert_allclose(corners[0, :, 0], [-50, 50, 200, 400])  # half-way between steps
    np.testing.assert_allclose(corners[:, 0, 1], [0.5, 1.5, 2.5])
    np.testing.assert_allclose(np.asarray(cells.get_array()).reshape(2, 3), energy)
    assert [text.get_text() for text in drawing.legends[0].get_texts()] == ["train", "test"]
    assert all(axes.get_legend() is None for axes in drawing.axes)
    title, *notes = drawing.texts
    assert all(
        note.get_window_extent().y1 < title.get_window_extent().y0
        for note in [*notes, *upper.texts]
    )
