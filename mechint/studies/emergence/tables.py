"""The sensitivity tables of the emergence study: what its fits would say by another threshold or on
fewer directions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mechint.results import Table
from mechint.studies.core.study import Analysis, Runs, mean_and_spread, task_of
from mechint.studies.emergence import measures as measured
from mechint.studies.emergence.measures import FIRST, THRESHOLD

ALTERNATIVES = (0.25, 0.75)
"""Other thresholds of emergence."""

SHARES = (0.125, 0.25, 0.5, 1.0)
"""Shares of all directions that are fitted; the claims are judged on all that lie inside the
run.
"""


def add_tables(analysis: Analysis, runs: Runs) -> None:
    """Add every table of the study."""
    analysis.add_sensitivity("Threshold of emergence", lambda: thresholds(runs))
    analysis.add_sensitivity("How many directions are fitted", lambda: shares(runs))
    analysis.add_sensitivity("Online SGD", lambda: online(runs))
    analysis.add_table("Width floor", lambda: floors(runs))


def thresholds(runs: Runs) -> Table:
    """The exponent of T_p by the alignment that counts as learned."""
    rows = [
        (
            beta,
            threshold,
            mean_and_spread([measured.time_exponent(run, threshold) for run in group], 3),
        )
        for beta, group in measured.mixtures(runs).items()
        for threshold in sorted((THRESHOLD, *ALTERNATIVES))
    ]
    caption = "Exponent of the emergence times when another alignment counts as learned."
    return _table(("β", "threshold", "exponent of T_p"), rows, caption)


def shares(runs: Runs) -> Table:
    """Both exponents on the first directions alone."""
    rows = []
    for beta, group in measured.mixtures(runs).items():
        for share in SHARES:
            if len(measured.fitted(group[0], share)) < 3:
                continue
            times = mean_and_spread([measured.time_exponent(run, share=share) for run in group], 3)
            losses = mean_and_spread([measured.loss_exponent(run, share) for run in group], 3)
            inside = f"{FIRST}-{int(measured.fitted(group[0], share)[-1]) + 1}"
            theory = measured.predicted_exponent(group[0], share)
            wanted = f"{beta:g}, {(1 - 2 * beta) / beta:.3f}"
            rows.append((beta, inside, times, theory, losses, wanted))
    columns = (
        "β",
        "directions",
        "exponent of T_p",
        "the theory's T_p",
        "exponent of the loss",
        "predicted",
    )
    caption = (
        "Both exponents when only the first directions are fitted, beside the exponent of the "
        "predicted times of the same directions, with their logarithms; β and (1-2β)/β are "
        "predicted without them. For β up to 1 the first directions alone give a lower exponent."
    )
    return _table(columns, rows, caption)


def online(runs: Runs) -> Table:
    """Exponents of a few directions by online SGD and, from the same starts, on the population
    gradient.
    """
    rows = []
    for gradient in runs.values_of("gradient", arm="online"):
        group = runs.finished(arm="online", gradient=gradient)
        times = mean_and_spread([measured.time_exponent(run) for run in group])
        losses = mean_and_spread([measured.loss_exponent(run) for run in group])
        lost = (
            f"{sum(map(measured.censored, group))} of {len(group) * len(measured.fitted(group[0]))}"
        )
        rows.append((gradient, times, losses, lost))
    columns = ("gradient", "exponent of T_p", "exponent of the loss", "directions not learned")
    caption = (
        "Eight directions in 64 dimensions, β = 1, learned on the population gradient and from the "
        "same starts by online SGD: what the claims are judged on leaves its noise out."
    )
    return _table(columns, rows, caption)


def floors(runs: Runs) -> Table:
    """The last loss at every width beside the best that so many neurons could do."""
    rows = []
    for beta in runs.values_of("beta", arm="floor"):
        for width, group in measured.floor_runs(runs, beta).items():
            task = task_of(group[0])
            losses = [float(measured.full_loss(run)[-1]) for run in group]
            ideal = task.width_floor(width) + task.tail
            falls = [measured.last_fall(run) for run in group]
            rows.append((beta, width, float(np.exp(np.mean(np.log(losses)))), ideal, max(falls)))
    columns = ("β", "neurons", "last loss", "one direction each", "largest late fall")
    caption = (
        "Geometric mean of the last loss over seeds; the loss if every neuron had one of the "
        "largest directions; the largest share by which any run fell over its last fifth."
    )
    return _table(columns, rows, caption)


def _table(columns: tuple[str, ...], rows: list[tuple[Any, ...]], caption: str) -> Table:
    return Table({name: [row[i] for row in rows] for i, name in enumerate(columns)}, caption)
