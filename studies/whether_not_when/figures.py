"""The figure of the study of when sums are solved."""

from __future__ import annotations

import math

from mechint import figures
from mechint.probe.results import Figure
from mechint.studies.rows import Rows
from mechint.studies.whether_not_when.claims import ALONE, MIXTURE, NAMES

ARMS = {MIXTURE: "beside maxima and medians", ALONE: "sums alone"}


def draw(rows: Rows) -> dict[str, Figure]:
    """Survival curves of every initialization and width of which both arms are there."""
    panels: dict[str, Figure] = {}
    for init in rows.values_of("init"):
        of = rows.where(init=init)
        for width in sorted(of.values_of("width"), reverse=True):
            runs = of.where(width=width)
            if set(ARMS) <= set(runs.values_of("arm")):
                panels[f"{NAMES[init]}, {width} wide"] = survival(runs, init, width)
    return panels


def survival(rows: Rows, init: str, width: int) -> Figure:
    """Share of the runs of each arm that have not yet solved held-out sums, over the steps."""
    last = max(rows.column("steps"))
    x: dict[str, list[float]] = {}
    y: dict[str, list[float]] = {}
    for arm, runs in rows.by("arm").items():
        solved = sum(map(math.isfinite, runs.column("solved_at")))
        name = f"{ARMS[arm]}: {solved} of {len(runs)} solve"
        x[name], y[name] = unsolved(runs.column("solved_at"), float(last))
    return figures.lines(
        x,
        y,
        title=f"Not yet solved: {NAMES[init]}, {width} wide",
        x_title="step",
        y_title="runs that have not solved held-out sums (0–1)",
        y_range=(0, 1.03),
        caption="Each fall is a run that reaches 0.9 on held-out sums. The curves fall together, "
        "and flatten at the share that never gets there.",
    )


def unsolved(times: list[float], last: float) -> tuple[list[float], list[float]]:
    """The steps of the share of runs that have not solved yet, as corners of a line; every run is
    followed to the last step or to its own, so that the share needs no correction.

    >>> unsolved([100.0, math.inf], 500.0)
    ([0.0, 100.0, 100.0, 500.0], [1.0, 1.0, 0.5, 0.5])
    """
    x, y, left = [0.0], [1.0], 1.0
    for at in sorted(time for time in times if math.isfinite(time)):
        x += [at, at]
        y += [left, left - 1 / len(times)]
        left = y[-1]
    return [*x, last], [*y, left]
