"""Emergence and scaling laws for SGD learning (Ren, Nichani, Wu, Lee 2025): sharp transitions whose
sum is a power law.

A direction is learned at the first step at which its alignment passes THRESHOLD. Fits use the
directions, and the steps, that the theory of `tasks.single_index` says lie well inside the run,
never those that happened to be learned: a fit over what has been learned so far is censored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mechint.errors import TrainingError
from mechint.results import Table
from mechint.studies.core.study import (
    Analysis,
    Finding,
    Planned,
    Runs,
    Stated,
    Study,
    mean_and_spread,
    model_of,
    plan,
    task_of,
)
from mechint.studies.emergence import figures as drawn
from mechint.studies.emergence import measures as measured
from mechint.studies.emergence.measures import FIRST, SEARCH, THRESHOLD, exponent
from mechint.training import Run

ALTERNATIVES = (0.25, 0.75)
"""Other thresholds, for the sensitivity rows."""

SHARES = (0.125, 0.25, 0.5, 1.0)
"""Shares of all directions that are fitted, for the sensitivity rows; the claims are judged on all
that lie inside the run.
"""

CLAIMS = {
    claim.letter: claim
    for claim in (
        Stated(
            "a",
            "Direction p emerges sharply at a time T_p ∝ p^β, at a fixed learning rate.",
            "ηT_p ~ d^(k/2-1) p^β",
            "For every β the exponent of T_p over p, averaged over seeds, lies within 0.1 of "
            "β; and for the median direction the rise of "
            "its alignment from 0.1 to 0.9 takes less time than the plateau before it.",
            "T_p carries a factor ln(√(a_p/2)/n₀), which lowers the exponent by up to 0.07 "
            "over the fitted directions; "
            "sharp means that most of the time nothing is seen.",
        ),
        Stated(
            "b",
            "The loss falls as a power of time, t^((1-2β)/β).",
            "exponents -0.667, -1, -1.333 for β = 0.75, 1, 1.5",
            (
                "For every β the exponent of the loss over time, the power law's missing tail "
                "Σ_{p>P} a_p² added, lies within 10 % of (1-2β)/β."
            ),
            (
                "The same logarithms enter as in (a); without the tail a finite sum bends the "
                "curve down at its end."
            ),
        ),
        Stated(
            "c",
            "A student of m neurons ends at a floor that falls as m^(1-2β).",
            "exponents -0.5, -1, -2 for β = 0.75, 1, 1.5",
            (
                "For every β the exponent of the last loss (tail added) over m lies within 20 % "
                "of 1-2β."
            ),
            (
                "A student of m neurons does not always spend one on each of the m largest "
                "directions, which costs more than a few per cent at small m."
            ),
        ),
        Stated(
            "d",
            "The smooth loss curve is the sum of the sharp transitions.",
            "L(t) ≈ Σ_p a_p² [t < T_p]",
            (
                "Over the fitted window Σ_{p: T_p > t} a_p², with T_p measured, differs from the "
                "loss by a factor of at most 1.25 at the median step."
            ),
            (
                "Steps in place of smooth rises err by about one direction of those still to "
                "come; a curve that was no such sum would be off by factors."
            ),
        ),
        Stated(
            "e",
            (
                "The information exponent k sets the search time, d^(k/2-1); at k = 2 there is no "
                "such plateau."
            ),
            "exponents 0.5 for k = 3 and 1 for k = 4; k = 2 is the edge case",
            "With a single direction, the exponent of the search time over d (emergence time "
            "less that of the growth, ln(√(a/2)/n₀)/4ηa) lies within "
            "0.15 of k/2-1 for k = 3 and 4, and below 0.25 for k = 2.",
            "At k = 2 the search time is ln(1/c₀)/2 ∝ ln d, whose exponent over these d is "
            "about 0.2; the best of a few random "
            "starts spreads by tens of per cent.",
        ),
    )
}


@dataclass(frozen=True)
class Budget:
    """What a size trains: the mixture at every β, narrow students for the floor, a single direction
    at every (k, d).

    wider: neurons of one more mixture at every β, for the sensitivity rows; 0 for none.
    """

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
    wider: int = 0
    lr: float = 0.05
    init_norm: float = 1e-3


BUDGETS = {
    "smoke": Budget(16, 6, 18, {1.0: 300}, 1, (2, 4), {1.0: 300}, (16, 64), 300, 2, 24),
    "laptop": Budget(
        128,
        96,
        288,
        {0.75: 4000, 1.0: 5000, 1.5: 8000},
        3,
        (4, 8, 16, 32),
        {0.75: 6000, 1.0: 8000, 1.5: 24000},
        (64, 256, 1024),
        2400,
        8,
        1152,
    ),
    "full": Budget(
        1024,
        768,
        2304,
        {0.75: 20000, 1.0: 40000, 1.5: 100000},
        5,
        (4, 8, 16, 32, 64, 128),
        {0.75: 20000, 1.0: 40000, 1.5: 200000},
        (64, 256, 1024, 4096),
        8000,
        16,
    ),
}


class Emergence(Study):
    """Sharp emergence, smooth loss."""

    name = "emergence"
    title = "Emergence and scaling laws for SGD learning"
    summary = (
        "A two-layer network learns a sum of single-index functions whose strengths fall as a "
        "power law. Every direction shows a long plateau and a "
        "sharp end, at a time that its strength sets. Added up, these sharp transitions give "
        "a loss that falls as a smooth power law of time and of width."
    )

    def runs(self, size: str) -> list[Planned]:
        """Mixtures at every β, narrow students for the floor, a single direction at every (k,
        d).
        """
        budget, planned = BUDGETS[size], []
        task = {"d": budget.d, "n_directions": budget.n_directions}
        for beta, steps in budget.steps.items():
            for seed in range(budget.seeds):
                model, train = (
                    {"width": budget.width, "init_norm": budget.init_norm},
                    _train(budget, steps),
                )
                planned.append(
                    plan(
                        f"mixture-beta{beta:g}",
                        "single-index",
                        {**task, "beta": beta},
                        model,
                        train,
                        seed=seed,
                        arm="mixture",
                        beta=beta,
                    )
                )
            if budget.wider:
                model = {"width": budget.wider, "init_norm": budget.init_norm}
                planned.append(
                    plan(
                        f"wider-beta{beta:g}",
                        "single-index",
                        {**task, "beta": beta},
                        model,
                        _train(budget, steps),
                        arm="wider",
                        beta=beta,
                    )
                )
        for beta, steps in budget.floor_steps.items():
            for width in budget.widths:
                for seed in range(budget.seeds):
                    model = {
                        "width": width,
                        "neurons": max(budget.widths),
                        "init_norm": budget.init_norm,
                    }
                    name, train = f"floor-beta{beta:g}-width{width}", _train(budget, steps)
                    planned.append(
                        plan(
                            name,
                            "single-index",
                            {**task, "beta": beta},
                            model,
                            train,
                            seed=seed,
                            arm="floor",
                            beta=beta,
                            width=width,
                        )
                    )
        for k in (2, *SEARCH):
            for d in budget.dimensions:
                for seed in range(budget.search_seeds):
                    link = {"d": d, "n_directions": 1, "hermite": (0.0,) * k + (1.0,)}
                    model, train = (
                        {"width": 8, "init_norm": 1e-2},
                        _train(budget, budget.search_steps),
                    )
                    planned.append(
                        plan(
                            f"search-k{k}-d{d}",
                            "single-index",
                            link,
                            model,
                            train,
                            seed=seed,
                            arm="search",
                            k=k,
                            d=d,
                        )
                    )
        return planned

    def analyse(self, runs: Runs, size: str) -> Analysis:
        """Judge claims a to e, and draw the loss, the emergence times, the floor and the search
        time.
        """
        book = Analysis(self.name, size)
        book.judge(CLAIMS["a"], lambda: _times(runs))
        book.judge(CLAIMS["b"], lambda: _slopes(runs))
        book.judge(CLAIMS["c"], lambda: _floors(runs))
        book.judge(CLAIMS["d"], lambda: _additive(runs))
        book.judge(CLAIMS["e"], lambda: _search(runs))
        book.draw("Loss", lambda: drawn.loss(runs))
        book.draw("Emergence times", lambda: drawn.times(runs))
        book.draw("Alignment", lambda: drawn.alignment(runs))
        book.draw("Width floor", lambda: drawn.floor(runs))
        book.draw("Search time", lambda: drawn.search(runs))
        book.vary("Threshold of emergence", lambda: _thresholds(runs))
        book.vary("How many directions are fitted", lambda: _shares(runs))
        if runs.names(arm="wider"):
            book.vary("How many neurons there are for a direction", lambda: _neurons(runs))
        return book


def _train(budget: Budget, steps: int) -> dict[str, Any]:
    """Descent on the exact population loss, looked at 400 times."""
    return {
        "steps": steps,
        "batch_size": None,
        "lr": budget.lr,
        "evaluate_every": max(1, steps // 400),
    }


# --- the claims -----------------------------------------------------------------------------------
def _per_beta(values: Mapping[float, list[float]]) -> str:
    return "; ".join(f"β = {beta:g}: {mean_and_spread(each, 3)}" for beta, each in values.items())


def _times(runs: Runs) -> Finding:
    arms = measured.mixtures(runs)
    fits = {beta: [measured.time_exponent(run) for run in group] for beta, group in arms.items()}
    unlearned = sum(
        int(np.isnan(measured.emergence(run)[measured.fitted(run)]).sum())
        for group in arms.values()
        for run in group
    )
    shares = [float(np.median(_rise(run))) for group in arms.values() for run in group]
    holds = (
        all(abs(np.mean(each) - beta) <= 0.1 for beta, each in fits.items())
        and not unlearned
        and float(np.mean(shares)) < 1
    )
    ours = (
        f"Exponents {_per_beta(fits)}. Rise over plateau {mean_and_spread(shares)} at the "
        "median direction."
    )
    directions = {beta: len(measured.fitted(group[0])) for beta, group in arms.items()}
    values = {
        "exponents": fits,
        "rise over plateau": shares,
        "directions fitted": directions,
        "fitted but not learned": unlearned,
    }
    return Finding(
        holds,
        ours,
        values,
        "" if holds else _first(runs, lambda run: measured.time_exponent(run, share=SHARES[0])),
    )


def _rise(run: Run) -> np.ndarray:
    """(direction,) time from alignment 0.1 to 0.9 over the time until 0.1, of the fitted directions
    that do both.
    """
    start, end = (measured.emergence(run, level)[measured.fitted(run)] for level in (0.1, 0.9))
    shares = (end - start) / start
    return shares[np.isfinite(shares)]


def _slopes(runs: Runs) -> Finding:
    arms = measured.mixtures(runs)
    fits = {beta: [measured.loss_exponent(run) for run in group] for beta, group in arms.items()}
    raw = {
        beta: [measured.loss_exponent(run, tail=False) for run in group]
        for beta, group in arms.items()
    }
    wanted = {beta: (1 - 2 * beta) / beta for beta in fits}
    holds = all(abs(np.mean(each) / wanted[beta] - 1) <= 0.1 for beta, each in fits.items())
    note = "" if holds else _first(runs, lambda run: measured.loss_exponent(run, SHARES[0]))
    return Finding(
        holds,
        f"Exponents {_per_beta(fits)}.",
        {"exponents": fits, "predicted": wanted, "without the tail": raw},
        note,
    )


def _floors(runs: Runs) -> Finding:
    fits: dict[float, list[float]] = {}
    for beta in runs.values_of("beta", arm="floor"):
        losses = measured.floor_losses(runs, beta)
        fits[beta] = [
            exponent(np.array(list(losses)), np.array(row))
            for row in zip(*losses.values(), strict=True)
        ]
    holds = all(abs(np.mean(each) / (1 - 2 * beta) - 1) <= 0.2 for beta, each in fits.items())
    return Finding(
        holds,
        f"Exponents {_per_beta(fits)}.",
        {"exponents": fits, "predicted": {beta: 1 - 2 * beta for beta in fits}},
    )


def _additive_factor(run: Run) -> float:
    """Median over the window of the factor between the loss and the sum of steps at the measured
    times.
    """
    times = np.nan_to_num(measured.emergence(run), nan=math.inf)
    steps = (
        task_of(run)
        .predicted_loss(torch.from_numpy(measured.steps_of(run)), torch.from_numpy(times))
        .numpy()
    )
    inside = measured.window(run) & (steps > 0)
    return float(
        np.exp(np.median(np.abs(np.log(measured.curve(run, "loss")[inside] / steps[inside]))))
    )


def _additive(runs: Runs) -> Finding:
    factors = {
        beta: [_additive_factor(run) for run in group]
        for beta, group in measured.mixtures(runs).items()
    }
    holds = all(np.mean(each) <= 1.25 for each in factors.values())
    return Finding(holds, f"Median factor {_per_beta(factors)}.", {"factors": factors})


def _search(runs: Runs) -> Finding:
    fits, never = {}, {}
    for k in (2, *SEARCH):
        never[k] = sum(
            int(np.isnan(each).sum()) for each in measured.search_times(runs, k).values()
        )
        medians = measured.search_medians(runs, k)
        fits[k] = exponent(np.array(list(medians)), np.array(list(medians.values())))
    holds = fits[2] < 0.25 and all(abs(fits[k] - wanted) <= 0.15 for k, wanted in SEARCH.items())
    ours = (
        "Exponents over d, from medians over seeds: "
        + "; ".join(f"k = {k}: {fit:.2f}" for k, fit in fits.items())
        + "."
    )
    return Finding(holds, ours, {"exponents": fits, "never learned": never})


def _first(runs: Runs, fit: Callable[[Run], float]) -> str:
    """A note: what a fit gives over the first eighth of the directions, means over seeds."""
    try:
        means = {
            beta: float(np.mean([fit(run) for run in group]))
            for beta, group in measured.mixtures(runs).items()
        }
    except TrainingError:
        return ""
    words = ", ".join(f"{mean:.3f} at β = {beta:g}" for beta, mean in means.items())
    return (
        f"Over the first eighth of the directions the exponents are {words}; later ones find "
        "fewer free neurons (sensitivity rows)."
    )


def _shares(runs: Runs) -> Table:
    rows: dict[str, list[Any]] = {
        "β": [],
        "directions": [],
        "exponent of T_p": [],
        "exponent of the loss": [],
        "predicted": [],
    }
    for beta, group in measured.mixtures(runs).items():
        for share in SHARES:
            if len(measured.fitted(group[0], share)) < 3:
                continue
            times = mean_and_spread([measured.time_exponent(run, share=share) for run in group], 3)
            losses = mean_and_spread([measured.loss_exponent(run, share) for run in group], 3)
            inside = f"{FIRST}-{int(measured.fitted(group[0], share)[-1]) + 1}"
            for column, value in zip(
                rows.values(),
                (beta, inside, times, losses, f"{beta:g}, {(1 - 2 * beta) / beta:.3f}"),
                strict=True,
            ):
                column.append(value)
    return Table(
        rows,
        (
            "Both exponents when only the first directions are fitted: late ones find fewer free "
            "neurons, and emerge later than the law says."
        ),
    )


def _neurons(runs: Runs) -> Table:
    rows: dict[str, list[Any]] = {
        "β": [],
        "neurons": [],
        "exponent of T_p": [],
        "exponent of the loss": [],
        "predicted": [],
    }
    for beta in runs.values_of("beta", arm="wider"):
        for arm in ("mixture", "wider"):
            group = runs.select(arm=arm, beta=beta)
            times, losses = (
                mean_and_spread([fit(run) for run in group], 3)
                for fit in (measured.time_exponent, measured.loss_exponent)
            )
            row = (
                beta,
                model_of(group[0]).width,
                times,
                losses,
                f"{beta:g}, {(1 - 2 * beta) / beta:.3f}",
            )
            for column, value in zip(rows.values(), row, strict=True):
                column.append(value)
    return Table(rows, "Both exponents when every direction finds more neurons to compete for it.")


def _thresholds(runs: Runs) -> Table:
    rows: dict[str, list[Any]] = {"β": [], "threshold": [], "exponent of T_p": []}
    for beta, group in measured.mixtures(runs).items():
        for threshold in sorted((THRESHOLD, *ALTERNATIVES)):
            row = (
                beta,
                threshold,
                mean_and_spread([measured.time_exponent(run, threshold) for run in group], 3),
            )
            for column, value in zip(rows.values(), row, strict=True):
                column.append(value)
    return Table(rows, "Exponent of the emergence times when another alignment counts as learned.")
