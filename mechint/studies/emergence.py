"""Emergence and scaling laws for SGD learning (Ren, Nichani, Wu, Lee 2025): sharp transitions whose sum is a power law.

A direction is learned at the first step at which its alignment passes THRESHOLD. Fits use the directions, and the
steps, that the theory of `tasks.single_index` says lie well inside the run, never those that happened to be learned:
a fit over what has been learned so far is censored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mechint import figures
from mechint.errors import TrainingError
from mechint.results import Figure, Table
from mechint.studies.study import Analysis, Finding, Planned, Runs, Stated, Study, mean_and_spread, plan
from mechint.training import Run

THRESHOLD = 0.5
"""Alignment at which a direction counts as learned: half of its final value, where the curves are steepest."""

ALTERNATIVES = (0.25, 0.75)
"""Other thresholds, for the sensitivity rows."""

SAFETY = 1.5
"""A direction is fitted when its predicted time, this many times over, lies inside the run."""

FIRST = 2
"""The first direction that is fitted: the first one's time is dominated by where the neurons happen to start."""

SEARCH = {3: 0.5, 4: 1.0}
"""Information exponent k → exponent k/2 - 1 of the search time in d."""

CLAIMS = {
    claim.letter: claim
    for claim in (
        Stated(
            "a",
            "Direction p emerges sharply at a time T_p ∝ p^β, at a fixed learning rate.",
            "ηT_p ~ d^(k/2-1) p^β",
            "For every β the exponent of T_p over p, averaged over seeds, lies within 0.1 of β; and for the median direction the rise of "
            "its alignment from 0.1 to 0.9 takes less time than the plateau before it.",
            "T_p carries a factor ln(√(a_p/2)/n₀), which lowers the exponent by up to 0.07 over the fitted directions; "
            "sharp means that most of the time nothing is seen.",
        ),
        Stated(
            "b",
            "The loss falls as a power of time, t^((1-2β)/β).",
            "exponents -0.667, -1, -1.333 for β = 0.75, 1, 1.5",
            "For every β the exponent of the loss over time, the power law's missing tail Σ_{p>P} a_p² added, lies within 10 % of (1-2β)/β.",
            "The same logarithms enter as in (a); without the tail a finite sum bends the curve down at its end.",
        ),
        Stated(
            "c",
            "A student of m neurons ends at a floor that falls as m^(1-2β).",
            "exponents -0.5, -1, -2 for β = 0.75, 1, 1.5",
            "For every β the exponent of the last loss (tail added) over m lies within 20 % of 1-2β.",
            "A student of m neurons does not always spend one on each of the m largest directions, which costs more than a few per cent at small m.",
        ),
        Stated(
            "d",
            "The smooth loss curve is the sum of the sharp transitions.",
            "L(t) ≈ Σ_p a_p² [t < T_p]",
            "Over the fitted window Σ_{p: T_p > t} a_p², with T_p measured, differs from the loss by a factor of at most 1.25 at the median step.",
            "Steps in place of smooth rises err by about one direction of those still to come; a curve that was no such sum would be off by factors.",
        ),
        Stated(
            "e",
            "The information exponent k sets the search time, d^(k/2-1); at k = 2 there is no such plateau.",
            "exponents 0.5 for k = 3 and 1 for k = 4; k = 2 is the edge case",
            "With a single direction, the exponent of the search time over d (emergence time less that of the growth, ln(√(a/2)/n₀)/4ηa) lies within "
            "0.15 of k/2-1 for k = 3 and 4, and below 0.25 for k = 2.",
            "At k = 2 the search time is ln(1/c₀)/2 ∝ ln d, whose exponent over these d is about 0.2; the best of a few random "
            "starts spreads by tens of per cent.",
        ),
    )
}


@dataclass(frozen=True)
class Budget:
    """What a size trains: the mixture at every β, narrow students for the floor, a single direction at every (k, d)."""

    d: int
    n_directions: int
    width: int
    steps: Mapping[float, int]
    seeds: int
    widths: tuple[int, ...]
    floor_steps: Mapping[float, int]
    dimensions: tuple[int, ...]
    search_steps: int
    search_seeds: int
    lr: float = 0.05
    init_norm: float = 1e-3


