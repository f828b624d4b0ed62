"""The figure of the study of when sums are solved."""

from __future__ import annotations

import math

from mechint import figures
from mechint.probe.results import Figure
from mechint.studies.rows import Rows
from mechint.studies.study import FRESH
from mechint.studies.whether_not_when.claims import ALONE, CONSTANT, MIXTURE, NAMES

ARMS = {MIXTURE: "beside maxima and medians", ALONE: "sums alone"}
TITLE = "Does joint training change whether, or when?"


def draw(rows: Rows) -> dict[str, Figure]:
    """Survival curves of an initialization, a panel for every width that has both arms."""
    found: dict[str, Figure] = {}
    for init in (name for name in NAMES if name in rows.values_of("init")):
        of, panels = rows.where(init=init), list[figures.Panel]()
        for width in sorted(of.values_of("width"), reverse=True):
            runs = of.where(width=width)
            if set(ARMS) <= set(runs.values_of("arm")):
                panels.append(panel(runs, f"{width} wide"))
        if panels:
            title = f"{TITLE} From {NAMES[init]}"
            found[title] = survival(title, panels, rows)
    steady = {f"{arm}{CONSTANT}" for arm in ARMS}
    every = {init: Rows([row for row in rows if row["init"] == init]) for init in NAMES}
    if each := [
        panel(of, f"from {NAMES[init]}", CONSTANT)
        for init, of in every.items()
        if steady <= set(of.values_of("arm"))
    ]:
        title = f"{TITLE} At a constant rate"
        found[title] = survival(title, each, rows)
    return found


def survival(title: str, panels: list[figures.Panel], rows: Rows) -> Figure:
    """The panels above each other, over the steps."""
    seen = min(row["seed"] for row in rows) < FRESH
    return figures.stacked(
        panels,
        title=title,
        x_title="step",
        caption="Runs that have not solved held-out sums yet. Where both curves fall at the same "
        "steps and flatten at different heights, joint training changes whether, and not when."
        + (" Exploratory: these runs suggested the claims." if seen else ""),
    )


def panel(rows: Rows, name: str, rate: str = "") -> figures.Panel:
    """Share of the runs of each arm that have not yet solved held-out sums, over the steps."""
    of = {name: rows.where(arm=f"{arm}{rate}") for arm, name in ARMS.items()}
    last = float(max(max(runs.column("steps")) for runs in of.values()))
    curves = {name: runs.column("solved_at") for name, runs in of.items()}
    solved = " against ".join(
        f"{sum(map(math.isfinite, times))} of {len(times)}" for times in curves.values()
    )
    return figures.Panel(
        f"not solved, {name}: {solved} solve",
        {arm: unsolved(times, last) for arm, times in curves.items()},
        y_range=(0, 1.03),
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
