"""The figures of the joint-training study."""

from __future__ import annotations

import numpy as np

from mechint import figures
from mechint.probe.results import Figure
from mechint.studies.joint_training.claims import ALONE
from mechint.studies.rows import Rows


def draw(rows: Rows) -> dict[str, Figure]:
    """Accuracies by width of triplets and nested runs; parity before and after sums are solved."""
    drawn = {}
    for title, starts in (("Triplets", "triplets "), ("Nested expressions", "")):
        runs = [
            row
            for row in rows
            if row["arm"].startswith("triplets ") == bool(starts) and row.get("init") != "torch"
        ]
        if len({row.get("width") for row in runs}) > 1:
            drawn[f"{title} by width"] = by_width(Rows(runs), title)
    alone = [row for row in rows if row["arm"] == f"triplets {ALONE}" and "parity" in row]
    if alone:
        drawn["Parity of sums alone"] = parity(Rows(alone))
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


def parity(rows: Rows) -> Figure:
    """Share of held-out triplets with the right parity over the checkpoints, a line a run, beside
    what least squares on pairs of digits has right.
    """
    x, y, of = {}, {}, {}
    for row in rows:
        name = f"seed {row['seed']}"
        x[name], y[name] = row["parity"]["step"], row["parity"]["parity"]
        of[name] = "ends solved" if row["accuracy"] >= 0.9 else "ends unsolved"
    predicted = float(np.mean([row["parity"]["least_squares"][0] for row in rows]))
    return figures.lines(
        x,
        y,
        groups=of,
        title="Parity of held-out sums",
        x_title="step",
        y_title="right parity (0–1)",
        y_range=(0, 1.03),
        levels={"chance": 0.5, "least squares on pairs": predicted},
        caption="Sums alone: the share of held-out triplets whose predicted value has the right "
        "parity, one line a run. Least squares on pairs of digits is wrong on nearly all.",
    )
