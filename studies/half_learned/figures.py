"""The figure of the half-learned study."""

from __future__ import annotations

import dataclasses

from mechint import figures
from mechint.probe.results import Figure
from mechint.studies.half_learned.claims import gained, half_learned, lost
from mechint.studies.rows import Rows
from mechint.studies.study import FRESH

NAMES = {2: "knows the sum mod 5, not its parity", 5: "knows the parity, not the sum mod 5"}


def draw(rows: Rows) -> dict[str, Figure]:
    """Gains in training and losses held out of every half-learned run."""
    found = half_learned(rows)
    return {"Lost held out against gained in training": paid(rows)} if found else {}


def paid(rows: Rows) -> Figure:
    """Trained triplets gained beyond chance against held-out triplets lost to it, a point a run."""
    x: dict[str, list[float]] = {}
    y: dict[str, list[float]] = {}
    for m, counts in half_learned(rows):
        x.setdefault(NAMES[m], []).append(gained(m, counts))
        y.setdefault(NAMES[m], []).append(lost(m, counts))
    seen = min(row["seed"] for row in rows) < FRESH
    most = max([1.0, *(value for each in (*x.values(), *y.values()) for value in each)])
    points = figures.scatter(
        [value for each in x.values() for value in each],
        [value for each in y.values() for value in each],
        groups=[name for name, each in x.items() for _ in each],
        title="Half-learned sums: lost held out against gained in training",
        x_title="trained triplets right beyond chance",
        y_title="held-out triplets wrong beyond chance",
        caption="One point a stuck model, of the factor of its sums that it has not learned. On "
        "the line every triplet gained in training is one lost held out; below it the model gained "
        "more than it lost. No parameter is fitted."
        + (" Exploratory: these runs suggested the claims." if seen else ""),
        equal=True,
    )
    return with_diagonal(points, most)


def with_diagonal(figure: Figure, most: float) -> Figure:
    """The figure with the line from 0 to `most` on which both axes are equal."""
    (plot,) = figure.plots
    line = figures.Layer("curve", [0.0, most], [0.0, most], "gained = lost", figures.COLORS[-1])
    return dataclasses.replace(
        figure, plots=[dataclasses.replace(plot, layers=[line, *plot.layers])]
    )
