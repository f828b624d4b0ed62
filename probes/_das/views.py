"""The DAS probe's tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mechint import figures
from mechint.results import Table
from probes._das.search import Rule, SiteCell

if TYPE_CHECKING:
    from probes._das.probe import Alignment

MOST_SITES = 16
"""Sites in the figure of the search, the best ones."""
WINDOWS = 60
"""Points of the curve of the search, each the mean of as many steps."""


def sweep_table(cells: Sequence[SiteCell], rule: Rule) -> Table:
    """A row per site and dimension."""
    columns: dict[str, Sequence[Any]] = {
        "hook": [one.place[0] for one in cells],
        "pos": ["answer" if one.place[1] is None else one.place[1] for one in cells],
        "dimension": [one.dimension for one in cells],
        "iia": [one.iia for one in cells],
        "iia_train": [one.trained for one in cells],
        "iia_full_swap": [one.full_swap for one in cells],
        "iia_full_swap_minimal": [one.full_swap_minimal for one in cells],
        "input_share": [one.input_share for one in cells],
        "decoded": [one.decoded for one in cells],
        "verdict": [one.verdict(rule) for one in cells],
    }
    units = {name: "share of pairs" for name in columns if name.startswith("iia")}
    caption = (
        "One row per site and dimension; iia on held-out pairs; iia_full_swap_minimal: all of the "
        "activation, with sources that differ in the variable alone; input_share: variance of the "
        "coordinates among inputs that share the value; decoded: values that they tell on other "
        "inputs, above chance; verdict: without the controls."
    )
    return Table(columns, caption, units)


def variables_table(aligned: Sequence[Alignment], rule: Rule) -> Table:
    """A row per variable: its best subspace and what it is held against."""
    columns: dict[str, Sequence[Any]] = {
        "variable": [one.variable.name for one in aligned],
        "where": [one.best.where for one in aligned],
        "dimension": [one.best.dimension for one in aligned],
        "iia": [one.best.iia for one in aligned],
        "iia_random": [float(np.mean(one.random)) for one in aligned],
        "iia_arbitrary": [max(one.arbitrary) for one in aligned],
        "iia_full_swap_minimal": [one.best.full_swap_minimal for one in aligned],
        "verdict": [one.best.verdict(rule) for one in aligned],
    }
    units = {name: "share of pairs" for name in columns if name.startswith("iia")}
    return Table(columns, "One row per variable, at its best site.", units)


def sweep_figure(one: Alignment) -> figures.Figure:
    """The best dimension of every site, beside the controls."""
    sites: dict[str, SiteCell] = {}
    for cell in one.cells:
        if cell.where not in sites or cell.iia > sites[cell.where].iia:
            sites[cell.where] = cell
    shown = sorted(sites.values(), key=lambda cell: -cell.iia)[:MOST_SITES]
    levels = {"arbitrary labels": max(one.arbitrary)}
    if one.untrained:
        levels["untrained model"] = max(one.untrained)
    mean, std = float(np.mean(one.random)), float(np.std(one.random))
    return figures.bars(
        [f"{cell.where}, {cell.dimension} dim." for cell in shown],
        {
            "best subspace": [cell.iia for cell in shown],
            "whole activation": [cell.full_swap for cell in shown],
        },
        title=f"Interchange of {one.variable.name}",
        x_title="site and dimension of its best subspace",
        y_title="interchange intervention accuracy (0–1)",
        levels=levels,
        null=(mean, mean - 2 * std, mean + 2 * std),
        horizontal=True,
        caption=(
            "How often the swap gives the counterfactual answer; the band: random subspaces of the "
            "best site."
        ),
    )


def loss_figure(best: SiteCell) -> figures.Figure:
    """The loss of the search in means over windows."""
    losses = np.asarray(best.losses, dtype=np.float64)
    parts = np.array_split(losses, min(WINDOWS, len(losses)))
    step = len(losses) / len(parts)
    return figures.lines(
        [round((i + 0.5) * step, 1) for i in range(len(parts))],
        {"training pairs": [float(part.mean()) for part in parts]},
        title=f"Search at {best.where}",
        x_title="step",
        y_title="cross-entropy of the counterfactual label (nats)",
        bands={"training pairs": ([p.min() for p in parts], [p.max() for p in parts])},
        caption=f"Means of {step:.0f} steps; the band from least to largest.",
    )
