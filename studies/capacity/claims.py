"""The claims of the capacity study."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mechint.studies.capacity.language import LEARNED, OPERANDS
from mechint.studies.capacity.regressions import HALF
from mechint.studies.claims import (
    ClaimTest,
    Found,
    PositiveControl,
    above,
    below,
    claim,
    control_of,
)
from mechint.studies.rows import NoRunsError, Row, Rows
from mechint.studies.statistics import Planned, mean, pooled_share, share, slope

TIE = 0.05
"""Share by which two utilities differ that Theorem 3 is not asked to choose between."""

SHARE = (0.0, 1.0)
"""Between what a share and its mean over seeds lie."""

OPTIMUM = "in at least 95% of the runs the loss is at most 2% above Σ_{i>m} u_(i)"

# --- regressions on the population gradient -------------------------------------------------------


def at_optimum(rows: Rows) -> PositiveControl:
    """The control of what is read from an optimum, which an untrained encoder fails."""
    return control_of([row["excess"] <= 0.02 for row in rows], 0.95)


def by_seed(rows: Rows, value: Callable[[Rows], float]) -> list[float]:
    """A value of the rows of every seed."""
    return [value(of) for of in rows.by("seed").values()]


def cells(rows: Rows, arm: str, order: str) -> Found:
    """Share of cells (width, task) as an order predicts, seed by seed."""
    runs = rows.where(arm=arm)
    return Found(
        mean(by_seed(runs, lambda of: float(np.mean(of.column(f"by_{order}")))), SHARE),
        at_optimum(runs),
    )


@claim(
    "a1",
    "Features are learned in the order of their utility p_t λ_tj.",
    theirs="Theorem 3, Fig. 2",
    statistic="share of cells (width, task) within half a feature of the prediction, by seed,",
    bar=above(0.95),
    control=OPTIMUM,
    planned=Planned(8, 0.985, 0.015),
)
def by_utility(rows: Rows) -> Found:
    return cells(rows, "phase", "utility")


@claim(
    "a2",
    "Task frequency alone does not give the order.",
    theirs="Theorem 3",
    statistic="share of cells within half a feature of what frequency predicts, by seed,",
    bar=below(0.8),
    control=OPTIMUM,
    planned=Planned(8, 0.56, 0.02),
)
def by_frequency(rows: Rows) -> Found:
    return cells(rows, "phase", "frequency")


@claim(
    "a3",
    "Spectrum alone does not give the order.",
    theirs="Theorem 3",
    statistic="share of cells within half a feature of what the spectrum predicts, by seed,",
    bar=below(0.8),
    control=OPTIMUM,
    planned=Planned(8, 0.32, 0.02),
)
def by_spectrum(rows: Rows) -> Found:
    return cells(rows, "phase", "spectrum")


def critical_share(rows: Rows) -> float:
    """Share of the tasks first held at the first trained width from the critical one on, in one
    seed's runs; widths that decide between two utilities within TIE are left out.
    """
    runs = sorted((row for row in rows if row["tie"] >= TIE), key=lambda row: row["width"])
    right = []
    for t, critical in enumerate(runs[0]["critical"]):
        wanted = next((row["width"] for row in runs if row["width"] >= critical), None)
        found = next((row["width"] for row in runs if row["held"][t] >= HALF), None)
        right.append(found == wanted)
    return float(np.mean(right))


@claim(
    "b1",
    "Every task has the critical width that its utilities predict.",
    theirs="Theorem 3, Fig. 2: larger models learn infrequent tasks",
    statistic="share of tasks first held at the first trained width from the predicted one on, "
    "widths with tied utilities (5%) left out, by seed,",
    bar=above(0.95),
    control=OPTIMUM,
    planned=Planned(8, 1.0, 0.02),
)
def critical_width(rows: Rows) -> Found:
    runs = rows.where(arm="phase")
    return Found(mean(by_seed(runs, critical_share), SHARE), at_optimum(runs))


@claim(
    "b2",
    "With one feature a task the critical widths are a linear staircase.",
    theirs="Fig. 18: rank-1 staircase",
    statistic="share of tasks first held at the predicted width, by seed,",
    bar=above(0.95),
    control=OPTIMUM,
    planned=Planned(24, 0.984, 0.044),
    fresh=True,
)
def staircase(rows: Rows) -> Found:
    runs = rows.where(arm="staircase")
    return Found(mean(by_seed(runs, critical_share), SHARE), at_optimum(runs))


@claim(
    "c",
    "A rare task gets signal only when the frequent tasks' residual is below the threshold.",
    theirs="Proposition 6, Fig. 3",
    statistic="of (run, checkpoint, rare task) that hold half a feature more than at the start, "
    "the share with the residual above, all seeds together, bootstrap over seeds,",
    bar=below(0.05),
    control="in every seed rare tasks are held before the last checkpoint, and residuals above "
    "the threshold are seen",
    cost="0.2 core-hours: 24 seeds of 16 widths",
    fresh=True,
)
def residual_threshold(rows: Rows) -> Found:
    runs = rows.where(arm="training")
    counts = [
        (sum(of.column("held_above")), sum(of.column("rare_held")))
        for of in runs.by("seed").values()
    ]
    seen = [
        sum(of.column("held_early")) > 0 and sum(of.column("above")) > 0
        for of in runs.by("seed").values()
    ]
    return Found(pooled_share(counts), control_of(seen))


@claim(
    "f1",
    "The order of utility holds where rarer tasks are more complex.",
    theirs="App. D, Fig. 12 to 14: complexity by β",
    statistic="share of cells within half a feature, β from 1.5 to 0.4 over the tasks, by seed,",
    bar=above(0.95),
    control=OPTIMUM,
    planned=Planned(8, 0.99, 0.012),
)
def complexity(rows: Rows) -> Found:
    return cells(rows, "complexity", "utility")


@claim(
    "f2",
    "The order of utility holds for priors that fall as t^-0.5 and t^-1.5.",
    theirs="App. E, Fig. 17, 19: sweep of α",
    statistic="share of cells within half a feature, lower of both α, by seed,",
    bar=above(0.95),
    control=OPTIMUM,
    planned=Planned(4, 0.985, 0.012),
)
def alphas(rows: Rows) -> Found:
    arms = [rows.where(arm=f"alpha{alpha}") for alpha in ("0.5", "1.5")]
    shares = [by_seed(runs, lambda of: float(np.mean(of.column("by_utility")))) for runs in arms]
    return Found(mean(np.min(shares, 0).tolist(), SHARE), at_optimum(Rows([*arms[0], *arms[1]])))


# --- gaps, optimizers and data --------------------------------------------------------------------


def slope_over_gap(rows: Rows, column: Callable[[Row], float]) -> float:
    """Slope over log₂ gap of a column as a share of its value at the smallest gap, in the runs of
    one seed and width.
    """
    runs = sorted(rows, key=lambda row: row["gap"])
    first = max(HALF, column(runs[0]))
    gaps = [math.log2(row["gap"]) for row in runs]
    return slope(gaps, [column(row) / first for row in runs])


def slopes(rows: Rows, arm: str, column: Callable[[Row], float]) -> list[float]:
    """Seed by seed, the slope of the widest less that of the narrowest; the smallest gap of
    `weighted` is that of `retention`, where no batch is enlarged.
    """
    runs = list(rows.where(arm=arm))
    if arm == "weighted":
        runs += [row for row in rows.where(arm="retention") if row["gap"] == 1]
    found = []
    for of in Rows(runs).by("seed").values():
        by_width = of.by("width")
        widest, narrowest = by_width[max(by_width)], by_width[min(by_width)]
        found.append(slope_over_gap(widest, column) - slope_over_gap(narrowest, column))
    return found


def rare(row: Row) -> float:
    """Features of the rarest task."""
    return float(row["held"][-1])


def held_at_first(rows: Rows) -> PositiveControl:
    """At the smallest gap the widest model holds a feature of the rare task."""
    runs = rows.where(arm="retention", gap=1)
    widest = max(runs.values_of("width"))
    most = float(np.mean([rare(row) for row in runs.where(width=widest)]))
    return PositiveControl(most >= 1, f"{most:.2f} held at width {widest}")


@claim(
    "d1",
    "A rare task's features fall with the gap more steeply in a narrow model.",
    theirs="Fig. 4: the rare signal decays with the gap, far more steeply for smaller models",
    statistic="slope over log₂ gap of the share held, widest minus narrowest, by seed,",
    bar=above(0),
    control="at gap 1 the widest holds at least one feature",
    planned=Planned(8, 0.15, 0.05),
)
def retained(rows: Rows) -> Found:
    return Found(mean(slopes(rows, "retention", rare)), held_at_first(rows))


@claim(
    "d2",
    "A narrow model loses more than its capacity explains, at fixed weight of the burst.",
    theirs="Fig. 4, read as forgetting",
    statistic="the same difference of slopes, less that of the features which Theorem 3 leaves,",
    bar=above(0),
    control="at gap 1 the widest holds at least one feature",
    planned=Planned(8, 0.06, 0.05),
)
def beyond_capacity(rows: Rows) -> Found:
    ours = slopes(rows, "weighted", rare)
    free = slopes(rows, "weighted", lambda row: float(row["allowed"]))
    return Found(mean([a - b for a, b in zip(ours, free, strict=True)]), held_at_first(rows))


def lost_at(rows: Rows, optimizer: str) -> list[float]:
    """Rare features at the smallest gap less those at the largest, seed by seed."""
    runs = rows.where(arm="optimizer", optimizer=optimizer)
    ends = [runs.where(gap=gap) for gap in (min(runs.values_of("gap")), max(runs.values_of("gap")))]
    return [rare(a) - rare(b) for a, b in zip(*ends, strict=True)]


@claim(
    "d3",
    "The gap costs features where neither clipping nor burst size shrinks the update.",
    theirs="Fig. 4, by AdamW with clipping",
    statistic="rare features at gap 1 less at gap 32, Adam, unclipped, batch size fixed, by seed,",
    bar=above(0.5),
    control="with clipping and the burst's own size it costs more than 0.5",
    planned=Planned(8, 2.0, 0.5),
)
def without_clipping(rows: Rows) -> Found:
    usual = mean(lost_at(rows, "Adam, clipped"))
    others = {
        name: float(np.mean(lost_at(rows, name)))
        for name in rows.where(arm="optimizer").values_of("optimizer")
    }
    words = ", ".join(f"{name} {value:.2f}" for name, value in others.items())
    return Found(
        mean(lost_at(rows, "Adam, batch size fixed")),
        PositiveControl(usual.low > 0.5, f"clipped {usual}"),
        f"features lost: {words}",
    )


def above_capacity(rows: Rows, test: Callable[[Row, Row, list[int]], bool]) -> list[bool]:
    """Seed and width with tasks above capacity → whether the test of (once, ten times, those tasks)
    holds of them.
    """
    runs = rows.where(arm="data")
    once, ten = runs.where(factor=1), runs.where(factor=10)
    flags = []
    for first, last in zip(once, ten, strict=True):
        tasks = [t for t, wanted in enumerate(first["critical"]) if wanted > first["width"]]
        if tasks and first["width"] < max(runs.values_of("width")):
            flags.append(test(first, last, tasks))
    return flags


def widest_learns(rows: Rows) -> PositiveControl:
    """The widest model holds half a feature of each task with a critical width up to its own."""
    runs = rows.where(arm="data", factor=10)
    widest = runs.where(width=max(runs.values_of("width")))
    return control_of(
        [
            all(
                one >= HALF
                for one, wanted in zip(row["held"], row["critical"], strict=True)
                if wanted <= row["width"]
            )
            for row in widest
        ]
    )


@claim(
    "e1",
    "With ten times the data tasks above capacity stay at or below a random projection.",
    theirs="Fig. 21: at or below the random projection",
    statistic="share of (seed, width) in which one holds more than rank × width / n",
    bar=below(0.2),
    control="the widest model holds half a feature of each task within its capacity",
    planned=Planned(24, 0.0),
)
def no_more_than_random(rows: Rows) -> Found:
    more = above_capacity(
        rows, lambda _, last, tasks: max(last["held"][t] for t in tasks) > last["random"]
    )
    return Found(share(more), widest_learns(rows))


@claim(
    "e2",
    "Ten times the data teaches no task above capacity.",
    theirs="Fig. 21: the gap does not slowly close",
    statistic="share of (seed, width) in which one passes half a feature only with ten times,",
    bar=below(0.2),
    control="the widest model holds half a feature of each task within its capacity",
    planned=Planned(24, 0.0),
)
def none_anew(rows: Rows) -> Found:
    taught = above_capacity(
        rows,
        lambda once, last, tasks: any(once["held"][t] < HALF <= last["held"][t] for t in tasks),
    )
    return Found(share(taught), widest_learns(rows))


# --- language models ------------------------------------------------------------------------------


def paired(
    rows: Rows, value: Callable[[Row], float], *signed: tuple[int, dict[str, Any]]
) -> list[float]:
    """Seed by seed, a signed sum of means of a value over the runs with some labels."""
    models = rows.where(arm="language")
    return [
        sum(
            sign * float(np.mean([value(row) for row in of.where(**labels)]))
            for sign, labels in signed
        )
        for of in models.by("seed").values()
    ]


def ends(rows: Rows, label: str) -> tuple[Any, Any]:
    """The smallest and the largest value of a label among the language models."""
    values = rows.where(arm="language").values_of(label)
    return min(values), max(values)


def learned_where_frequent(rows: Rows) -> PositiveControl:
    """At the highest frequency the widest model learns the task, on average."""
    labels = {"frequency": ends(rows, "frequency")[1], "width": ends(rows, "width")[1]}
    found = float(np.mean(rows.where(arm="language", **labels).column("accuracy")))
    return PositiveControl(found >= LEARNED, f"accuracy {found:.2f}")


def accuracy(row: Row) -> float:
    """Last accuracy on held-out instances."""
    return float(row["accuracy"])


@claim(
    "g",
    "Larger language models learn rarer tasks.",
    theirs="Fig. 5: 4M to 4B parameters, 1,000 instances a batch to one every ten batches",
    statistic="accuracy, widest minus narrowest at the lowest frequency minus at the highest,",
    bar=above(0),
    control="at the highest frequency the widest model has learned on average",
    planned=Planned(8, 0.2, 0.08),
)
def rarer_tasks(rows: Rows) -> Found:
    (narrow, wide), (low, high) = ends(rows, "width"), ends(rows, "frequency")
    gains = paired(
        rows,
        accuracy,
        (1, {"width": wide, "frequency": low}),
        (-1, {"width": narrow, "frequency": low}),
        (-1, {"width": wide, "frequency": high}),
        (1, {"width": narrow, "frequency": high}),
    )
    return Found(mean(gains), learned_where_frequent(rows))


@claim(
    "g2",
    "A gap between showings costs a narrow language model more.",
    theirs="Fig. 6b",
    statistic="accuracy at gap 1 minus at the largest, narrowest minus widest, by seed,",
    bar=above(0),
    control="at the highest frequency the widest model has learned on average",
    planned=Planned(8, 0.1, 0.083),
)
def gap_costs(rows: Rows) -> Found:
    (narrow, wide), (short, long) = ends(rows, "width"), ends(rows, "gap")
    costs = paired(
        rows,
        accuracy,
        (1, {"width": narrow, "gap": short}),
        (-1, {"width": narrow, "gap": long}),
        (-1, {"width": wide, "gap": short}),
        (1, {"width": wide, "gap": long}),
    )
    return Found(mean(costs), learned_where_frequent(rows))


def halfway(row: Row, name: str) -> float:
    """First step at which an accuracy is half-way from its first value to LEARNED."""
    values = row["curve"][name]
    bar = (values[0] + LEARNED) / 2
    steps = row["curve"]["step"]
    return min((s for s, at in zip(steps, values, strict=True) if at >= bar), default=math.inf)


@claim(
    "g3",
    "A frequent task of the language is learned before the injected rare one.",
    theirs="Fig. 6a: order of injected and reference tasks",
    statistic="share of runs at the lowest frequency in which the reference task (sums) is "
    "half-way first",
    bar=above(0.5),
    control="the reference task gets half-way in at least 90% of the runs",
    planned=Planned(48, 0.8),
)
def reference_first(rows: Rows) -> Found:
    runs = rows.where(arm="language", frequency=ends(rows, "frequency")[0])
    first = [halfway(row, "sums") < halfway(row, "task") for row in runs]
    seen = [math.isfinite(halfway(row, "sums")) for row in runs]
    return Found(share(first), control_of(seen, 0.9))


@claim(
    "h",
    "Larger models have more of the task's order in their representation.",
    theirs="Fig. 7: R² of the order from the top principal components",
    statistic="R² of the rank from three components of the words' embedding, words left out, "
    "widest minus narrowest at the lowest frequency, by seed,",
    bar=above(0.1),
    control="positive in the widest at the highest frequency, below 0.1 at the initial weights",
    planned=Planned(8, 1.0, 0.3),
)
def order_in_embedding(rows: Rows) -> Found:
    (narrow, wide), (low, high) = ends(rows, "width"), ends(rows, "frequency")
    gains = paired(
        rows,
        lambda row: float(row["r2"]),
        (1, {"width": wide, "frequency": low}),
        (-1, {"width": narrow, "frequency": low}),
    )
    widest = rows.where(arm="language", width=wide, frequency=high)
    top, start = (float(np.mean(widest.column(name))) for name in ("r2", "r2_untrained"))
    shown = f"{top:.2f} where frequent, {start:.2f} at the initial weights"
    return Found(mean(gains), PositiveControl(top > 0 and start < 0.1, shown))


def ratios(rows: Rows, name: str) -> list[float]:
    """Seed by seed, the widest model's cosine over the narrowest's, mean over the conditions in
    which both have checkpoints while they learn.
    """
    narrow, wide = ends(rows, "width")
    found = []
    for of in rows.where(arm="language").by("seed").values():
        pairs = [
            (a["cosines"][name], b["cosines"][name])
            for a in of.where(width=narrow)
            for b in of.where(width=wide, frequency=a["frequency"], gap=a["gap"])
            if a["cosines"] and b["cosines"]
        ]
        if pairs:
            small, large = np.mean(pairs, 0)
            found.append(float(large / small))
    if not found:
        raise NoRunsError("no condition has checkpoints before its models learn the task")
    return found


def own_tokens(rows: Rows) -> PositiveControl:
    """The task's own tokens have a positive cosine, by its interval over models."""
    models = [row for row in rows.where(arm="language") if row["cosines"]]
    found = mean([row["cosines"]["task"] for row in models])
    return PositiveControl(found.low > 0, f"task tokens {found}")


