"""The lens probe's tables and figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mechint import figures
from mechint.results import Figure, Table
from probes._lens.attribution import Sums


def depth_table(sums: Sums) -> Table:
    """Accuracy and loss (nats) by depth."""
    depths = {
        "after": list(sums.right),
        "accuracy": list(sums.right.values()),
        "loss": list(sums.loss.values()),
    }
    return Table(depths, "the logit lens at every depth", {"loss": "nats"})


def depth_figure(sums: Sums) -> Figure:
    """Accuracy by depth."""
    return figures.lines(
        list(sums.right),
        {"accuracy": list(sums.right.values())},
        title="Logit lens: what is answered after each layer",
        x_title="depth",
        y_title="accuracy (0–1)",
        markers=True,
        y_range=(0, 1.05),
        caption=(
            "Accuracy when the residual stream is unembedded there; where it jumps, the answer is "
            "written."
        ),
    )


def attribution_table(sums: Sums) -> Table:
    """Attribution (nats) by component."""
    parts = {
        "component": list(sums.attribution),
        "attribution": list(sums.attribution.values()),
    }
    return Table(
        parts, "mean part of the right logit, above the mean class", {"attribution": "nats"}
    )


def attribution_figures(sums: Sums, top: str, positions: Sequence[str]) -> dict[str, Figure]:
    """Attribution by component, and where the heads read it from."""
    names = list(sums.attribution)
    values = [sums.attribution[name] for name in names]
    null = np.stack(list(sums.null.values())).max(0)
    attribution = figures.bars(
        names,
        {"attribution": values},
        title="Direct logit attribution",
        x_title="component",
        y_title="right logit above the mean class (nats)",
        highlight=[top],
        null=(float(null.mean()), float(null.min()), float(null.max())),
        caption=(
            "What each head and layer adds to the right answer directly; the band is the largest "
            "of them, the final biases apart, when the answers are other inputs'."
        ),
    )
    result = {"attribution": attribution}
    if sums.by_position:
        result["positions"] = figures.heatmap(
            np.stack(list(sums.by_position.values())),
            x=positions,
            y=list(sums.by_position),
            title="Attribution by source position",
            x_title="source position (token)",
            y_title="head",
            z_title="right logit above the mean class (nats)",
            diverging=True,
            total=float(sum(values)),
            caption="From which position each head carries what it adds to the answer.",
        )
    return result
