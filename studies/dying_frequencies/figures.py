"""The figure of the study of frequencies that die."""

from __future__ import annotations

from typing import Any

import numpy as np

from mechint import figures
from mechint.probe.results import Figure
from mechint.studies.dying_frequencies.claims import forked
from mechint.studies.dying_frequencies.measures import STEPS
from mechint.studies.rows import Row, Rows
from mechint.studies.whether_not_when.figures import unsolved

FATES = {"losers": "those that die", "winners": "those that win", "others": "others"}


def draw(rows: Rows) -> dict[str, Figure]:
    """The forks over their steps; under them the frequencies of all models, by what becomes of
    them.
    """
    kept = [row for row in rows if forked(row)]
    title = "Frequencies that die: training without them, and their rise and fall"
    return {title: rise_and_fall(kept, title)} if kept else {}


def rise_and_fall(rows: list[Row], title: str) -> Figure:
    """The two panels."""
    return figures.stacked(
        [forks(rows), frequencies(rows)],
        title=title,
        x_title="steps from the fork",
        caption=f"{len(rows)} models, trained on from the step at which the frequencies that die "
        "are largest, without some frequencies of their embedding, of the others as much as of "
        "those that die. Below: energies where nothing is taken, geometric mean over models.",
    )


def forks(rows: list[Row]) -> figures.Panel:
    """Share of the models that are not at 0.95 yet, over the steps of each fork."""
    times = {name: [row["taken"][name] for row in rows] for name in FATES}
    series = {FATES[name]: unsolved(of, float(STEPS)) for name, of in times.items()}
    return figures.Panel("not at 0.95 yet, without", series, y_range=(0, 1.03))


def frequencies(rows: list[Row]) -> figures.Panel:
    """Energies over those of the initial weights, before the fork and after it."""
    at = [row["fork"] for row in rows]
    apart = range(-min(at), 1001 - max(at), 20)

    def grown(row: Row, name: str) -> Any:
        logs = np.log(np.array(row["energy"])[:, row["fates"][name]].mean(1))
        return logs[[row["curve"][0].index(row["fork"] + step) for step in apart]] - logs[0]

    means = {name: np.exp(np.mean([grown(row, name) for row in rows], 0)) for name in FATES}
    series = {FATES[name]: (list(apart), of) for name, of in means.items()}
    return figures.Panel("energy over that at the start", series, log=True)
