"""The figures of the joint-training study."""

from __future__ import annotations

import numpy as np

from mechint import figures
from mechint.probe.results import Figure
from mechint.studies.rows import Rows


def draw(rows: Rows) -> dict[str, Figure]:
    """Accuracies by width of triplets and nested runs."""
    drawn = {}
    for title, starts in (("Triplets", "triplets "), ("Nested expressions", "")):
        runs = [
            row
            for row in rows
            if row["arm"].startswith("triplets ") == bool(starts) and row.get("init") != "torch"
        ]
        if len({row.get("width") for row in runs}) > 1:
            drawn[f"{title} by width"] = by_width(Rows(runs), title)
    return drawn


def by_width(rows: Rows, title: str) -> Figure:
    """Mean accuracy over the width, a line an arm."""
    x, y = {}, {}
    for name, runs in rows.by("arm").items():
        of = dict(sorted(runs.by("width").items()))
        if len(of) > 1:
            label = name.removeprefix("triplets ")
            x[label] = list(of)
            y[label] = [float(np.mean(each.column("accuracy"))) for each in of.values()]
    return figures.lines(
        x,
        y,
        title=f"{title}: accuracy by width",
        x_title="width",
        y_title="held-out accuracy (0–1)",
        x_log=True,
        y_range=(0, 1.03),
        markers=True,
        caption="Mean accuracy at the last step over seeds, on what each arm is judged by.",
    )
