"""The figures of the remainders study."""

from __future__ import annotations

import numpy as np

from mechint import figures
from mechint.probe.results import Figure
from mechint.studies.rows import Rows


def draw(rows: Rows) -> dict[str, Figure]:
    """Onsets, active frequencies and the structure of every arm, where they were measured."""
    drawn = {}
    main = Rows([row for row in rows if row["arm"] == "main"])
    if len(main):
        drawn["Onset of every prime"] = onsets(main)
    if any("active" in row for row in main):
        drawn["Active frequencies"] = active(Rows([row for row in main if "active" in row]))
    if any("rank_90" in row.get("end", {}) for row in rows):
        drawn["Components of the embedding"] = ranks(rows)
    return drawn


def onsets(rows: Rows) -> Figure:
    """The onset of every prime, a line a run."""
    primes = [q for q in rows[0]["onset"]]
    return figures.lines(
        [int(q) for q in primes],
        {
            f"seed {row['seed']}": [
                at if np.isfinite(at) else np.nan for at in row["onset"].values()
            ]
            for row in rows
        },
        title="Onset of every prime",
        x_title="prime",
        y_title="step half-way from chance to 1",
        y_log=True,
        markers=True,
        caption="The first step at which held-out accuracy is half-way from chance to 1.",
    )


def active(rows: Rows) -> Figure:
    """Active frequencies over the checkpoints, by the authors' rule, a line a run."""
    return figures.lines(
        *({f"seed {row['seed']}": row["active"][place][1:] for row in rows} for place in (0, 1)),
        title="Active frequencies over training",
        x_title="step",
        y_title="active frequencies",
        x_log=True,
        caption="Every frequency is divided by its sum over time and counts above μ + 2σ of all "
        "(Table 3).",
    )


def ranks(rows: Rows) -> Figure:
    """Components for 50% and 90% of the embedding's variance, arm by arm, at the end."""
    kept = rows.having("end.rank_90")
    arms = kept.values_of("arm")
    series = {
        f"{share}% of the variance": [
            float(np.mean(of.column(f"end.rank_{share}"))) for of in kept.by("arm").values()
        ]
        for share in (50, 90)
    }
    return figures.bars(
        arms,
        series,
        title="Components of the token embedding",
        x_title="arm",
        y_title="singular values",
        caption="Mean over runs, at the last step (Fig. 9).",
    )
