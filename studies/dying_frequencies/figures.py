"""The figure of the study of frequencies that die."""

from __future__ import annotations

import numpy as np

from mechint import figures
from mechint.probe.results import Figure
from mechint.studies.dying_frequencies.claims import forked
from mechint.studies.dying_frequencies.measures import STEPS
from mechint.studies.rows import Row, Rows
from mechint.studies.whether_not_when.figures import unsolved

FATES = {"losers": "those that die", "winners": "those that win", "others": "as much of others"}


def draw(rows: Rows) -> dict[str, Figure]:
    """The forks over their steps; under them the frequencies of all models, by what becomes of
    them.
    """
    kept = [row for row in rows if forked(row)]
    title = "Frequencies that die: training without them, and their rise and fall"
    drawn = figures.stacked(
        [forks(kept), frequencies(kept)],
        title=title,
        x_title="steps from the fork",
        caption=f"{len(kept)} models, trained on from the step at which the frequencies that die "
        "are largest, without some frequencies of their embedding. Below: energies where nothing "
        "is taken, geometric mean over models.",
    )
    return {title: drawn} if kept else {}


def forks(rows: list[Row]) -> figures.Panel:
    """Share of the models that are not at 0.95 yet, over the steps of each fork."""
    series = {
        f"without {said}": unsolved([row["taken"][name] for row in rows], float(STEPS))
        for name, said in FATES.items()
    }
    return figures.Panel("not at 0.95 yet", series, y_range=(0, 1.03))


def frequencies(rows: list[Row]) -> figures.Panel:
    """Energies over those of the initial weights, from the fork on and before it."""
    at_fork = [row["fork"] for row in rows]
    apart = range(-min(at_fork), 1001 - max(at_fork), 20)
    series = {}
    for name, said in FATES.items():
        logs = []
        for row in rows:
            energy = np.log(np.array(row["energy"])[:, row["fates"][name]].mean(1))
            at = [row["curve"][0].index(row["fork"] + step) for step in apart]
            logs.append(energy[at] - energy[0])
        series[f"without {said}"] = (list(apart), np.exp(np.mean(logs, 0)))
    return figures.Panel("energy over that at the start", series, log=True)
