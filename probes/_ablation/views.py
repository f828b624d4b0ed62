"""The ablation probe's table and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mechint import figures
from mechint.results import Table
from probes._ablation.measures import AblatedScores


def effects_table(
    ablated: Sequence[AblatedScores],
    outputs: Sequence[str],
    base: Float[Tensor, "output 2"],
    effect: Float[Tensor, "component output 2"],
    p_values: Float[np.ndarray, " component"],
) -> Table:
    """A row per component and output: change of accuracy and loss (nats), and the p-value."""
    rows = [(one, i) for one in range(len(ablated)) for i in range(len(outputs))]
    columns: dict[str, Sequence[Any]] = {
        "component": [str(ablated[one]) for one, _ in rows],
        "output": [outputs[i] for _, i in rows],
        "accuracy_change": [float(effect[one, i, 0]) for one, i in rows],
        "loss_change": [float(effect[one, i, 1]) for one, i in rows],
        "accuracy": [float(base[i, 0] + effect[one, i, 0]) for one, i in rows],
        "p_value": [float(p_values[one]) for one, _ in rows],
    }
    return Table(
        columns,
        (
            "One row per component and output: with the ablation minus without; p_value against "
            "no effect, family-wise over the components, each on its own scale, for the mean over "
            "outputs."
        ),
        {"loss_change": "nats", "accuracy_change": "share", "accuracy": "share"},
    )


def effects_figures(
    ablated: Sequence[AblatedScores],
    outputs: Sequence[str],
    effect: Float[Tensor, "component output 2"],
    mode: str,
) -> dict[str, Any]:
    """Loss and accuracy by component; a matrix per number where there are several outputs."""
    names = [str(component) for component in ablated]
    neurons = [i for i, name in enumerate(names) if "MLP[" in name]
    others = [i for i in range(len(names)) if i not in neurons]
    title = f"{mode.capitalize()} ablation"
    shown: dict[str, Any] = {}
    for kind, part in (("components", others), ("neurons", neurons)):
        if not part:
            continue
        words = {
            "x": [names[i] for i in part],
            "title": f"{title} of {kind}",
            "x_title": kind[:-1],
        }
        if len(outputs) == 1:
            shown[f"loss_{kind}"] = figures.bars(
                series={"ablated": effect[part, 0, 1].tolist()},
                y_title="loss increase (nats)",
                caption="How much the loss grows without it: bars to the right are needed.",
                horizontal=True,
                **words,
            )
        else:
            shown[f"accuracy_{kind}"] = figures.heatmap(
                effect[part][..., 0].T.tolist(),
                y=list(outputs),
                y_title="output",
                z_title="accuracy change (share)",
                diverging=True,
                limits=(-1.0, 1.0),
                caption="Which ablation breaks which output: the bluer, the more it falls.",
                **words,
            )
    return shown
