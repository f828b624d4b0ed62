"""The figures of the joint-training study."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np

from mechint import figures
from mechint.groups.layouts import agreement, align
from mechint.probe.results import Figure
from mechint.studies.joint_training.claims import ALONE, MIXTURE, grams
from mechint.studies.joint_training.structure import solved
from mechint.studies.rows import NoRunsError, Rows


def draw(rows: Rows) -> dict[str, Figure]:
    """Accuracies by width of triplets and nested runs."""
    drawn: dict[str, Figure] = {}
    with contextlib.suppress(NoRunsError):
        drawn["Layouts of the digits"] = layouts(rows)
    for title, starts in (("Triplets", "triplets "), ("Nested expressions", "")):
        runs = [
            row
            for row in rows
            if row["arm"].startswith("triplets ") == bool(starts) and row.get("init") != "torch"
        ]
        if len({row.get("width") for row in runs}) > 1:
            drawn[f"{title} by width"] = by_width(Rows(runs), title)
    return drawn


def layouts(rows: Rows) -> Figure:
    """Gram matrices of the digits: of one model of sums alone, of their mean as they stand and up
    to x → ux, and of the mean of mixtures.
    """
    alone, mixed = (
        np.array(sample(rows)) for sample in (grams(ALONE, only=solved), grams(MIXTURE))
    )
    fitted = align(alone)
    panels = {
        "one model of sums": alone[0],
        f"their mean ({agreement(alone):.2f})": alone.mean(0),
        f"up to x → ux ({agreement(fitted):.2f})": fitted.mean(0),
        f"mean of mixtures ({agreement(mixed):.2f})": mixed.mean(0),
    }
    drawn = [
        figures.heatmap(
            matrix / np.abs(matrix).max(),
            title=name,
            x_title="digit",
            y_title="digit",
            z_title="similarity beyond isotropy (share of the largest)",
            diverging=True,
            square=True,
            caption="",
        )
        for name, matrix in panels.items()
    ]
    return replace(
        figures.beside(*drawn),
        title="Each model of sums alone has its own copy of one layout",
        columns=2,
        size=None,
        caption=f"{len(alone)} models of sums that learned, {len(mixed)} mixtures, 32 wide. "
        "Averaging hides the copies, relabeling the digits x → ux lines them up; in "
        "brackets: how far models agree.",
    )


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
