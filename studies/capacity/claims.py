"""The claims of the capacity study."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from mechint.studies.capacity.language import LEARNED, OPERANDS
from mechint.studies.capacity.regressions import HALF
from mechint.studies.claims import (
    ClaimTest,
    Sample,
    above,
    at_least,
    below,
    control_of,
    every,
    interval_above,
    value_in,
)
from mechint.studies.rows import NoRunsError, Row, Rows
from mechint.studies.statistics import Planned, mean, pooled_share, share, slope

TIE = 0.05
"""Share by which two utilities differ that Theorem 3 is not asked to choose between."""

SHARES = partial(mean, bounds=(0.0, 1.0))
"""The mean over seeds of what lies between 0 and 1."""


def at_ends(rows: Rows, **ends: Callable[[list[Any]], Any]) -> Rows:
    """The rows with the smallest or the largest value of each label.

    >>> [row["width"] for row in at_ends(Rows([{"width": 2}, {"width": 4}]), width=max)]
    [4]
    """
    for label, end in ends.items():
        rows = rows.where(**{label: end(rows.values_of(label))})
    return rows


def together(of: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Sequence[Any]]], Any]:
    """A function of the values of all seeds; NoRunsError where no seed has any."""

    def joined(lists: Sequence[Sequence[Any]]) -> Any:
        if not any(lists):
            raise NoRunsError("no run of any seed says anything")
        return of([value for each in lists for value in each])

    return joined


# --- regressions on the population gradient -------------------------------------------------------


def at_optimum(measure: Callable[[Rows], float], *arms: str) -> dict[str, Any]:
    """A share by seed, which is read from an optimum; an untrained encoder fails the control."""
    return {
        "samples": tuple(Sample(arm, measure, by="seed") for arm in arms),
        "estimator": lambda *of: SHARES(np.min(of, 0).tolist()),
        "control": "in at least 95% of the runs the loss is at most 2% above Σ_{i>m} u_(i)",
        "beside": (Sample(arms, lambda row: row["excess"] <= 0.02),),
        "check": partial(control_of, least=0.95),
    }


def cells(order: str, *arms: str) -> dict[str, Any]:
    """Share of cells (width, task) as an order predicts, the lowest of the arms seed by seed."""
    return at_optimum(lambda of: float(np.mean(of.column(f"by_{order}"))), *arms)


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


# --- gaps, optimizers and data --------------------------------------------------------------------


def rare(row: Row) -> float:
    """Features of the rarest task."""
    return float(row["held"][-1])


def steeper(rows: Rows, column: Callable[[Row], float]) -> float:
    """Slope over log₂ gap of a column as a share of its value at the smallest gap, of the widest
    models of a seed less that of the narrowest.
    """

    def slope_at(end: Callable[[list[Any]], Any]) -> float:
        runs = sorted(at_ends(rows, width=end), key=lambda row: row["gap"])
        first = max(HALF, column(runs[0]))
        return slope([math.log2(row["gap"]) for row in runs], [column(row) / first for row in runs])

    return slope_at(max) - slope_at(min)


HELD_AT_FIRST: Mapping[str, Any] = {
    "bar": above(0),
    "estimator": mean,
    "control": "at gap 1 the widest holds at least one feature",
    "beside": (
        Sample(
            "retention",
            lambda of: float(np.mean(list(map(rare, at_ends(of, width=max))))),
            by="arm",
            labels={"gap": 1},
        ),
    ),
    "check": value_in(1),
}


def lost_at(optimizer: str) -> Sample:
    """Rare features at the smallest gap less those at the largest, seed by seed."""

    def lost(of: Rows) -> float:
        (first,), (last,) = at_ends(of, gap=min), at_ends(of, gap=max)
        return rare(first) - rare(last)

    return Sample("optimizer", lost, by="seed", labels={"optimizer": optimizer})


def above_capacity(test: Callable[[Row, Row, list[int]], bool]) -> dict[str, Any]:
    """The share of widths with tasks above capacity of which a test of (once, ten times the data,
    those tasks) holds; the control, that the widest model holds the tasks within its capacity.
    """

    def flags(of: Rows) -> list[bool]:
        found, widest = [], max(of.values_of("width"))
        for once, ten in zip(of.where(factor=1), of.where(factor=10), strict=True):
            width = once["width"]
            tasks = [t for t, wanted in enumerate(once["critical"]) if wanted > width]
            if tasks and width < widest:
                found.append(test(once, ten, tasks))
        return found

    def learns(of: Rows) -> bool:
        (row,) = at_ends(of, width=max)
        pairs = zip(row["held"], row["critical"], strict=True)
        return all(held >= HALF for held, wanted in pairs if wanted <= row["width"])

    return {
        "bar": below(0.2),
        "samples": (Sample("data", flags, by="seed"),),
        "estimator": together(share),
        "control": "the widest model holds half a feature of each task within its capacity",
        "beside": (Sample("data", learns, by="seed", labels={"factor": 10}),),
        "check": control_of,
        "planned": Planned(24, 0.0),
    }


# --- language models ------------------------------------------------------------------------------


def gain(of: Rows, name: str, **ends: Callable[[list[Any]], Any]) -> float:
    """A measure in the widest models of a seed less that in the narrowest, at ends of labels."""
    wide, narrow = (
        float(np.mean(at_ends(of, **ends, width=end).column(name))) for end in (max, min)
    )
    return wide - narrow


def of_language(measure: Callable[[Rows], Any], estimator: Any = mean) -> dict[str, Any]:
    """A measure of language models, seed by seed; the control, that at the highest frequency the
    widest model learns the task, on average.
    """

    def frequent(of: Rows) -> float:
        return float(np.mean(at_ends(of, frequency=max, width=max).column("accuracy")))

    return {
        "samples": (Sample("language", measure, by="seed"),),
        "estimator": estimator,
        "control": "at the highest frequency the widest model has learned on average",
        "beside": (Sample("language", frequent, by="arm"),),
        "check": value_in(LEARNED),
    }


def halfway(row: Row, name: str) -> float:
    """First step at which an accuracy is half-way from its first value to LEARNED."""
    values = row["curve"][name]
    bar = (values[0] + LEARNED) / 2
    steps = row["curve"]["step"]
    return min((s for s, at in zip(steps, values, strict=True) if at >= bar), default=math.inf)


def at_rare(measure: Callable[[Row], bool]) -> Sample:
    """A flag of the language models at the lowest frequency, seed by seed."""
    return Sample("language", lambda of: list(map(measure, at_ends(of, frequency=min))), by="seed")


def ratio_of_cosines(of: Rows) -> list[float]:
    """The widest model's cosine over the narrowest's, mean over the conditions of a seed in which
    both have checkpoints while they learn; empty where there is none.
    """
    narrow, wide = (at_ends(of, width=end) for end in (min, max))
    pairs = [
        (a["cosines"]["over_random"], b["cosines"]["over_random"])
        for a in narrow
        for b in wide
        if (a["frequency"], a["gap"]) == (b["frequency"], b["gap"])
        and a["cosines"]
        and b["cosines"]
    ]
    small, large = np.mean(pairs, 0) if pairs else (1.0, 1.0)
    return [float(large / small)] if pairs else []


def interchange_claim(id: str, operand: str, name: str) -> ClaimTest:
    """Claim: a one-dimensional subspace holds an operand's rank."""

    def measured(*signed: tuple[int, str]) -> Sample:
        def value(of: Rows) -> float:
            return sum(
                sign * float(np.mean([row["interchange"][operand][kind] for row in of]))
                for sign, kind in signed
            )

        return Sample("language", value, by="seed", only=lambda row: "interchange" in row)

    permuted = measured((1, "permuted"))
    return ClaimTest(
        id,
        f"Distributed alignment search finds the one-dimensional order of the {name} word.",
        theirs="App. B.4: 96%, one dimension of the residual stream of the first layer",
        statistic="interchange accuracy in the models that learned less that of the same search "
        "for permuted ranks, mean by seed,",
        bar=above(0.05),
        samples=(measured((1, "iia"), (-1, "permuted")),),
        estimator=partial(mean, bounds=(-1, 1)),
        control="models of at least 6 seeds learned, and permuted ranks reach half or more",
        beside=(permuted, permuted),
        check=every(at_least(6), value_in(0.5)),
        planned=Planned(10, 0.13, 0.04),
        fresh=True,
    )