@claim(
    "i",
    "The background's gradient has a smaller cosine with the task's in larger models, beyond their "
    "number of dimensions.",
    theirs="Fig. 8, 9: high at injections, near zero between; collides at 20M parameters",
    statistic="mean absolute cosine while the task is not learned over the random level √(2/πN), "
    "widest over narrowest, by seed,",
    bar=below(1),
    control="the cosine of the task's own tokens is positive by its interval",
    planned=Planned(12, 0.83, 0.14),
    fresh=True,
)
def smaller_cosine(rows: Rows) -> Found:
    plain = float(np.mean(ratios(rows, "background")))
    note = f"the cosine itself, narrowest 1: {plain:.2f}"
    return Found(mean(ratios(rows, "over_random")), own_tokens(rows), note)


def interchange_claim(id: str, operand: str, name: str) -> ClaimTest:
    """Claim: a one-dimensional subspace holds an operand's rank."""

    @claim(
        id,
        f"Distributed alignment search finds the one-dimensional order of the {name} word.",
        theirs="App. B.4: 96%, one dimension of the residual stream of the first layer",
        statistic="interchange accuracy in the models that learned less that of the same search "
        "for permuted ranks, mean by seed,",
        bar=above(0.05),
        control="models of at least 6 seeds learned, and permuted ranks reach half or more",
        planned=Planned(10, 0.13, 0.04),
        fresh=True,
    )
    def judge(rows: Rows) -> Found:
        learned = Rows([row for row in rows.where(arm="language") if "interchange" in row])
        if not learned:
            raise NoRunsError("no model learned the task")

        def values(kind: str) -> list[float]:
            return by_seed(
                learned,
                lambda of: float(np.mean([row["interchange"][operand][kind] for row in of])),
            )

        found, permuted = values("iia"), values("permuted")
        beside = float(np.mean(permuted))
        met = len(found) >= 6 and beside >= 0.5
        shown = f"{np.mean(found):.2f} against {beside:.2f} permuted, {len(found)} seeds"
        gains = [a - b for a, b in zip(found, permuted, strict=True)]
        return Found(mean(gains, (-1, 1)), PositiveControl(met, shown))

    return judge


