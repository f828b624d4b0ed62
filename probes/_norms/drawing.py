"""The tables of norm ratios and their histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from mechint import figures
from mechint.results import Figure, Table


def layers_table(
    means: Mapping[str, float], found: Mapping[str, Float[np.ndarray, "_example _pos"]]
) -> Table:
    """Mean and quantiles of every sublayer's (example, pos) ratios."""
    quantiles = {name: np.nanquantile(values, [0.05, 0.5, 0.95]) for name, values in found.items()}
    columns = {
        key: [float(quantiles[name][i]) for name in found]
        for i, key in enumerate(("5%", "median", "95%"))
    }
    return Table(
        {"sublayer": list(means), "mean": list(means.values()), **columns},
        "ratio of output to input norm over examples and positions",
    )


def comparison_table(statistics: Mapping[str, Mapping[str, Any]]) -> Table:
    """One row per sublayer with all its statistics but the null."""
    keys = [key for key in next(iter(statistics.values())) if key != "null"]
    columns = {key: [row[key] for row in statistics.values()] for key in keys}
    return Table({"sublayer": list(statistics), **columns}, "subject against other, every sublayer")


def histograms(
    models: Mapping[str, Mapping[str, Float[np.ndarray, "_example _pos"]]], names: Sequence[str]
) -> dict[str, Figure]:
    """Kind of sublayer → histogram of the ratios of `names`, every model in one figure."""
    shown = {}
    for name in names:
        kind = name.split(" ", 1)[1]
        samples = {f"{model}{name}": found[name] for model, found in models.items()}
        shown[kind] = figures.histogram(
            samples,
            title=f"Norm ratio of the last {kind} layer",
            x_title="output norm over input norm (ratio)",
            caption=(
                f"How much the {kind} layer changes what it is given, over examples and positions."
            ),
        )
    return shown
