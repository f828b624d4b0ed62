"""The interference probe's table and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor

from mechint import figures
from mechint.results import Figure, Null, Table


def batches_table(
    groups: Sequence[str], counts: Sequence[int], found: Float[Tensor, "group batch"]
) -> Table:
    """A row per batch: the cosine of each group's gradient with the reference."""
    columns: dict[str, Sequence[Any]] = {
        "batch": list(range(len(counts))),
        "task_positions": list(counts),
    }
    columns |= {name: found[i].tolist() for i, name in enumerate(groups)}
    return Table(
        columns,
        (
            "One row per batch: cosine of its gradient, whole and by part, with the reference; "
            "task_positions says where instances are."
        ),
    )


def interference_figures(
    groups: Sequence[str],
    found: Float[Tensor, "group batch"],
    matrix: Float[Tensor, "part part"],
    null: Mapping[str, Null],
) -> dict[str, Figure]:
    """Cosines by batch, and between the groups."""
    shown, axis, whole = (
        dict(enumerate(groups[:6])),
        "cosine with the reference (−1 to 1)",
        null["cosine.batch"],
    )
    result = {
        "batches": figures.lines(
            list(range(found.shape[1])),
            {name: found[i].tolist() for i, name in shown.items()},
            title="Batch gradients along the task's direction",
            x_title="batch (number)",
            y_title=axis,
            null=(whole.mean, whole.mean - 2 * whole.std, whole.mean + 2 * whole.std),
            markers=True,
            caption=(
                "Above zero a batch teaches the task, below it unlearns it. Gray: labels permuted."
            ),
        )
    }
    if len(matrix) > 1:
        result["groups"] = figures.heatmap(
            matrix.tolist(),
            x=list(groups[1:]),
            y=list(groups[1:]),
            title="Gradients of the parts against each other",
            x_title="part of the loss",
            y_title="part of the loss",
            z_title="cosine (−1 to 1)",
            diverging=True,
            limits=(-1, 1),
            square=True,
            caption="Red: the parts help each other; blue: they collide.",
        )
    return result
