"""The ablation probe's sentence, table and figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mechint import figures
from mechint.errors import counted
from mechint.probe import Report
from mechint.results import Table
from probes._ablation.measures import Ablated
from probes.ties import as_much


def say(report: Report, least: float) -> None:
    """The findings: which ablation does most harm, what else is needed, and which neurons."""
    metrics, nulls = report.metrics, report.nulls
    mode, top = metrics["mode"].capitalize(), metrics["component"]
    in_nats, ties = metrics["harm_in"] == "nats", as_much(metrics["tied"])
    needed = metrics["needed"]
    more = f" and {len(needed) - 8} more" if len(needed) > 8 else ""
    also = f"; needed: {', '.join(needed[:8])}{more}" if len(needed) > 1 else ""
    changes = f"loss {metrics['loss_change']:+.3g} nats, accuracy {metrics['accuracy_change']:+.1%}"
    if not math.isnan(metrics["others_median"]):
        also = f", the other components {metrics['others_median']:+.2g} nats at the median{also}"
    measured = (
        "" if in_nats else " (counted in accuracy: the model's loss is no better than chance)"
    )
    if larger := metrics["larger_not_told"]:
        more = f" of those told from no effect (more on average: {', '.join(larger[:8])})"
        measured = more + measured
    report.finding(
        f"{mode} ablation of {top} does most harm{measured}{ties}: {changes}{also}.",
        question="whether the answer breaks without one component",
        otherwise=(
            f"No single ablation is seen to break the answer{measured}; most harm does "
            f"{top}{ties}: {changes}, {metrics['share_of_advantage']:.1%} of what the model has "
            "over chance."
        ),
        holds=metrics["found"],
        null="largest_loss_increase" if in_nats else "largest_accuracy_loss",
        effect=metrics["share_of_advantage"],
        least=least,
        n=metrics["examples"],
        least_n=math.ceil(-math.log2(report.probe.significance)),  # signs of n give no p below 2⁻ⁿ
        causal=True,
    )
    if "neurons_loss_increase" in nulls and metrics["found"]:
        null = nulls["neurons_loss_increase"]
        neurons = counted(len(metrics["important_neurons"]), "neuron")
        where = (
            f"{neurons} of layer {metrics['neurons_layer']} with the largest first-order estimates"
        )
        if len(metrics["important_neurons"]) == report.arrays["neuron_importance"].shape[1]:
            report.abstain(
                f"layer {metrics['neurons_layer']} has no neurons but the "
                f"{len(metrics['important_neurons'])} that are ablated together "
                f"({null.observed:+.3g} nats), so there are no others to hold them against",
                "whether the neurons with the largest first-order estimates do more harm than "
                "random ones",
            )
            return
        report.finding(
            f"The {where}, together: loss {null.observed:+.3g} nats, as many random ones "
            f"{null.mean:+.3g}.",
            question=f"whether the {where} do more harm than random ones",
            otherwise=(
                f"The {where}, together ({null.observed:+.3g} nats), are not seen to do more harm "
                f"than as many random ones ({null.mean:+.3g} nats)."
            ),
            null="neurons_loss_increase",
            causal=True,
        )


def effects_table(
    ablated: Sequence[Ablated],
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
    ablated: Sequence[Ablated],
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
            "x_title": f"{kind[:-1]} (layer.index)",
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