# --- at equal loss and compute --------------------------------------------------------------------


def at_equal_loss(rows: Rows, frequency: float) -> list[float]:
    """Seed by seed, accuracy of the widest less the narrowest model where each first has the
    largest loss on other tokens that every width reaches.
    """
    narrow, wide = ends(rows, "width")
    found = []
    for of in rows.where(arm="language", frequency=frequency, gap=1).by("seed").values():
        pair = [of.where(width=width)[0]["curve"] for width in (narrow, wide)]
        level = max(min(curve["other_loss"]) for curve in pair)
        at = [_at_loss(curve, level) for curve in pair]
        found.append(at[1] - at[0])
    return found


def _at_loss(curve: dict[str, Sequence[float]], level: float) -> float:
    """Accuracy where the loss on other tokens first falls to `level`, linear in between."""
    losses, accuracies = curve["other_loss"], curve["task"]
    at = next(i for i, loss in enumerate(losses) if loss <= level)
    if at == 0:
        return float(accuracies[0])
    part = (losses[at - 1] - level) / (losses[at - 1] - losses[at])
    return float(accuracies[at - 1] + part * (accuracies[at] - accuracies[at - 1]))


@claim(
    "k1",
    "At equal language-modeling loss sizes differ on a rare task.",
    theirs="Fig. 22: sizes part, smaller ones first",
    statistic="accuracy at equal loss on other tokens, widest minus narrowest, lowest frequency,",
    bar=above(0),
    control="at the highest frequency the widest model has learned on average",
    planned=Planned(12, 0.1, 0.08),
    fresh=True,
)
def rare_at_equal_loss(rows: Rows) -> Found:
    return Found(
        mean(at_equal_loss(rows, ends(rows, "frequency")[0])), learned_where_frequent(rows)
    )


