"""The figures of the emergence study."""

from __future__ import annotations

from typing import Any

import numpy as np

from mechint import figures
from mechint.results import Figure
from mechint.studies.core.study import Runs, task_of
from mechint.studies.emergence import measures as measured
from mechint.studies.emergence import search as search_time


def loss(runs: Runs) -> Figure:
    """Loss over time with lines of the predicted slope."""
    x, y = {}, {}
    for beta, group in measured.mixtures(runs).items():
        run, later = group[0], slice(1, None)
        steps, loss, window = (
            measured.steps_of(run)[later],
            measured.full_loss(run)[later],
            measured.window(run)[later],
        )
        x[f"β = {beta:g}"], y[f"β = {beta:g}"] = steps, loss
        slope = task_of(run).loss_slope
        middle = np.exp(np.log(loss[window]).mean() - slope * np.log(steps[window]).mean())
        x[f"t^{slope:.2f}"], y[f"t^{slope:.2f}"] = steps[window], middle * steps[window] ** slope
    caption = (
        "The loss, tail of the power law added; the short lines have the predicted slopes, over "
        "the fitted window. A loss that falls as that power of time runs along its line."
    )
    return figures.lines(
        x,
        y,
        title="Loss over time",
        x_title="step",
        y_title="loss (share of the target's variance)",
        x_log=True,
        y_log=True,
        caption=caption,
    )


def times(runs: Runs) -> Figure:
    """Emergence times with their fits."""
    x, y = {}, {}
    for beta, group in measured.mixtures(runs).items():
        at, times = np.arange(1, task_of(group[0]).n_directions + 1), measured.emergence(group[0])
        x[f"β = {beta:g}"], y[f"β = {beta:g}"] = at, times
        fitted = measured.fitted(group[0])
        fitted = fitted[np.isfinite(times[fitted])]
        if len(fitted) < 2:
            continue
        fit = np.polyfit(np.log(fitted + 1), np.log(times[fitted]), 1)
        name = f"fit, p^{fit[0]:.2f}"
        x[name], y[name] = fitted + 1, np.exp(np.polyval(fit, np.log(fitted + 1)))
    caption = (
        "Each direction's emergence time against its number; times that grow as p^β lie on a line "
        "of slope β. The fits cover the directions predicted to lie inside the run."
    )
    style: dict[str, Any] = {
        "x_title": "direction p",
        "y_title": "emergence time T_p (steps)",
        "x_log": True,
        "y_log": True,
    }
    return figures.lines(x, y, title="Emergence times", caption=caption, **style)


def alignment(runs: Runs) -> Figure:
    """Single directions over time."""
    group = measured.mixtures(runs)
    run = group[1.0 if 1.0 in group else next(iter(group))][0]
    shown = [p for p in (0, 1, 2, 4, 8, 16, 32, 64) if p < task_of(run).n_directions]
    series = {f"p = {p + 1}": measured.curve(run, f"alignment.{p}")[1:] for p in shown}
    caption = (
        f"Alignment with single directions, β = {task_of(run).beta:g}, the weaker the larger p. "
        "One that emerges sharply rises within a small share of the steps before."
    )
    style: dict[str, Any] = {"x_title": "step", "y_title": "alignment (0–1)", "x_log": True}
    return figures.lines(
        measured.steps_of(run)[1:],
        series,
        title="Emergence, direction by direction",
        caption=caption,
        **style,
    )


def floor(runs: Runs) -> Figure:
    """Last loss over width."""
    x, y = {}, {}
    for beta in runs.values_of("beta", arm="floor"):
        losses = measured.floor_losses(runs, beta)
        widths = np.array(list(losses), dtype=float)
        means = np.array([np.exp(np.mean(np.log(each))) for each in losses.values()])
        x[f"β = {beta:g}"], y[f"β = {beta:g}"] = widths, means
        slope = 1 - 2 * beta
        x[f"m^{slope:g}"], y[f"m^{slope:g}"] = widths, means[0] * (widths / widths[0]) ** slope
    caption = (
        "The last loss of students of m neurons (geometric mean over seeds, tail added), beside "
        "lines of the predicted slope from the first point on."
    )
    style: dict[str, Any] = {
        "x_title": "neurons m",
        "y_title": "last loss (share of the variance)",
        "x_log": True,
        "y_log": True,
        "markers": True,
    }
    return figures.lines(x, y, title="Width floor", caption=caption, **style)


def search(runs: Runs) -> Figure:
    """Search time over dimension."""
    series = {
        f"k = {k}": list(search_time.search_medians(runs, k).values())
        for k in (2, *search_time.SEARCH)
    }
    caption = (
        "Median search time of a single direction over the dimension. A power d^(k/2-1) is a line "
        "of slope k/2-1 here, a logarithm a curve that flattens."
    )
    style: dict[str, Any] = {
        "x_title": "inputs d",
        "y_title": "search time (steps)",
        "x_log": True,
        "y_log": True,
        "markers": True,
    }
    return figures.lines(
        runs.values_of("d", arm="search"), series, title="Search time", caption=caption, **style
    )
