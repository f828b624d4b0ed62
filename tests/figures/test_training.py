"""The training curve: what is drawn from which rows."""

from __future__ import annotations

from mechint.figures import training_curve

ROWS = [
    {"step": 0, "train.accuracy": 0.1, "test.accuracy": 0.1, "train.loss": 2.0},
    {"step": 100, "train.accuracy": 1.0, "test.accuracy": 0.2, "train.loss": 0.1},
    {"step": 200, "train.accuracy": 1.0, "test.accuracy": 1.0, "train.loss": 1e-6},
]


def test_every_split_and_quantity_that_the_rows_hold_is_a_curve() -> None:
    made = training_curve(ROWS, chance=0.01, step=200)
    assert made is not None
    curves = {(trace["name"], trace["yaxis"]): trace["y"] for trace in made.spec["data"]}
    assert curves == {
        ("train", "y"): [0.1, 1.0, 1.0],
        ("test", "y"): [0.1, 0.2, 1.0],
        ("train", "y2"): [2.0, 0.1, 1e-6],
    }
    assert [trace["x"] for trace in made.spec["data"]] == [[0, 100, 200]] * 3
    assert [trace["showlegend"] for trace in made.spec["data"]] == [True, True, False]
    dashed, dotted = made.spec["layout"]["shapes"]
    assert dashed["y0"] == dashed["y1"] == 0.01 and dotted["x0"] == dotted["x1"] == 200
    assert "0.01" in made.caption


def test_too_few_rows_give_no_curve() -> None:
    assert training_curve([]) is None
    assert training_curve(ROWS[:1]) is None
    assert training_curve([{"step": 1, "test.norm": 3.0}] * 3) is None


def test_rows_with_gaps_and_text_are_passed_over() -> None:
    made = training_curve([*ROWS, {"step": 300, "train.accuracy": "nan"}, {"train.accuracy": 0.3}])
    assert made is not None
    assert made.spec["data"][0]["x"] == [0, 100, 200]


def test_a_loss_without_an_accuracy_has_the_axis_for_itself() -> None:
    """Of a regression: plotly.js gives an axis without a partner a range of its own making."""
    rows = [{"step": step, "test.loss": 10.0**-step} for step in range(3)]
    made = training_curve(rows, chance=0.0)
    assert made is not None
    (trace,) = made.spec["data"]
    layout = made.spec["layout"]
    assert trace["yaxis"] == "y" and layout["yaxis"]["type"] == "log" and "yaxis2" not in layout
    assert layout["shapes"] == []
    assert layout["yaxis"]["title"]["text"] == "loss" and made.caption.startswith("Loss as")
