"""Saved drawings have room for their texts: none is cut, none lies over another, at the widths of
one column and of two.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Drawing
from matplotlib.transforms import Bbox

from mechint import figures
from mechint.errors import ParameterError
from mechint.figures.drawing import draw

LONG = "Accuracy of the probes over the positions, beside that of random vectors of equal norm"
TEXTS = {"title": LONG, "caption": "C"}
AXES = {
    "x_title": "position of the token that is looked at (token)",
    "y_title": "cosine of the logits with cos w(answer − class) (−1 … 1)",
}
TOKENS = ["<|endoftext|>", "The", " keys", "<s>", " to", " a & b", "$x_$", "the"]
WEIGHTS = np.tril(np.ones((8, 8))) / np.arange(1, 9)[:, None]
SECOND = [f"embedding: second harmonics {i}, {2 * i} and {3 * i} of the keys" for i in range(18)]
HEADS = [f"L{layer}H{head}" for layer in range(2) for head in range(4)]
STEPS = [1, 10, 100, 1000]
MADE = {
    "curves": figures.lines(
        STEPS, {f"layer {i}, attention": [i, 1, 2, 3] for i in range(12)}, **TEXTS, **AXES
    ),
    "levels": figures.lines(
        *([1, 2], {"a": [0.1, 0.9]}),
        levels={"guessing the most frequent answer of the class": 0.5, "threshold": 0.8},
        **TEXTS,
        **AXES,
    ),
    "bars": figures.bars(
        *(SECOND, {"loss": range(18), "other": range(18)}), levels={"whole": 3}, **TEXTS, **AXES
    ),
    "upright": figures.bars(SECOND, {"loss": range(18)}, horizontal=False, **TEXTS, **AXES),
    "matrix": figures.heatmap(
        *(np.eye(56, 19),),
        x=list(range(0, 1900, 100)),
        y=list(range(1, 57)),
        z_title="share of energy (0–1)",
        **TEXTS,
        **AXES,
    ),
    "attention": figures.attention(HEADS, {"a": TOKENS}, {"a": [WEIGHTS] * 8}, **TEXTS),
    "grid": figures.image_grid(
        {f"layer 0, neuron {i}311: frequency {i}": np.eye(113) for i in range(6)},
        z_title="preference (−1 second operand, 1 first)",
        **TEXTS,
        **AXES,
    ),
    "circle": figures.scatter(
        *(np.linspace(-0.6, 0.6, 9), np.linspace(-0.6, 0.6, 9)),
        color=range(9),
        color_title="value",
        equal=True,
        **TEXTS,
        **AXES,
    ),
    "panels": figures.stacked(
        [
            figures.Panel(
                "accuracy (0–1)", {f"Gini of the embedding {i}": (STEPS, STEPS) for i in range(6)}
            ),
            figures.Panel("share", image=(STEPS, [1, 2], [[0, 0.2, 0.4, 1], [1, 0, 0, 0]])),
        ],
        x_title="step",
        marks={"training set learned": 3, "test set learned": 900},
        x_log=True,
        **TEXTS,
    ),
}


@pytest.mark.parametrize("width", [3.25, 5.5])
@pytest.mark.parametrize("name", MADE)
def test_texts_are_neither_cut_nor_over_each_other(name: str, width: float) -> None:
    drawing = draw(MADE[name].spec, width, None)
    drawing.draw_without_rendering()
    assert drawing.get_figwidth() == width
    whole = drawing.get_tightbbox()  # in inches
    assert whole.x0 > -0.03 and whole.x1 < width + 0.03
    assert whole.y0 > -0.03 and whole.y1 < drawing.get_figheight() + 0.03
    for axes in drawing.axes:
        for axis in (axes.xaxis, axes.yaxis):
            shown = _shown(axis)
            assert all(a + 0.5 >= b for a, b in shown), f"ticks {axis.axis_name} touch"
        box = axes.get_window_extent()
        assert min(box.width, box.height) > 0.02 * drawing.dpi
    titles = [drawing._suptitle, *drawing.legends]  # pyright: ignore
    boxes = [axes.get_tightbbox() for axes in drawing.axes]
    for title in titles:
        over = title.get_window_extent()
        assert not any(_lie_over(over, box) for box in boxes if box is not None)


def _shown(axis: Axis) -> list[tuple[float, float]]:
    """Where each tick's name would have to begin, and where it does, along its axis."""
    side = "labelbottom" if axis.axis_name == "x" else "labelleft"
    if not axis.get_tick_params().get(side, True):
        return []
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=True)
    boxes = [label.get_window_extent() for at, label in ticks if low <= at <= high]
    spans = sorted((b.x0, b.x1) if axis.axis_name == "x" else (b.y0, b.y1) for b in boxes)
    return [(b[0], a[1]) for a, b in pairwise(spans)]


def _lie_over(one: Bbox, other: Bbox) -> bool:
    """Whether two boxes share more than a pixel each way."""
    wide = min(one.x1, other.x1) - max(one.x0, other.x0)
    high = min(one.y1, other.y1) - max(one.y0, other.y0)
    return wide > 1 and high > 1


def _names(drawing: Drawing) -> list[str]:
    return [label.get_text() for label in drawing.axes[0].get_yticklabels()]


def test_every_bar_keeps_a_name_of_its_own() -> None:
    for width in (3.25, 5.5):
        names = _names(draw(MADE["bars"].spec, width, None))
        assert len(set(names)) == 18, names


def test_panels_of_a_grid_name_their_rows_once() -> None:
    drawing = draw(MADE["attention"].spec, 5.5, None)
    panels = [axes for axes in drawing.axes if axes.get_images()]
    named = [axes.yaxis.get_tick_params()["labelleft"] for axes in panels[:8]]
    assert named == [True, False, False, False] * 2
    assert drawing.get_supxlabel() == "key (token)"


def test_a_dollar_in_a_name_is_a_dollar(tmp_path: Path) -> None:
    made = figures.heatmap(
        *(np.eye(3),), x=["$x_$", "$a$", "\\$"], z_title="z", **{**TEXTS, "title": "$^$"}, **AXES
    )
    written = made.save(tmp_path / "a.svg").read_text()
    texts = [node.text for node in ElementTree.fromstring(written).iter() if node.text]
    assert {"$x_$", "$a$", "\\$", "$^$"} <= set(texts)
    MADE["attention"].save(tmp_path / "a.png")


def test_a_drawing_without_room_for_its_plot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"width=3.25, height=1.0: titles and names leave no"):
        MADE["curves"].save(tmp_path / "a.png", width=3.25, height=1.0)
    assert not (tmp_path / "a.png").exists()