BUDGETS = {
    "smoke": Budget(16, 6, 18, {1.0: 300}, 1, (2, 4), {1.0: 300}, (16, 64), 300, 2),
    "laptop": Budget(
        128, 96, 288, {0.75: 4000, 1.0: 5000, 1.5: 8000}, 3, (4, 8, 16, 32), {0.75: 6000, 1.0: 8000, 1.5: 24000}, (64, 256, 1024), 2400, 8
    ),
    "full": Budget(
        1024, 768, 2304, {0.75: 20000, 1.0: 40000, 1.5: 100000}, 5, (4, 8, 16, 32, 64, 128), {0.75: 20000, 1.0: 40000, 1.5: 200000},
        (64, 256, 1024, 4096), 8000, 16,
    ),
}  # fmt: skip


class Emergence(Study):
    """Sharp emergence, smooth loss."""

    name = "emergence"
    title = "Emergence and scaling laws for SGD learning"
    summary = (
        "A two-layer network learns a sum of single-index functions whose strengths fall as a power law. Every direction shows a long plateau and a "
        "sharp end, at a time that its strength sets. Added up, these sharp transitions give a loss that falls as a smooth power law of time and of width."
    )

    def runs(self, size: str) -> list[Planned]:
        budget, planned = BUDGETS[size], []
        task = {"d": budget.d, "n_directions": budget.n_directions}
        for beta, steps in budget.steps.items():
            for seed in range(budget.seeds):
                model, train = {"width": budget.width, "init_norm": budget.init_norm}, _train(budget, steps)
                planned.append(plan(f"mixture-beta{beta:g}", "single-index", {**task, "beta": beta}, model, train, seed=seed, arm="mixture", beta=beta))
        for beta, steps in budget.floor_steps.items():
            for width in budget.widths:
                for seed in range(budget.seeds):
                    model = {"width": width, "neurons": max(budget.widths), "init_norm": budget.init_norm}
                    name, train = f"floor-beta{beta:g}-width{width}", _train(budget, steps)
                    planned.append(plan(name, "single-index", {**task, "beta": beta}, model, train, seed=seed, arm="floor", beta=beta, width=width))
        for k in (2, *SEARCH):
            for d in budget.dimensions:
                for seed in range(budget.search_seeds):
                    link = {"d": d, "n_directions": 1, "hermite": (0.0,) * k + (1.0,)}
                    model, train = {"width": 8, "init_norm": 1e-2}, _train(budget, budget.search_steps)
                    planned.append(plan(f"search-k{k}-d{d}", "single-index", link, model, train, seed=seed, arm="search", k=k, d=d))
        return planned

    def analyse(self, runs: Runs, size: str) -> Analysis:
        book = Analysis(self.name, size)
        book.judge(CLAIMS["a"], lambda: _times(runs))
        book.judge(CLAIMS["b"], lambda: _slopes(runs))
        book.judge(CLAIMS["c"], lambda: _floors(runs))
        book.judge(CLAIMS["d"], lambda: _additive(runs))
        book.judge(CLAIMS["e"], lambda: _search(runs))
        book.draw("Loss", lambda: _loss_figure(runs))
        book.draw("Emergence times", lambda: _times_figure(runs))
        book.draw("Alignment", lambda: _alignment_figure(runs))
        book.draw("Width floor", lambda: _floor_figure(runs))
        book.draw("Search time", lambda: _search_figure(runs))
        book.vary("Threshold of emergence", lambda: _thresholds(runs))
        return book


