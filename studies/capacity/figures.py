"""The figures of the capacity study."""

from __future__ import annotations

import numpy as np

from mechint import figures
from mechint.probe.results import Figure
from mechint.studies.capacity.claims import rare
from mechint.studies.capacity.regressions import HALF
from mechint.studies.rows import Rows


def draw(rows: Rows) -> dict[str, Figure]:
    """Tasks by width, retention by gap, and what language models learn, of the arms there."""
    arms = rows.values_of("arm")
    drawn = {}
    if "phase" in arms:
        drawn["Tasks by width"] = phases(rows)
    if "retention" in arms:
        drawn["Rare features by gap"] = retention(rows)
    if "language" in arms:
        drawn["Accuracy by width"] = accuracies(rows)
        drawn["Order by width"] = accuracies(rows, "r2")
    return drawn


def phases(rows: Rows) -> Figure:
    """Number of tasks held over the width, beside what their utilities predict."""
    by_width = rows.where(arm="phase").by("width")
    held = [(np.array(of.column("held")) >= HALF).sum(1).mean() for of in by_width.values()]
    predicted = [
        (np.array(of.column("critical")) <= width).sum(1).mean() for width, of in by_width.items()
    ]
    return figures.lines(
        list(by_width),
        {"held": held, "predicted": predicted},
        title="Tasks held by width",
        x_title="width m",
        y_title="tasks of which half a feature is held",
        markers=True,
        caption="Mean over seeds, beside the tasks whose critical width by Theorem 3 is at most m "
        "(Fig. 2).",
    )


def retention(rows: Rows) -> Figure:
    """Mean rare features over the gap, a line a width and weight of the burst."""
    series, gaps = {}, []
    for name, label in (("retention", "own size"), ("weighted", "fixed size")):
        if name not in rows.values_of("arm"):
            continue
        runs = list(rows.where(arm=name))
        if name == "weighted":
            runs += list(rows.where(arm="retention", gap=1))
        for width, of in Rows(runs).by("width").items():
            by_gap = dict(sorted(of.by("gap").items()))
            gaps = list(by_gap)
            values = [float(np.mean([rare(row) for row in each])) for each in by_gap.values()]
            series[f"width {width}, {label}"] = values
    return figures.lines(
        gaps,
        series,
        title="Rare features by gap",
        x_title="gap between bursts (steps)",
        y_title="features of the rarest task",
        x_log=True,
        markers=True,
        caption="Features of the rarest task at equal frequency; a burst is averaged over its own "
        "size or over the usual one (Fig. 4).",
    )


def accuracies(rows: Rows, name: str = "accuracy") -> Figure:
    """A measure of the language models over their width, a line a frequency."""
    by_frequency = {
        frequency: runs.by("width")
        for frequency, runs in rows.where(arm="language").by("frequency").items()
    }
    what = {"accuracy": "held-out accuracy (0–1)", "r2": "R² of the order (at most 1)"}[name]
    said = {"accuracy": "Accuracy on an injected comparison", "r2": "Order held by a model"}[name]
    return figures.lines(
        list(next(iter(by_frequency.values()))),
        {
            f"frequency {frequency:g}": [float(np.mean(of.column(name))) for of in each.values()]
            for frequency, each in by_frequency.items()
        },
        title=f"{said}, by width",
        x_title="width",
        y_title=what,
        x_log=True,
        markers=True,
        caption=f"{what}, mean over gaps and seeds.",
    )