# --- at equal loss and compute --------------------------------------------------------------------


def at_equal_loss(of: Rows, frequency: Callable[[list[Any]], Any]) -> float:
    """Accuracy of the widest less the narrowest model of a seed where each first has the largest
    loss on other tokens that every width reaches.
    """
    runs = at_ends(of.where(gap=1), frequency=frequency)
    narrow, wide = (at_ends(runs, width=end)[0]["curve"] for end in (min, max))
    level = max(min(curve["other_loss"]) for curve in (narrow, wide))
    return _at_loss(wide, level) - _at_loss(narrow, level)


def _at_loss(curve: dict[str, Sequence[float]], level: float) -> float:
    """Accuracy where the loss on other tokens first falls to `level`, linear in between."""
    losses, accuracies = curve["other_loss"], curve["task"]
    at = next(i for i, loss in enumerate(losses) if loss <= level)
    if at == 0:
        return float(accuracies[0])
    part = (losses[at - 1] - level) / (losses[at - 1] - losses[at])
    return float(accuracies[at - 1] + part * (accuracies[at] - accuracies[at - 1]))


def at_equal_compute(of: Rows) -> float:
    """Loss of the widest less the narrowest model of a seed at the narrowest one's last compute."""
    runs = at_ends(of.where(gap=1), frequency=min)
    small, large = (at_ends(runs, width=end)[0] for end in (min, max))
    steps = small["curve"]["step"][-1] * small["parameters"] / large["parameters"]
    there = np.interp(steps, large["curve"]["step"], large["curve"]["task_loss"])
    return float(there - small["curve"]["task_loss"][-1])


