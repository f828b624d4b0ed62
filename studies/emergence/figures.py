"""The figures of the emergence study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mechint import figures
from mechint.probe.results import Figure
from mechint.studies.rows import Rows

LOGARITHMIC: Mapping[str, Any] = {"x_log": True, "y_log": True}


def draw(rows: Rows) -> dict[str, Figure]:
    """Loss over time, emergence times, width floor and search time, of the arms that are there."""
    arms = rows.values_of("arm")
    drawn = {}
    if any("curve" in row for row in rows):
        drawn |= {"Loss over time": loss(rows), "Emergence times": times(rows)}
    if "floor" in arms:
        drawn["Width floor"] = floor(rows)
    if "search" in arms:
        drawn["Search time"] = search(rows)
    return drawn


def loss(rows: Rows) -> Figure:
    """The first seed's loss of every β beside the predicted slope."""
    x, y = {}, {}
    for beta, runs in rows.where(arm="mixture").having("curve").by("beta").items():
        steps, losses = map(np.array, runs[0]["curve"])
        slope = (1 - 2 * beta) / beta
        middle = len(steps) * 2 // 3
        x[f"β = {beta:g}"], y[f"β = {beta:g}"] = steps, losses
        line = slice(len(steps) // 2, None)
        x[f"t^{slope:.2f}"] = steps[line]
        y[f"t^{slope:.2f}"] = losses[middle] * (steps[line] / steps[middle]) ** slope
    return figures.lines(
        x,
        y,
        title="Loss over time",
        x_title="step",
        y_title="loss (share of the target's variance)",
        caption="The loss, tail of the power law added, beside lines of the predicted slopes.",
        **LOGARITHMIC,
    )


def times(rows: Rows) -> Figure:
    """The first seed's emergence times at every β."""
    by_beta = rows.where(arm="mixture").having("curve").by("beta").items()
    found = {f"β = {beta:g}": np.array(runs[0]["times"], dtype=float) for beta, runs in by_beta}
    return figures.lines(
        {name: np.flatnonzero(np.isfinite(of)) + 1 for name, of in found.items()},
        {name: of[np.isfinite(of)] for name, of in found.items()},
        title="Emergence times",
        x_title="direction p",
        y_title="emergence time T_p (steps)",
        caption="Each direction's emergence time; times ∝ p^β lie on a line of slope β.",
        **LOGARITHMIC,
    )


def floor(rows: Rows) -> Figure:
    """The last loss over the width, geometric mean over seeds."""
    x, y = {}, {}
    for beta, runs in rows.where(arm="floor").by("beta").items():
        by_width = runs.by("width")
        widths = np.array(list(by_width), dtype=float)
        means = np.array([np.exp(np.mean(np.log(of.column("floor")))) for of in by_width.values()])
        slope = 1 - 2 * beta
        x[f"β = {beta:g}"], y[f"β = {beta:g}"] = widths, means
        x[f"m^{slope:g}"], y[f"m^{slope:g}"] = widths, means[0] * (widths / widths[0]) ** slope
    return figures.lines(
        x,
        y,
        title="Width floor",
        x_title="neurons m",
        y_title="last loss (share of the variance)",
        markers=True,
        caption="The last loss of m neurons (geometric mean, tail added) and predicted slopes.",
        **LOGARITHMIC,
    )


def search(rows: Rows) -> Figure:
    """The median search time over the dimension."""
    by_k = {k: runs.by("d") for k, runs in rows.where(arm="search").by("k").items()}
    return figures.lines(
        list(next(iter(by_k.values()))),
        {
            f"k = {k}": [float(np.median(of.column("search_time"))) for of in by_d.values()]
            for k, by_d in by_k.items()
        },
        title="Search time",
        x_title="inputs d",
        y_title="search time (steps)",
        markers=True,
        caption="Median search time of a single direction; d^(k/2-1) is a line of slope k/2-1.",
        **LOGARITHMIC,
    )