def _train(budget: Budget, steps: int) -> dict[str, Any]:
    """Descent on the exact population loss, looked at 400 times."""
    return {"steps": steps, "batch_size": None, "lr": budget.lr, "evaluate_every": max(1, steps // 400)}


# --- what a run shows -------------------------------------------------------------------------------------------------
def _curve(run: Run, name: str) -> np.ndarray:
    return np.array([row[f"test.{name}"] for row in run.metrics])


def _steps(run: Run) -> np.ndarray:
    return np.array([row["step"] for row in run.metrics], dtype=float)


def passing(steps: np.ndarray, curve: np.ndarray, threshold: float) -> float:
    """The step at which `curve` first reaches `threshold`, between evaluations by interpolation; NaN when it never does.

    >>> passing(np.array([0.0, 10.0, 20.0]), np.array([0.0, 0.4, 0.6]), 0.5)
    15.0
    """
    reached = np.flatnonzero(curve >= threshold)
    if not len(reached):
        return math.nan
    at = reached[0]
    if at == 0:
        return float(steps[0])
    share = (threshold - curve[at - 1]) / (curve[at] - curve[at - 1])
    return float(steps[at - 1] + share * (steps[at] - steps[at - 1]))


def _emergence(run: Run, threshold: float = THRESHOLD) -> np.ndarray:
    """(direction,) the step at which each direction is learned."""
    steps = _steps(run)
    return np.array([passing(steps, _curve(run, f"alignment.{p}"), threshold) for p in range(run.spec.task.n_directions)])


def _predicted(run: Run) -> np.ndarray:
    spec = run.spec
    return spec.task.emergence_times(spec.train.lr, spec.model.init_norm, spec.model.width).numpy()


def _fitted(run: Run) -> np.ndarray:
    """Indices of the directions that are fitted, fixed by the prediction."""
    inside = int((SAFETY * _predicted(run) <= run.spec.train.steps).sum())
    return np.arange(FIRST - 1, inside)


def exponent(x: np.ndarray, y: np.ndarray) -> float:
    """Slope of log y over log x; TrainingError where a value is missing or not positive.

    >>> round(exponent(np.array([1.0, 2.0, 4.0]), np.array([3.0, 12.0, 48.0])), 6)
    2.0
    """
    if len(x) < 2 or not (np.isfinite(y).all() and (y > 0).all()):
        raise TrainingError("a fit over directions or widths of which some were not reached in the run")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def _time_exponent(run: Run, threshold: float = THRESHOLD) -> float:
    fitted = _fitted(run)
    times = _emergence(run, threshold)[fitted]
    return exponent((fitted + 1)[np.isfinite(times)], times[np.isfinite(times)])


def _window(run: Run) -> np.ndarray:
    """Which evaluations lie between the predicted times of the first and the last fitted direction."""
    predicted, steps = _predicted(run)[_fitted(run)], _steps(run)
    return (steps >= predicted[0]) & (steps <= predicted[-1])


def _full_loss(run: Run) -> np.ndarray:
    """The loss with the directions beyond the last one of the power law."""
    return _curve(run, "loss") + run.spec.task.tail


# --- the claims -------------------------------------------------------------------------------------------------------
def _mixtures(runs: Runs) -> dict[float, list[Run]]:
    return {beta: runs.select(arm="mixture", beta=beta) for beta in runs.values_of("beta", arm="mixture")}


def _per_beta(values: Mapping[float, list[float]]) -> str:
    return "; ".join(f"β = {beta:g}: {mean_and_spread(each, 3)}" for beta, each in values.items())


def _times(runs: Runs) -> Finding:
    arms = _mixtures(runs)
    fits = {beta: [_time_exponent(run) for run in group] for beta, group in arms.items()}
    unlearned = sum(int(np.isnan(_emergence(run)[_fitted(run)]).sum()) for group in arms.values() for run in group)
    shares = [float(np.median(_rise(run))) for group in arms.values() for run in group]
    holds = all(abs(np.mean(each) - beta) <= 0.1 for beta, each in fits.items()) and not unlearned and float(np.mean(shares)) < 1
    ours = f"Exponents {_per_beta(fits)}. Rise over plateau {mean_and_spread(shares)} at the median direction."
    directions = {beta: len(_fitted(group[0])) for beta, group in arms.items()}
    return Finding(holds, ours, {"exponents": fits, "rise over plateau": shares, "directions fitted": directions, "fitted but not learned": unlearned})


def _rise(run: Run) -> np.ndarray:
    """(direction,) time from alignment 0.1 to 0.9 over the time until 0.1, of the fitted directions that do both."""
    start, end = (_emergence(run, level)[_fitted(run)] for level in (0.1, 0.9))
    shares = (end - start) / start
    return shares[np.isfinite(shares)]


def _slopes(runs: Runs) -> Finding:
    fits = {beta: [exponent(_steps(run)[_window(run)], _full_loss(run)[_window(run)]) for run in group] for beta, group in _mixtures(runs).items()}
    wanted = {beta: (1 - 2 * beta) / beta for beta in fits}
    raw = {beta: [exponent(_steps(run)[_window(run)], _curve(run, "loss")[_window(run)]) for run in group] for beta, group in _mixtures(runs).items()}
    holds = all(abs(np.mean(each) / wanted[beta] - 1) <= 0.1 for beta, each in fits.items())
    return Finding(holds, f"Exponents {_per_beta(fits)}.", {"exponents": fits, "predicted": wanted, "without the tail": raw})


def _floor_losses(runs: Runs, beta: float) -> dict[int, list[float]]:
    """Width → last loss of each seed, tail added."""
    return {width: [float(_full_loss(run)[-1]) for run in runs.select(arm="floor", beta=beta, width=width)] for width in runs.values_of("width", arm="floor")}


def _floors(runs: Runs) -> Finding:
    fits: dict[float, list[float]] = {}
    for beta in runs.values_of("beta", arm="floor"):
        losses = _floor_losses(runs, beta)
        fits[beta] = [exponent(np.array(list(losses)), np.array(row)) for row in zip(*losses.values(), strict=True)]
    holds = all(abs(np.mean(each) / (1 - 2 * beta) - 1) <= 0.2 for beta, each in fits.items())
    return Finding(holds, f"Exponents {_per_beta(fits)}.", {"exponents": fits, "predicted": {beta: 1 - 2 * beta for beta in fits}})


def _additive_factor(run: Run) -> float:
    """Median over the window of the factor between the loss and the sum of steps at the measured times."""
    times = np.nan_to_num(_emergence(run), nan=math.inf)
    steps = run.spec.task.predicted_loss(torch.from_numpy(_steps(run)), torch.from_numpy(times)).numpy()
    inside = _window(run) & (steps > 0)
    return float(np.exp(np.median(np.abs(np.log(_curve(run, "loss")[inside] / steps[inside])))))


def _additive(runs: Runs) -> Finding:
    factors = {beta: [_additive_factor(run) for run in group] for beta, group in _mixtures(runs).items()}
    holds = all(np.mean(each) <= 1.25 for each in factors.values())
    return Finding(holds, f"Median factor {_per_beta(factors)}.", {"factors": factors})


def _search_times(runs: Runs, k: int) -> dict[int, list[float]]:
    """d → search time of each seed: the emergence time less that of the growth."""
    times = {}
    for d in runs.values_of("d", arm="search"):
        group = runs.select(arm="search", k=k, d=d)
        growth = [math.log(math.sqrt(0.5) / run.spec.model.init_norm) / (4 * run.spec.train.lr) for run in group]
        times[d] = [float(_emergence(run)[0]) - less for run, less in zip(group, growth, strict=True)]
    return times


def _search(runs: Runs) -> Finding:
    fits, never = {}, {}
    for k in (2, *SEARCH):
        times = _search_times(runs, k)
        medians = [float(np.nanmedian(each)) if np.isfinite(each).any() else math.nan for each in times.values()]
        never[k] = sum(int(np.isnan(each).sum()) for each in times.values())
        fits[k] = exponent(np.array(list(times)), np.array(medians))
    holds = fits[2] < 0.25 and all(abs(fits[k] - wanted) <= 0.15 for k, wanted in SEARCH.items())
    ours = "Exponents over d, from medians over seeds: " + "; ".join(f"k = {k}: {fit:.2f}" for k, fit in fits.items()) + "."
    return Finding(holds, ours, {"exponents": fits, "never learned": never})


def _thresholds(runs: Runs) -> Table:
    rows: dict[str, list[Any]] = {"β": [], "threshold": [], "exponent of T_p": []}
    for beta, group in _mixtures(runs).items():
        for threshold in sorted((THRESHOLD, *ALTERNATIVES)):
            row = (beta, threshold, mean_and_spread([_time_exponent(run, threshold) for run in group], 3))
            for column, value in zip(rows.values(), row, strict=True):
                column.append(value)
    return Table(rows, "Exponent of the emergence times when another alignment counts as learned.")


# --- the figures ------------------------------------------------------------------------------------------------------
def _loss_figure(runs: Runs) -> Figure:
    x, y = {}, {}
    for beta, group in _mixtures(runs).items():
        run, later = group[0], slice(1, None)
        steps, loss, window = _steps(run)[later], _full_loss(run)[later], _window(run)[later]
        x[f"β = {beta:g}"], y[f"β = {beta:g}"] = steps, loss
        slope = run.spec.task.loss_slope
        middle = np.exp(np.log(loss[window]).mean() - slope * np.log(steps[window]).mean())
        x[f"t^{slope:.2f}"], y[f"t^{slope:.2f}"] = steps[window], middle * steps[window] ** slope
    caption = "The loss (tail of the power law added) falls as a power of time; the short lines have the predicted slopes, over the fitted window."
    return figures.lines(x, y, title="Loss over time", x_title="step", y_title="loss (share of the target's variance)", x_log=True, y_log=True, caption=caption)


def _times_figure(runs: Runs) -> Figure:
    x, y = {}, {}
    for beta, group in _mixtures(runs).items():
        run, fitted = group[0], _fitted(group[0])
        x[f"β = {beta:g}"], y[f"β = {beta:g}"] = np.arange(1, run.spec.task.n_directions + 1), _emergence(run)
        fit = np.polyfit(np.log(fitted + 1), np.log(_emergence(run)[fitted]), 1)
        name = f"fit, p^{fit[0]:.2f}"
        x[name], y[name] = fitted + 1, np.exp(np.polyval(fit, np.log(fitted + 1)))
    caption = "Each direction's emergence time against its number: straight lines of slope β. The fits cover the directions predicted to lie inside the run."
    style = {"x_title": "direction p", "y_title": "emergence time T_p (steps)", "x_log": True, "y_log": True}
    return figures.lines(x, y, title="Emergence times", caption=caption, **style)


def _alignment_figure(runs: Runs) -> Figure:
    group = _mixtures(runs)
    run = group[1.0 if 1.0 in group else next(iter(group))][0]
    shown = [p for p in (0, 1, 2, 4, 8, 16, 32, 64) if p < run.spec.task.n_directions]
    series = {f"p = {p + 1}": _curve(run, f"alignment.{p}")[1:] for p in shown}
    caption = f"Alignment with single directions, β = {run.spec.task.beta:g}: a long plateau, then a sharp rise; weaker directions (larger p) come later."
    style = {"x_title": "step", "y_title": "alignment (0–1)", "x_log": True}
    return figures.lines(_steps(run)[1:], series, title="Emergence, direction by direction", caption=caption, **style)


def _floor_figure(runs: Runs) -> Figure:
    widths = np.array(runs.values_of("width", arm="floor"), dtype=float)
    series = {}
    for beta in runs.values_of("beta", arm="floor"):
        means = np.array([np.mean(each) for each in _floor_losses(runs, beta).values()])
        series[f"β = {beta:g}"] = means
        series[f"m^{1 - 2 * beta:g}"] = means[0] * (widths / widths[0]) ** (1 - 2 * beta)
    caption = "The last loss of students of m neurons (mean over seeds, tail added), beside lines of the predicted slope from the first point on."
    style = {"x_title": "neurons m", "y_title": "last loss (share of the variance)", "x_log": True, "y_log": True, "markers": True}
    return figures.lines(widths, series, title="Width floor", caption=caption, **style)


def _search_figure(runs: Runs) -> Figure:
    series = {f"k = {k}": [np.nanmedian(each) for each in _search_times(runs, k).values()] for k in (2, *SEARCH)}
    caption = "Median search time of a single direction over the dimension: steeper for a larger information exponent k, nearly flat at k = 2."
    style = {"x_title": "inputs d", "y_title": "search time (steps)", "x_log": True, "y_log": True, "markers": True}
    return figures.lines(runs.values_of("d", arm="search"), series, title="Search time", caption=caption, **style)