CLAIMS = (
    ClaimTest(
        "a1",
        "Features are learned in the order of their utility p_t λ_tj.",
        theirs="Theorem 3, Fig. 2",
        statistic="share of cells (width, task) within half a feature of the prediction, by seed,",
        bar=above(0.95),
        **cells("utility", "phase"),
        planned=Planned(8, 0.985, 0.015),
    ),
    ClaimTest(
        "a2",
        "Task frequency alone does not give the order.",
        theirs="Theorem 3",
        statistic="share of cells within half a feature of what frequency predicts, by seed,",
        bar=below(0.8),
        **cells("frequency", "phase"),
        planned=Planned(8, 0.56, 0.02),
    ),
    ClaimTest(
        "a3",
        "Spectrum alone does not give the order.",
        theirs="Theorem 3",
        statistic="share of cells within half a feature of what the spectrum predicts, by seed,",
        bar=below(0.8),
        **cells("spectrum", "phase"),
        planned=Planned(8, 0.32, 0.02),
    ),
    ClaimTest(
        "b1",
        "Every task has the critical width that its utilities predict.",
        theirs="Theorem 3, Fig. 2: larger models learn infrequent tasks",
        statistic="share of tasks first held at the first trained width from the predicted one on, "
        "widths with tied utilities (5%) left out, by seed,",
        bar=above(0.95),
        **at_optimum(critical_share, "phase"),
        planned=Planned(8, 1.0, 0.02),
    ),
    ClaimTest(
        "b2",
        "With one feature a task the critical widths are a linear staircase.",
        theirs="Fig. 18: rank-1 staircase",
        statistic="share of tasks first held at the predicted width, by seed,",
        bar=above(0.95),
        **at_optimum(critical_share, "staircase"),
        planned=Planned(24, 0.984, 0.044),
        fresh=True,
    ),
    ClaimTest(
        "c",
        "A rare task gets signal only when the frequent tasks' residual is below the threshold.",
        theirs="Proposition 6, Fig. 3",
        statistic="of (run, checkpoint, rare task) that hold half a feature more than at the "
        "start, the share with the residual above, all seeds together, bootstrap over seeds,",
        bar=below(0.05),
        samples=(
            Sample(
                "training",
                lambda of: (sum(of.column("held_above")), sum(of.column("rare_held"))),
                by="seed",
            ),
        ),
        estimator=pooled_share,
        control="in every seed rare tasks are held before the last checkpoint, and residuals above "
        "the threshold are seen",
        beside=(
            Sample(
                "training",
                lambda of: sum(of.column("held_early")) > 0 and sum(of.column("above")) > 0,
                by="seed",
            ),
        ),
        check=control_of,
        cost="0.2 core-hours: 24 seeds of 16 widths",
        fresh=True,
    ),
    ClaimTest(
        "d1",
        "A rare task's features fall with the gap more steeply in a narrow model.",
        theirs="Fig. 4: the rare signal decays with the gap, far more steeply for smaller models",
        statistic="slope over log₂ gap of the share held, widest minus narrowest, by seed,",
        samples=(Sample("retention", lambda of: steeper(of, rare), by="seed"),),
        **HELD_AT_FIRST,
        planned=Planned(8, 0.15, 0.05),
    ),
    ClaimTest(
        "d2",
        "A narrow model loses more than its capacity explains, at fixed weight of the burst.",
        theirs="Fig. 4, read as forgetting",
        statistic="the same difference of slopes, less that of the features which Theorem 3 "
        "leaves,",
        samples=(
            Sample(
                ("weighted", "retention"),  # at gap 1 no batch is enlarged: the two are one
                lambda of: steeper(of, rare) - steeper(of, lambda row: float(row["allowed"])),
                by="seed",
                only=lambda row: row["arm"] == "weighted" or row["gap"] == 1,
            ),
        ),
        **HELD_AT_FIRST,
        planned=Planned(8, 0.06, 0.05),
    ),
    ClaimTest(
        "d3",
        "The gap costs features where neither clipping nor burst size shrinks the update.",
        theirs="Fig. 4, by AdamW with clipping",
        statistic="rare features at gap 1 less at gap 32, Adam, unclipped, batch size fixed, by "
        "seed,",
        bar=above(0.5),
        samples=(lost_at("Adam, batch size fixed"),),
        estimator=mean,
        control="with clipping and the burst's own size it costs more than 0.5",
        beside=(lost_at("Adam, clipped"),),
        check=interval_above(0.5, mean),
        note=lambda rows: (
            "features lost: "
            + ", ".join(
                f"{name} {np.mean(lost_at(name)(rows)):.2f}"
                for name in rows.where(arm="optimizer").values_of("optimizer")
            )
        ),
        planned=Planned(8, 2.0, 0.5),
    ),
    ClaimTest(
        "e1",
        "With ten times the data tasks above capacity stay at or below a random projection.",
        theirs="Fig. 21: at or below the random projection",
        statistic="share of (seed, width) in which one holds more than rank × width / n",
        **above_capacity(lambda _, ten, tasks: max(ten["held"][t] for t in tasks) > ten["random"]),
    ),
    ClaimTest(
        "e2",
        "Ten times the data teaches no task above capacity.",
        theirs="Fig. 21: the gap does not slowly close",
        statistic="share of (seed, width) in which one passes half a feature only with ten times,",
        **above_capacity(
            lambda once, ten, tasks: any(once["held"][t] < HALF <= ten["held"][t] for t in tasks)
        ),
    ),
    ClaimTest(
        "f1",
        "The order of utility holds where rarer tasks are more complex.",
        theirs="App. D, Fig. 12 to 14: complexity by β",
        statistic="share of cells within half a feature, β from 1.5 to 0.4 over the tasks, by "
        "seed,",
        bar=above(0.95),
        **cells("utility", "complexity"),
        planned=Planned(8, 0.99, 0.012),
    ),
    ClaimTest(
        "f2",
        "The order of utility holds for priors that fall as t^-0.5 and t^-1.5.",
        theirs="App. E, Fig. 17, 19: sweep of α",
        statistic="share of cells within half a feature, lower of both α, by seed,",
        bar=above(0.95),
        **cells("utility", "alpha0.5", "alpha1.5"),
        planned=Planned(4, 0.985, 0.012),
    ),
    ClaimTest(
        "g",
        "Larger language models learn rarer tasks.",
        theirs="Fig. 5: 4M to 4B parameters, 1,000 instances a batch to one every ten batches",
        statistic="accuracy, widest minus narrowest at the lowest frequency minus at the highest,",
        bar=above(0),
        **of_language(
            lambda of: gain(of, "accuracy", frequency=min) - gain(of, "accuracy", frequency=max)
        ),
        planned=Planned(8, 0.2, 0.08),
    ),
    ClaimTest(
        "g2",
        "A gap between showings costs a narrow language model more.",
        theirs="Fig. 6b",
        statistic="accuracy at gap 1 minus at the largest, narrowest minus widest, by seed,",
        bar=above(0),
        **of_language(lambda of: gain(of, "accuracy", gap=max) - gain(of, "accuracy", gap=min)),
        planned=Planned(8, 0.1, 0.083),
    ),
    ClaimTest(
        "g3",
        "A frequent task of the language is learned before the injected rare one.",
        theirs="Fig. 6a: order of injected and reference tasks",
        statistic="share of runs at the lowest frequency in which the reference task (sums) is "
        "half-way first",
        bar=above(0.5),
        samples=(at_rare(lambda row: halfway(row, "sums") < halfway(row, "task")),),
        estimator=together(share),
        control="the reference task gets half-way in at least 90% of the runs",
        beside=(at_rare(lambda row: math.isfinite(halfway(row, "sums"))),),
        check=together(partial(control_of, least=0.9)),
        planned=Planned(48, 0.8),
    ),
    ClaimTest(
        "h",
        "Larger models have more of the task's order in their representation.",
        theirs="Fig. 7: R² of the order from the top principal components",
        statistic="R² of the rank from three components of the words' embedding, words left out, "
        "widest minus narrowest at the lowest frequency, by seed,",
        bar=above(0.1),
        samples=(Sample("language", lambda of: gain(of, "r2", frequency=min), by="seed"),),
        estimator=mean,
        control="positive in the widest at the highest frequency, below 0.1 at the initial weights",
        beside=tuple(
            Sample(
                "language",
                lambda of, name=name: float(
                    np.mean(at_ends(of, frequency=max, width=max).column(name))
                ),
                by="arm",
            )
            for name in ("r2", "r2_untrained")
        ),
        check=every(value_in(math.nextafter(0, 1)), value_in(-math.inf, math.nextafter(0.1, 0))),
        planned=Planned(8, 1.0, 0.3),
    ),
    ClaimTest(
        "i",
        "The background's gradient has a smaller cosine with the task's in larger models, beyond "
        "their number of dimensions.",
        theirs="Fig. 8, 9: high at injections, near zero between; collides at 20M parameters",
        statistic="mean absolute cosine while the task is not learned over the random level "
        "√(2/πN), widest over narrowest, by seed,",
        bar=below(1),
        samples=(Sample("language", ratio_of_cosines, by="seed"),),
        estimator=together(mean),
        control="the cosine of the task's own tokens is positive by its interval",
        beside=(
            Sample(
                "language",
                lambda row: row["cosines"]["task"],
                only=lambda row: bool(row["cosines"]),
            ),
        ),
        check=interval_above(0, mean),
        planned=Planned(12, 0.83, 0.14),
        fresh=True,
    ),
    *(
        interchange_claim(id, operand, name)
        for id, operand, name in zip(("j1", "j2"), OPERANDS, ("first", "second"), strict=True)
    ),
    ClaimTest(
        "k1",
        "At equal language-modeling loss sizes differ on a rare task.",
        theirs="Fig. 22: sizes part, smaller ones first",
        statistic="accuracy at equal loss on other tokens, widest minus narrowest, lowest "
        "frequency,",
        bar=above(0),
        **of_language(lambda of: at_equal_loss(of, min)),
        planned=Planned(12, 0.1, 0.08),
        fresh=True,
    ),
    ClaimTest(
        "k2",
        "At equal language-modeling loss sizes lie on one curve while the task is frequent.",
        theirs="Fig. 22: one curve",
        statistic="the same difference at the highest frequency",
        bar=below(0.1),
        **of_language(lambda of: at_equal_loss(of, max)),
        planned=Planned(8, 0.0, 0.08),
    ),
    ClaimTest(
        "l",
        "At equal compute larger models have the lower loss on a rare task.",
        theirs="Fig. 23: 6 × parameters × tokens",
        statistic="loss on held-out answers at the narrowest model's last compute, widest minus "
        "narrowest, lowest frequency, by seed,",
        bar=below(0),
        **of_language(at_equal_compute),
        planned=Planned(8, -0.2, 0.15),
    ),
)