@claim(
    "k2",
    "At equal language-modeling loss sizes lie on one curve while the task is frequent.",
    theirs="Fig. 22: one curve",
    statistic="the same difference at the highest frequency",
    bar=below(0.1),
    control="at the highest frequency the widest model has learned on average",
    planned=Planned(8, 0.0, 0.08),
)
def frequent_at_equal_loss(rows: Rows) -> Found:
    return Found(
        mean(at_equal_loss(rows, ends(rows, "frequency")[1])), learned_where_frequent(rows)
    )


@claim(
    "l",
    "At equal compute larger models have the lower loss on a rare task.",
    theirs="Fig. 23: 6 × parameters × tokens",
    statistic="loss on held-out answers at the narrowest model's last compute, widest minus "
    "narrowest, lowest frequency, by seed,",
    bar=below(0),
    control="at the highest frequency the widest model has learned on average",
    planned=Planned(8, -0.2, 0.15),
)
def at_equal_compute(rows: Rows) -> Found:
    narrow, wide = ends(rows, "width")
    found = []
    runs = rows.where(arm="language", frequency=ends(rows, "frequency")[0], gap=1)
    for of in runs.by("seed").values():
        small, large = of.where(width=narrow)[0], of.where(width=wide)[0]
        steps = small["curve"]["step"][-1] * small["parameters"] / large["parameters"]
        there = np.interp(steps, large["curve"]["step"], large["curve"]["task_loss"])
        found.append(float(there - small["curve"]["task_loss"][-1]))
    return Found(mean(found), learned_where_frequent(rows))


CLAIMS = (
    *(by_utility, by_frequency, by_spectrum, critical_width, staircase, residual_threshold),
    *(retained, beyond_capacity, without_clipping, no_more_than_random, none_anew),
    *(complexity, alphas, rarer_tasks, gap_costs, reference_first, order_in_embedding),
    smaller_cosine,
    *(
        interchange_claim(id, operand, name)
        for id, operand, name in zip(("j1", "j2"), OPERANDS, ("first", "second"), strict=True)
    ),
    *(rare_at_equal_loss, frequent_at_equal_loss, at_equal_compute),
)
