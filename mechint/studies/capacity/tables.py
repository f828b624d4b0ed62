"""The sensitivity tables of the capacity study's regressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mechint.results import Table
from mechint.studies.capacity.measures import rare_features, residual_counts
from mechint.studies.core.study import Analysis, Runs, mean_and_spread, task_of

MASSES = (0.5, 0.75, 0.9)
"""Prior mass of the tasks that count as frequent; the source's is 0.75."""


def add_tables(analysis: Analysis, runs: Runs, optimizers: Mapping[str, Any]) -> None:
    """Add both tables; optimizers: name → settings, empty for those of the retention arm."""
    analysis.add_sensitivity("Optimizer and gap", lambda: optimizer_table(runs, optimizers))
    analysis.add_sensitivity("Which tasks are frequent", lambda: mass_table(runs))


def optimizer_table(runs: Runs, optimizers: Mapping[str, Any]) -> Table:
    """Rare features held at both ends of the gaps, optimizer by optimizer."""
    gaps = runs.values_of("gap", arm="retention")
    width = runs.values_of("width", arm="retention")[-2]
    ends = (min(gaps), max(gaps))
    rows: dict[str, list[Any]] = {"optimizer": [], **{f"gap {gap}": [] for gap in ends}}
    for name, settings in optimizers.items():
        arm: dict[str, Any] = (
            {"arm": "optimizer", "optimizer": name}
            if settings
            else {"arm": "retention", "width": width}
        )
        rows["optimizer"].append(name)
        for gap in ends:
            rows[f"gap {gap}"].append(mean_and_spread(rare_features(runs, **arm, gap=gap)))
    caption = (
        f"Features of the rarest task held at width {width}, by the optimizer, at the smallest "
        "and the largest gap."
    )
    return Table(rows, caption)


def mass_table(runs: Runs) -> Table:
    """Claim (c) when another set of tasks counts as frequent."""
    group = runs.select(arm="phase")
    rows = [
        (mass, len(task_of(group[0]).common(mass)), *residual_counts(group, mass)[:2])
        for mass in MASSES
    ]
    columns = ("prior mass", "frequent tasks", "held", "held above the threshold")
    return Table(
        {name: [row[i] for row in rows] for i, name in enumerate(columns)},
        "Claim (c) when another set of tasks counts as frequent.",
    )
