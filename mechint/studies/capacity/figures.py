"""The figures of the regressions in the study of capacity."""

from __future__ import annotations

from typing import Any

import numpy as np

from mechint import figures
from mechint.results import Figure
from mechint.studies.capacity.measures import held, residual_of
from mechint.studies.core.study import Analysis, Runs, task_of
from mechint.training import Run

MASS = 0.75
"""Prior mass of the tasks that count as frequent, as in the source."""


def draw(analysis: Analysis, runs: Runs) -> None:
    """Add every figure of the regressions."""
    analysis.add_figure("Phase diagram", lambda: phase(runs))
    analysis.add_figure("Staircase", lambda: staircase(runs))
    analysis.add_figure("Residual and rare tasks", lambda: residuals(runs, MASS))
    analysis.add_figure("Retention", lambda: retention(runs))
    analysis.add_figure("Retention over time", lambda: retention_curves(runs))
    analysis.add_figure("Ten times the data", lambda: data(runs))


def _by_width(runs: Runs, **labels: Any) -> dict[int, list[Run]]:
    return {
        width: runs.select(width=width, **labels)
        for width in sorted(runs.values_of("width", **labels))
    }


def _held(group: list[Run]) -> np.ndarray:
    """(task,) features held at the end, mean over seeds."""
    return np.mean([held(run) for run in group], axis=0)


def _steps(critical: list[int], widths: list[int]) -> figures.Layer:
    """A curve: for every row (task) the place between two columns (widths) where it is predicted to
    begin.
    """
    places = [sum(width < wanted for width in widths) - 0.5 for wanted in critical]
    x = [place for place in places for _ in (0, 1)]
    y = [edge for t in range(len(places)) for edge in (t - 0.5, t + 0.5)]
    return figures.Layer("curve", x, y, "predicted", "#D55E00", legend=False, width=3)


def _diagram(runs: Runs, arm: str, title: str, caption: str) -> Figure:
    groups = _by_width(runs, arm=arm)
    widths, task = list(groups), task_of(next(iter(groups.values()))[0])
    table = np.stack([_held(group) for group in groups.values()], axis=1)
    names = [f"{t + 1} ({prior:.0%})" for t, prior in enumerate(task.priors.tolist())]
    titles: dict[str, Any] = {
        "x_title": "width m",
        "y_title": "task (share of the data)",
        "z_title": "features held",
    }
    shown = figures.heatmap(
        table,
        x=[str(width) for width in widths],
        y=names,
        title=title,
        caption=caption,
        annotate=False,
        **titles,
    )
    return shown.add(_steps([task.critical_width(t) for t in range(task.n_tasks)], widths))


def phase(runs: Runs) -> Figure:
    """Features held by task and width, with the predicted beginning of every task."""
    caption = (
        "Features of every task held at every width. The line is the predicted critical width: "
        "left of it a task should be absent, right of it present."
    )
    return _diagram(runs, "phase", "Which width holds which task", caption)


def staircase(runs: Runs) -> Figure:
    """The same with one feature per task."""
    return _diagram(
        runs,
        "staircase",
        "One feature per task",
        "The line is the prediction, a linear staircase: where the tasks held end along it, every "
        "step of width buys the next rarer task.",
    )


def residuals(runs: Runs, mass: float) -> Figure:
    """Residual of the frequent tasks and signal of the rare ones over width."""
    groups = _by_width(runs, arm="phase")
    task = task_of(next(iter(groups.values()))[0])
    common = task.common(mass)
    total = float(task.common_spectrum(mass).sum())
    left = [
        float(np.mean([residual_of(run, mass) for run in group])) / total
        for group in groups.values()
    ]
    series: dict[str, Any] = {"frequent tasks: residual": left}
    for t in (len(common), task.n_tasks - 1):
        if t < task.n_tasks:
            series[f"task {t + 1}: features held"] = [
                float(_held(group)[t]) / task.rank for group in groups.values()
            ]
    titles: dict[str, Any] = {"x_title": "width m", "y_title": "share (0–1)"}
    caption = (
        f"The most frequent tasks, {mass:.0%} of the data or more, count as frequent. Where rare "
        "ones wait for them, the rare ones' features appear only at widths at which little "
        "residual is left."
    )
    return figures.lines(
        list(groups),
        series,
        title="Residual and rare tasks",
        markers=True,
        caption=caption,
        **titles,
    )


def retention(runs: Runs) -> Figure:
    """Rare features at the end over the gap, one curve per width and size that bursts are averaged
    over.
    """
    gaps = sorted(runs.values_of("gap", arm="retention"))
    series = {}
    for arm, words in (("retention", ""), ("weighted", ", usual size")):
        for width in runs.values_of("width", arm="retention"):
            series[f"width {width}{words}"] = [
                _held(runs.select(arm=arm if gap > 1 else "retention", gap=gap, width=width))[-1]
                for gap in gaps
            ]
    titles: dict[str, Any] = {"x_title": "steps between showings", "y_title": "rare features held"}
    caption = (
        "Features of the rarest task at the end, at the same long-run frequency, with bursts "
        "averaged over their own size or over the usual one. Over its own size a burst weighs less "
        "the larger it is, which can take features from narrow models without any forgetting; "
        "claim (d) judges what is lost beyond that."
    )
    return figures.lines(
        gaps, series, title="Retention", x_log=True, markers=True, caption=caption, **titles
    )


def retention_curves(runs: Runs) -> Figure:
    """Rare features over training at the middle gap."""
    gaps = sorted(runs.values_of("gap", arm="retention"))
    gap = gaps[len(gaps) // 2]
    x, y = {}, {}
    for width, group in _by_width(runs, arm="retention", gap=gap).items():
        rare = f"test.features.{task_of(group[0]).n_tasks - 1}"
        x[f"width {width}"] = [row["step"] for row in group[0].metrics]
        y[f"width {width}"] = np.mean([[row[rare] for row in run.metrics] for run in group], axis=0)
    every = runs.select(arm="retention", gap=gap)[0].spec.train.evaluate_every
    caption = (
        f"The rarest task, shown every {gap} steps and evaluated every {every}, mean over seeds. "
        "What one showing adds and what is lost before the next shows only where evaluations are "
        "closer than showings."
    )
    return figures.lines(
        x,
        y,
        title="Retention over time",
        x_title="step",
        y_title="rare features held",
        caption=caption,
    )


def data(runs: Runs) -> Figure:
    """Loss over width with once and ten times the data."""
    widths = sorted(runs.values_of("width", arm="data"))
    series = {}
    for factor in (1, 10):
        series[f"data × {factor}"] = [
            np.mean(
                [
                    run.final["test.loss"]
                    for run in runs.select(arm="data", factor=factor, width=width)
                ]
            )
            for width in widths
        ]
    task = task_of(runs.select(arm="data")[0])
    series["limit"] = [task.residual(width) for width in widths]
    caption = (
        "Loss over width with the data once and ten times, beside the limit Σ of the utilities "
        "left out. Data that only brings a model to what its width can hold leaves it on or above "
        "the limit."
    )
    return figures.lines(
        widths,
        series,
        title="Ten times the data",
        x_title="width m",
        y_title="loss",
        markers=True,
        y_log=True,
        caption=caption,
    )
