"""The training curve: accuracy and loss over steps, on one axis of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mechint.figures.figure import Figure, figure
from mechint.figures.theme import COLORS, INK, axis, numbers

SPLITS = {"train": COLORS[0], "validation": COLORS[2], "test": COLORS[1]}


def training_curve(
    rows: Sequence[Mapping[str, Any]], chance: float | None = None, step: int | None = None
) -> Figure | None:
    """Accuracy above, loss below (log scale), over the steps of a run.

    Args:
        rows: a mapping per evaluation: "step", "train.accuracy", "test.loss" (nats) and so on.
        chance: accuracy of the best constant answer, drawn as a dashed line.
        step: the step of the checkpoint that is looked at, drawn as a vertical line.

    Returns:
        The figure, or None where fewer than two evaluations hold an accuracy or a loss.

    >>> rows = [{"step": 0, "test.accuracy": 0.1}, {"step": 10, "test.accuracy": 0.9}]
    >>> [trace["y"] for trace in training_curve(rows).spec["data"]]
    [[0.1, 0.9]]
    """
    traces = [
        _trace(rows, split, quantity, axis_name)
        for quantity, axis_name in (("accuracy", "y"), ("loss", "y2"))
        for split in SPLITS
    ]
    data = [trace for trace in traces if len(trace["x"]) > 1]
    if not data:
        return None
    both = len({trace["yaxis"] for trace in data}) == 2
    names = [trace["name"] for trace in data]
    for index, trace in enumerate(data):  # a split has one entry in the legend
        trace["showlegend"] = trace["name"] not in names[:index]
    upper = axis("accuracy (0–1)", domain=[0.56, 1.0] if both else [0, 1], range=[-0.03, 1.03])
    # where there is no accuracy the loss is a squared error, and the only axis
    lower = axis("loss (nats)" if both else "loss", log=True, domain=[0.0, 0.44 if both else 1.0])
    alone = not both and data[0]["yaxis"] == "y2"
    for trace in data if alone else ():
        trace["yaxis"] = "y"
    chance = None if alone else chance  # an accuracy, which has no place beside a loss
    layout: dict[str, Any] = {
        "xaxis": axis("step", anchor="y2" if both else "y"),
        "yaxis": lower if alone else upper,
        **({"yaxis2": lower} if both else {}),
        "shapes": _marks(chance, step),
        "hovermode": "x",
    }
    text = (
        f"{'Loss' if alone else 'Accuracy and loss' if both else 'Accuracy'} as the model trained."
    )
    if chance is not None:
        text += f" Dashed: the best constant answer ({chance:.2g})."
    return figure(data, "Training", text, height=420 if both else 300, **layout)


def _trace(
    rows: Sequence[Mapping[str, Any]], split: str, quantity: str, axis_name: str
) -> dict[str, Any]:
    """The curve of one split; empty where the rows do not hold it."""
    name = f"{split}.{quantity}"
    held = [row for row in rows if isinstance(row.get(name), int | float) and "step" in row]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": split,
        "legendgroup": split,
        "x": [int(row["step"]) for row in held],
        "y": numbers([float(row[name]) for row in held]),
        "yaxis": axis_name,
        "line": {"color": SPLITS[split], "width": 2},
    }


def _marks(chance: float | None, step: int | None) -> list[dict[str, Any]]:
    line = {"color": INK, "width": 1.2}
    shapes: list[dict[str, Any]] = []
    if chance is not None:
        across = {"xref": "paper", "x0": 0, "x1": 1, "y0": chance, "y1": chance}
        shapes.append({"type": "line", **across, "line": line | {"dash": "dash"}})
    if step is not None:
        up = {"yref": "paper", "y0": 0, "y1": 1, "x0": step, "x1": step}
        shapes.append({"type": "line", **up, "line": line | {"dash": "dot"}})
    return shapes
