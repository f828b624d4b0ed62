"""Why Larger Models Learn More: width decides which features of which tasks are kept, and whether
rare ones are retained.

Two parts: a mixture of linear regressions, where the theory of `tasks.regression` says everything
in advance (claims a to f, here), and small language models with an injected task (claims g to l, in
`capacity_language`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechint.results import Table
from mechint.studies.capacity import figures as drawn
from mechint.studies.capacity import language as language
from mechint.studies.capacity.measures import HALF, held, residual_of, share_as_predicted
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
from mechint.training import Run

CELLS = 0.95
"""Share of (width, task) cells that must be as predicted; the rest is left to features whose
utilities nearly tie.
"""

MASS = 0.75
"""The frequent tasks are the smallest set of most frequent ones with this much of the prior, as in
the source.
"""

MASSES = (0.5, 0.75, 0.9)
"""Other such sets, for the sensitivity rows."""

GAP = 16
"""The gap at which widths are compared, in steps between showings of the rare task."""

CLAIMS = {
    claim.letter: claim
    for claim in (
        Stated(
            "a",
            (
                "Features are learned in the order of their utility, p_t λ_tj, not of frequency "
                "or of spectrum alone."
            ),
            "Theorem 3 and Fig. 2",
            "At least 95 % of the cells (width, task, seed) hold a number of features within "
            "half of the prediction; for each of the two other orders, "
            "task frequency alone and spectrum alone, fewer than 80 % do.",
            (
                "Theorem 3 is exact at the optimum. Any two orders agree at the smallest and the "
                "largest widths, so the others cannot be at 0."
            ),
        ),
        Stated(
            "b",
            (
                "Every task has the critical width that its utilities predict; with one feature a "
                "task this is a linear staircase."
            ),
            "Theorem 3 and Fig. 2: larger models learn infrequent tasks",
            "Of the tasks, at least 95 % are first held (half a feature) at exactly the first "
            "trained width that is no smaller than predicted, "
            "both with several features a task and with one.",
            (
                "Between trained widths a critical width cannot be told apart; a shift by one "
                "trained width already fails the cell."
            ),
        ),
        Stated(
            "c",
            (
                "Rare tasks get signal only when the frequent tasks' residual has fallen below "
                "the threshold."
            ),
            "Proposition 6 and Fig. 3, frequent tasks of prior mass 0.75",
            "In every run where a rare task holds half a feature, the frequent tasks' "
            "residual is at most Σ μ_i over their utilities μ_i below the rare "
            "task's first one, plus 5 % of their total; and every rare task is held at some width.",
            (
                "A width optimum that holds the rare feature has kept every frequent one of "
                "larger utility (Proposition 6); 5 % allows for unfinished features."
            ),
        ),
        Stated(
            "d",
            (
                "At matched frequency a wider model retains more of a rare task across the gaps "
                "between its showings."
            ),
            "Fig. 4: the decay with the gap is far steeper for smaller models",
            "At a gap of 16 steps the rare task's features (mean over seeds) do not fall by "
            "more than 0.1 from one width to the next, and the widest "
            "model holds at least one more than the narrowest; at every width the largest gap "
            "leaves no more than the smallest.",
            "One feature is far above the spread over seeds; 0.1 is that spread.",
        ),
        Stated(
            "e",
            "Ten times more data does not close the gap to a wider model.",
            "Fig. 21: no improvement up to ten times longer",
            (
                "No width reaches, with ten times the steps, the loss of the next larger width "
                "with the steps once (means over seeds)."
            ),
            "Neighbouring trained widths are the hardest case.",
        ),
        Stated(
            "f",
            (
                "The same holds when tasks differ in complexity: spectra that fall more slowly "
                "need more width."
            ),
            "App. D: complexity modulated by varying β",
            (
                "With β falling from the most frequent task to the rarest, at least 95 % of the "
                "cells are within half a feature of the prediction."
            ),
            "As in (a).",
        ),
    )
}


@dataclass(frozen=True)
class Budget:
    """What a size trains on the regressions. steps: of the population gradient; data_steps: of
    stochastic runs, and ten times as many.
    """

    widths: tuple[int, ...]
    seeds: int
    steps: int
    staircase: int
    gaps: tuple[int, ...]
    gap_widths: tuple[int, ...]
    gap_steps: int
    data_widths: tuple[int, ...]
    data_steps: int
    task: Mapping[str, Any]
    batch_size: int = 128


SMALL = {"n": 64, "n_tasks": 8, "rank": 8}
BUDGETS = {
    "smoke": Budget(
        (1, 4), 1, 20, 3, (1, 2), (2, 4), 10, (2, 4), 2, {"n": 8, "n_tasks": 3, "rank": 2}, 16
    ),
    "laptop": Budget(
        (1, 2, 3, 4, 6, 8, 11, 14, 18, 22, 27, 32, 38, 44, 50, 56),
        3,
        2500,
        16,
        (1, GAP, 64),
        (24, 40, 56, 60),
        6000,
        (8, 16, 24, 40),
        800,
        SMALL,
    ),
    "full": Budget(
        (1, 2, 3, 4, 6, 8, 11, 14, 18, 22, 27, 32, 38, 44, 50, 56),
        10,
        8000,
        16,
        (1, 4, GAP, 64, 256),
        (16, 24, 32, 40, 48, 56, 60),
        20000,
        (8, 16, 24, 32, 40, 48, 56),
        8000,
        SMALL,
        256,
    ),
}

OPTIMISERS: Mapping[str, Mapping[str, Any]] = {
    "Adam, clipped": {},
    "SGD, clipped": {"optimizer": "sgd", "lr": 0.1, "schedule": "constant"},
    "SGD, batch size fixed": {"optimizer": "sgd", "lr": 0.1, "schedule": "constant", "clip": None},
}
"""What the effect of gaps may depend on; the last averages an enlarged batch over the usual size,
so that nothing shrinks its step.
"""


class Capacity(Study):
    """Linear regressions that compete for width, and language models that do."""

    name = "capacity"
    title = "Why larger models learn more"
    summary = (
        "A model of limited width keeps the features of largest utility: frequency times how "
        "much they explain. What frequent tasks leave unexplained "
        "pulls the width away from rare ones, so rare tasks are learned, and retained between "
        "showings, only by wider models. More data does not "
        "change this; language models with an injected task show the same."
    )

    def runs(self, size: str) -> list[Planned]:
        """The regressions, with their gaps, data and optimisers, and the language models."""
        budget = BUDGETS[size]
        return [
            *_phase(budget),
            *_retention(budget),
            *_data(budget),
            *_optimisers(budget),
            *language.runs(size),
        ]

    def analyse(self, runs: Runs, size: str) -> Analysis:
        """Judge claims a to f on the regressions and g to l on the language models."""
        book = Analysis(self.name, size)
        book.judge(CLAIMS["a"], lambda: _order(runs))
        book.judge(CLAIMS["b"], lambda: _critical(runs))
        book.judge(CLAIMS["c"], lambda: _residuals(runs))
        book.judge(CLAIMS["d"], lambda: _retained(runs))
        book.judge(CLAIMS["e"], lambda: _more_data(runs))
        book.judge(CLAIMS["f"], lambda: _complexity(runs))
        language.judge(book, runs)
        book.draw("Phase diagram", lambda: drawn.phase(runs))
        book.draw("Staircase", lambda: drawn.staircase(runs))
        book.draw("Residual and rare tasks", lambda: drawn.residuals(runs, MASS))
        book.draw("Retention", lambda: drawn.retention(runs))
        book.draw("Retention over time", lambda: drawn.retention_curves(runs))
        book.draw("Ten times the data", lambda: drawn.data(runs))
        language.draw(book, runs)
        book.vary("Optimiser and gap", lambda: _optimiser_table(runs))
        book.vary("Which tasks are frequent", lambda: _mass_table(runs))
        return book


# --- the runs -------------------------------------------------------------------------------------
def _phase(budget: Budget) -> list[Planned]:
    """Every width on the population gradient: the mixture, one feature a task, spectra of differing
    complexity.
    """
    most = budget.staircase
    single = {**budget.task, "n_tasks": most, "rank": 1, "n": max(most, budget.task["n"])}
    arms = {
        "phase": (budget.widths, {**budget.task, "alpha": 1.0, "beta": 0.7}),
        "staircase": (tuple(range(1, most + 1)), {**single, "alpha": 1.0}),
        "complexity": (
            budget.widths,
            {**budget.task, "alpha": 0.3, "beta": 1.5, "beta_rarest": 0.4},
        ),
    }
    planned = []
    for arm, (widths, task) in arms.items():
        train = {
            "steps": budget.steps,
            "batch_size": None,
            "evaluate_every": max(1, budget.steps // 50),
        }
        for width in widths:
            for seed in range(budget.seeds):
                planned.append(
                    _planned(f"{arm}-width{width}", task, width, max(widths), train, seed, arm=arm)
                )
    return planned


def _planned(
    name: str,
    task: Mapping[str, Any],
    width: int,
    columns: int,
    train: Mapping[str, Any],
    seed: int,
    **labels: Any,
) -> Planned:
    """A regression run; all widths of an arm have the same columns, and so train as one ensemble on
    the same data.
    """
    train = {**train, "data_seed": 0}
    return plan(
        name,
        "regression-mixture",
        task,
        {"width": width, "columns": columns},
        train,
        seed=seed,
        width=width,
        **labels,
    )


def _retention(budget: Budget) -> list[Planned]:
    train = {
        "steps": budget.gap_steps,
        "batch_size": budget.batch_size,
        "evaluate_every": max(1, budget.gap_steps // 150),
    }
    task = {**budget.task, "alpha": 1.0, "beta": 0.7}
    return [
        _planned(
            f"gap{gap}-width{width}",
            {**task, "gap": gap},
            width,
            max(budget.gap_widths),
            train,
            seed,
            arm="retention",
            gap=gap,
        )
        for gap in budget.gaps
        for width in budget.gap_widths
        for seed in range(budget.seeds)
    ]


def _data(budget: Budget) -> list[Planned]:
    planned = []
    for factor in (1, 10):
        train = {
            "steps": factor * budget.data_steps,
            "batch_size": budget.batch_size,
            "evaluate_every": factor * max(1, budget.data_steps // 20),
        }
        for width in budget.data_widths:
            for seed in range(min(budget.seeds, 2)):
                task = {**budget.task, "alpha": 1.0, "beta": 0.7}
                planned.append(
                    _planned(
                        f"data{factor}-width{width}",
                        task,
                        width,
                        max(budget.data_widths),
                        train,
                        seed,
                        arm="data",
                        factor=factor,
                    )
                )
    return planned


def _optimisers(budget: Budget) -> list[Planned]:
    """The second largest width at both ends of the gaps, under every optimiser but the one that
    `_retention` has.
    """
    planned, width = [], budget.gap_widths[-2]
    for name, settings in OPTIMISERS.items():
        fixed = {"normalisation": "fixed"} if "fixed" in name else {}
        for gap in (min(budget.gaps), max(budget.gaps)) if settings else ():
            train = {
                "steps": budget.gap_steps,
                "batch_size": budget.batch_size,
                "evaluate_every": budget.gap_steps,
                **settings,
            }
            task = {**budget.task, "alpha": 1.0, "beta": 0.7, "gap": gap, **fixed}
            folder = name.lower().replace(", ", "-").replace(" ", "-")
            planned += [
                _planned(
                    f"{folder}-gap{gap}",
                    task,
                    width,
                    width,
                    train,
                    seed,
                    arm="optimiser",
                    optimiser=name,
                    gap=gap,
                )
                for seed in range(2)
            ]
    return planned


# --- the claims -----------------------------------------------------------------------------------
def _order(runs: Runs) -> Finding:
    group = runs.select(arm="phase")
    shares = {
        order: share_as_predicted(group, order) for order in ("utility", "frequency", "spectrum")
    }
    holds = shares["utility"] >= CELLS and max(shares["frequency"], shares["spectrum"]) < 0.8
    words = ", ".join(f"by {order} {share:.1%}" for order, share in shares.items())
    return Finding(holds, f"Cells as predicted: {words} ({len(group)} runs).", {"shares": shares})


def _critical_share(runs: Runs, arm: str) -> float:
    """Share of (task, seed) that are first held at the first trained width from the critical one
    on.
    """
    widths, right = sorted(runs.values_of("width", arm=arm)), []
    for seed in runs.values_of("seed", arm=arm):
        group = sorted(runs.select(arm=arm, seed=seed), key=lambda run: model_of(run).width)
        table = np.stack([held(run) for run in group])
        for t in range(table.shape[1]):
            wanted = next(
                (width for width in widths if width >= task_of(group[0]).critical_width(t)), None
            )
            found = next(
                (width for width, value in zip(widths, table[:, t], strict=True) if value >= HALF),
                None,
            )
            right.append(found == wanted)
    return float(np.mean(right))


def _critical(runs: Runs) -> Finding:
    shares = {arm: _critical_share(runs, arm) for arm in ("phase", "staircase")}
    ours = (
        f"Critical width as predicted for {shares['phase']:.1%} of the tasks; on the staircase "
        f"of one feature a task {shares['staircase']:.1%}."
    )
    return Finding(min(shares.values()) >= CELLS, ours, {"shares": shares})


def _threshold_kept(run: Run, mass: float) -> list[tuple[bool, bool]]:
    """(held, residual below the threshold) for every rare task."""
    task, result = task_of(run), []
    rho, values, spectrum = residual_of(run, mass), held(run), task.common_spectrum(mass)
    for t in range(task.n_tasks):
        if t not in task.common(mass):
            limit = float(spectrum[spectrum < task.utilities[t, 0]].sum()) + 0.05 * float(
                spectrum.sum()
            )
            result.append((bool(values[t] >= HALF), rho <= limit))
    return result


def _residual_counts(runs: Runs, mass: float) -> tuple[int, int, bool]:
    """Rare (task, run) that are held; of these, with the residual above the threshold; whether
    every rare task is held somewhere.
    """
    table = [_threshold_kept(run, mass) for run in runs.select(arm="phase")]
    cells = [cell for row in table for cell in row]
    somewhere = all(any(row[t][0] for row in table) for t in range(len(table[0])))
    return (
        sum(holds for holds, _ in cells),
        sum(holds and not below for holds, below in cells),
        somewhere,
    )


def _residuals(runs: Runs) -> Finding:
    count, violations, somewhere = _residual_counts(runs, MASS)
    ours = (
        f"{count} rare (task, run) are held, {violations} of them with the frequent residual "
        "above the threshold."
    )
    return Finding(
        violations == 0 and somewhere,
        ours,
        {
            "held": count,
            "above the threshold": violations,
            "every rare task held at some width": somewhere,
        },
    )


def _rare(runs: Runs, **labels: Any) -> list[float]:
    """Features of the rarest task at the end, one value a seed."""
    return [float(held(run)[-1]) for run in runs.select(**labels)]


def _retained(runs: Runs) -> Finding:
    gaps, widths = runs.values_of("gap", arm="retention"), runs.values_of("width", arm="retention")
    middle = GAP if GAP in gaps else gaps[-1]
    table = {
        gap: [
            float(np.mean(_rare(runs, arm="retention", gap=gap, width=width))) for width in widths
        ]
        for gap in gaps
    }
    at = table[middle]
    rising = all(b >= a - 0.1 for a, b in itertools.pairwise(at)) and at[-1] >= at[0] + 1
    falling = all(
        last <= first + 0.1 for first, last in zip(table[min(gaps)], table[max(gaps)], strict=True)
    )
    words = ", ".join(
        f"{mean_and_spread(_rare(runs, arm='retention', gap=middle, width=width))} at width {width}"
        for width in widths
    )
    note = "The effect depends on the optimiser: see the sensitivity rows."
    return Finding(
        rising and falling,
        f"Rare features held at a gap of {middle} steps: {words}.",
        {"widths": widths, "features": table},
        note,
    )


def _more_data(runs: Runs) -> Finding:
    widths = runs.values_of("width", arm="data")
    losses = {
        f: [
            float(
                np.mean(
                    [
                        run.final["test.loss"]
                        for run in runs.select(arm="data", factor=f, width=width)
                    ]
                )
            )
            for width in widths
        ]
        for f in (1, 10)
    }
    pairs = list(zip(losses[10][:-1], losses[1][1:], strict=True))
    words = ", ".join(
        f"{widths[i]} × 10: {a:.3f} against {widths[i + 1]}: {b:.3f}"
        for i, (a, b) in enumerate(pairs)
    )
    return Finding(
        all(a > b for a, b in pairs),
        f"Loss of a width with ten times the data against the next width: {words}.",
        {"widths": widths, "losses": losses},
    )


def _complexity(runs: Runs) -> Finding:
    share = share_as_predicted(runs.select(arm="complexity"))
    return Finding(share >= CELLS, f"{share:.1%} of the cells as predicted.", {"share": share})


# --- sensitivity ----------------------------------------------------------------------------------
def _optimiser_table(runs: Runs) -> Table:
    gaps = runs.values_of("gap", arm="retention")
    width = runs.values_of("width", arm="retention")[-2]
    rows: dict[str, list[Any]] = {
        "optimiser": [],
        **{f"gap {gap}": [] for gap in (min(gaps), max(gaps))},
    }
    for name, settings in OPTIMISERS.items():
        arm: dict[str, Any] = (
            {"arm": "optimiser", "optimiser": name}
            if settings
            else {"arm": "retention", "width": width}
        )
        rows["optimiser"].append(name)
        for gap in (min(gaps), max(gaps)):
            rows[f"gap {gap}"].append(mean_and_spread(_rare(runs, **arm, gap=gap)))
    return Table(
        rows,
        (
            f"Features of the rarest task held at width {width}, by the optimiser, at the "
            "smallest and the largest gap."
        ),
    )


def _mass_table(runs: Runs) -> Table:
    rows: dict[str, list[Any]] = {
        "prior mass": [],
        "frequent tasks": [],
        "held": [],
        "held above the threshold": [],
    }
    for mass in MASSES:
        count, violations, _ = _residual_counts(runs, mass)
        row = (mass, len(task_of(runs.select(arm="phase")[0]).common(mass)), count, violations)
        for column, value in zip(rows.values(), row, strict=True):
            column.append(value)
    return Table(rows, "Claim (c) when another set of tasks counts as frequent.")
