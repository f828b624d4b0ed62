"""The claims of the half-learned study: all are ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mechint.studies.claims import (
    ClaimTest,
    PositiveControl,
    Sample,
    above,
    at_least,
    below,
    every,
    interval_above,
    near,
    value_in,
)
from mechint.studies.half_learned.measures import FACTORS
from mechint.studies.rows import Row, Rows
from mechint.studies.statistics import Planned, bootstrap, mean

LEARNED = 0.9
"""Share of the held-out triplets with the right remainder from which a factor is learned."""

LEAST = 4
"""Half-learned models without which nothing is judged."""

COST = "0.4 core-hours: 32 runs"
Counts = dict[str, int]
TENTH, FIFTH = "triplets ADD", "triplets ADD, 200 held out"


def missing(row: Row) -> list[tuple[int, Counts]]:
    """The factors of the sum that a run has not learned, with their counts: fewer than LEARNED of
    the held-out triplets are right.
    """
    counts = [(m, row["factors"][str(m)]) for m in FACTORS]
    return [(m, of) for m, of in counts if of["test"] < LEARNED * of["n_test"]]


def half_learned(rows: Rows) -> list[tuple[int, Counts]]:
    """The other factor of every half-learned run."""
    return [missing(row)[0] for row in rows if len(missing(row)) == 1]


def share_of_chance(m: int, counts: Counts) -> float:
    """Held-out triplets with the right remainder, over those that chance has right."""
    return m * counts["test"] / counts["n_test"]


def gained(m: int, counts: Counts) -> float:
    """Trained triplets with the right remainder beyond those that chance has right."""
    return counts["train"] - counts["n_train"] / m


def lost(m: int, counts: Counts) -> float:
    """Held-out triplets with the right remainder short of those that chance has right."""
    return counts["n_test"] / m - counts["test"]


def ratio_of_sums(pairs: Sequence[tuple[float, float]]) -> float:
    """Losses over gains, all models together."""
    total = np.sum(pairs, axis=0)
    return float(total[0] / total[1]) if total[1] > 0 else math.nan


def other(measure: Callable[[int, Counts], Any], arm: str = TENTH, m: int | None = None) -> Sample:
    """A measure of the other factor of half-learned runs, of those that lack `m` where it is
    named.
    """
    return Sample(
        arm,
        lambda row: measure(*missing(row)[0]),
        only=lambda row: len(missing(row)) == 1 and m in (None, missing(row)[0][0]),
    )


def enough(left: Sequence[int]) -> PositiveControl:
    """LEAST models or more lack one factor, and some lack none: the measurement can see both."""
    half, whole = left.count(1), left.count(0)
    shown = f"{half} half-learned and {whole} solved of {len(left)}"
    return PositiveControl(half >= LEAST and whole > 0, shown)


SEEN = (Sample(TENTH, lambda row: len(missing(row))),)
OURS: dict[str, Any] = {"fresh": True, "own": True}


def balance(arm: str) -> dict[str, Any]:
    """Losses of half-learned models held out over their gains in training; the control asks
    that they gain something, for a guess balances too.
    """
    return {
        "bar": near(1, 0.25),
        "samples": (other(lambda *of: (lost(*of), gained(*of)), arm),),
        "estimator": partial(bootstrap, ratio_of_sums),
        "control": "at least 4 runs are half-learned, one solves, and the mean gain is above 0",
        "beside": (Sample(arm, lambda row: len(missing(row))), other(gained, arm)),
        "check": every(enough, interval_above(0, mean)),
        "planned": Planned(8, 1.0, 0.25),
        **OURS,
    }


CLAIMS = (
    ClaimTest(
        "a",
        "A model that has learned one factor of the sum is below chance on the other, held out.",
        theirs="ours; Kowalczyk and Chapelle 2005: a property of data sets, for kernels",
        statistic="held-out triplets with the right remainder of the other factor, over chance, "
        "mean over half-learned runs of either initialization,",
        bar=below(1),
        samples=(other(share_of_chance),),
        estimator=partial(mean, bounds=(0, float(max(FACTORS)))),
        control="at least 4 runs are half-learned, and one solves",
        beside=SEEN,
        check=enough,
        planned=Planned(8, 0.5, 0.4),
        cost=COST,
        **OURS,
    ),
    ClaimTest(
        "b",
        "What it gains on trained triplets it loses on held-out ones.",
        theirs="ours: functions of two digits give the right remainder chance, over all triplets",
        statistic="held-out triplets lost to chance over trained triplets gained, all half-learned "
        "runs together, bootstrap,",
        **balance(TENTH),
        cost=COST,
    ),
    ClaimTest(
        "c",
        "The same where twice as many triplets are held out.",
        theirs="ours",
        statistic="held-out triplets lost to chance over trained triplets gained, all half-learned "
        "runs together, 200 held out, bootstrap,",
        **balance(FIFTH),
        cost="0.2 core-hours: 16 runs with 200 held out",
    ),
    ClaimTest(
        "d",
        "Least squares on pairs of digits says on which held-out triplets the parity is wrong.",
        theirs="ours",
        statistic="share of held-out triplets whose parity is the one that it says, mean over runs "
        "that learned mod 5 alone,",
        bar=above(0.6),
        samples=(other(lambda _, of: of["agree"] / of["n_test"], m=2),),
        estimator=partial(mean, bounds=(0, 1)),
        control="at least 3 such runs; it is right on fewer than half of the held-out triplets",
        beside=(other(lambda _, of: of["pairs"] / of["n_test"], m=2),) * 2,
        check=every(at_least(3), value_in(0, math.nextafter(0.5, 0))),
        planned=Planned(5, 0.72, 0.07),
        **OURS,
    ),
    ClaimTest(
        "e",
        "It is as far below chance as least squares on pairs of digits.",
        theirs="ours",
        statistic="held-out triplets with the right remainder of the other factor, over chance, "
        "less the same of least squares on pairs, mean over half-learned runs,",
        bar=near(0, 0.15),
        samples=(other(lambda m, of: m * (of["test"] - of["pairs"]) / of["n_test"]),),
        estimator=mean,
        control="at least 4 runs are half-learned, and one solves",
        beside=SEEN,
        check=enough,
        planned=Planned(8, 0.0, 0.2),
        **OURS,
    ),
)
