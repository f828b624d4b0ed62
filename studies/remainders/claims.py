"""The claims of the remainders study."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from mechint.studies.claims import (
    ClaimTest,
    PositiveControl,
    Sample,
    above,
    at_least,
    below,
    control_of,
    every,
    interval_above,
    near,
)
from mechint.studies.remainders.measures import EASY, GENERALIZED, ONE_DIGIT
from mechint.studies.rows import Row, Rows
from mechint.studies.statistics import Estimate, Planned, bootstrap, mean, mean_difference, share

ARMS = "2.4 core-hours at p = 47: 10 main runs and 5 of each of 3 arms, of 7,000 steps"
LONG = "long"
SEVEN = "0.4 core-hours: 6 runs of 5,000 steps at p = 47"
SHARE = 0.4
LEAD = ("11", "13", "17", "19")
"""The primes that the paper sees first where the easy ones are masked."""
SHARES, CORRELATIONS = partial(mean, bounds=(0, 1)), partial(mean, bounds=(-1, 1))
KEPT = "main of 2026-11-23"


# --- samples and controls -------------------------------------------------------------------------
def learned_all(row: Row) -> bool:
    """Return whether every prime is at GENERALIZED at the last step, held out."""
    return min(row["final"].values()) >= GENERALIZED


def registered(
    measure: Callable[[Row], Any], only: Callable[[Row], bool] = bool
) -> Callable[[Rows], list[Any]]:
    """A measure of the main runs on which a, e and g1 were registered: ten of 2026-11-23, where
    they are kept, and the first four of later seeds; of all main runs where they are not.
    """

    def values(rows: Rows) -> list[Any]:
        main: Sequence[Row] = rows.where(arm="main")
        if KEPT in rows.values_of("arm"):
            main = [*rows.where(arm=KEPT), *main[:4]]
        return [measure(row) for row in main if only(row)]

    return values


def onsets(row: Row, late: bool) -> dict[str, float]:
    """Onsets of the primes after, or among, the easy ones."""
    return {q: at for q, at in row["onset"].items() if (int(q) not in EASY) == late}


def split_onsets(row: Row) -> tuple[list[float], list[float]]:
    """Onsets of the four primes that lead, and of the rest."""
    late = onsets(row, True)
    return [late[q] for q in LEAD if q in late], [at for q, at in late.items() if q not in LEAD]


def flags(arm: str, test: Callable[[Row], bool]) -> dict[str, Any]:
    """A control that every run of an arm passes a test."""
    return {"beside": (Sample(arm, test),), "check": control_of}


ADDITION_LEARNED = flags("addition", learned_all)
MEMORIZED = flags("shuffled", lambda row: min(row["train"].values()) >= 0.99)
TWO_AND_THREE = flags("main", lambda row: min(row["final"]["2"], row["final"]["3"]) >= GENERALIZED)


def complete(row: Row) -> bool:
    """Return whether every prime gets half-way from chance to 1."""
    return math.isfinite(max(row["onset"].values()))


SIX_COMPLETE: dict[str, Any] = {
    "beside": (Sample(LONG, bool, only=complete),),
    "check": at_least(6),
}


def contrast(other: str, measure: str | Callable[[Any], float]) -> dict[str, Any]:
    """Mean of a measure, main runs less another arm's, over the runs of which it is kept."""
    return {
        "samples": tuple(Sample(arm, measure) for arm in ("main", other)),
        "estimator": mean_difference,
    }


def noise_passes(measure: str) -> dict[str, Any]:
    """The control that shuffled labels do not exceed addition, too: what they show is no property
    of remainders.
    """

    def check(noise: Sequence[float], usual: Sequence[float]) -> PositiveControl:
        found = mean_difference(noise, usual)
        return PositiveControl(not found.low > 0, f"shuffled labels minus addition {found}")

    return {
        "beside": tuple(Sample(arm, measure) for arm in ("shuffled", "addition")),
        "check": check,
    }


# --- measures -------------------------------------------------------------------------------------
def in_order(row: Row) -> bool:
    """Return whether the onsets of the easy primes do not fall, and rise somewhere."""
    early = list(onsets(row, False).values())
    return early == sorted(early) and early[0] < early[-1]


def rank_correlation(row: Row) -> float:
    """Of the other primes' onsets with their size."""
    late = onsets(row, True)
    at = stats.rankdata(list(late.values()))
    return float(stats.spearmanr([int(q) for q in late], at)[0])  # type: ignore[arg-type]


def seven_first(row: Row) -> bool:
    """Return whether no other prime comes before 7, but 23, of which 47 is 1."""
    others = (at for q, at in onsets(row, True).items() if q != "23")
    return row["onset"]["7"] <= min(others)


def fall(row: Row) -> float:
    """The relative fall from the largest number of active frequencies to the last."""
    counts = row["active"][1]
    return (max(counts) - counts[-1]) / max(counts)


def one_digit(row: Row) -> float:
    """Share of heads that give one digit ONE_DIGIT of all their attention."""
    return float(np.mean([max(head) >= ONE_DIGIT for head in row["end"]["heads"]]))


def two_and_three_alone(row: Row) -> bool:
    """Return whether the run fits its training set and generalizes on 2 and 3 alone."""
    known = {q for q, at in row["final"].items() if at >= GENERALIZED}
    return min(row["train"].values()) >= 0.99 and known == {"2", "3"}


def led(row: Row) -> float:
    """Share of pairs in which one of the four primes precedes one of the rest."""
    lead, rest = split_onsets(row)
    return float(np.mean([(a < b) + (a == b) / 2 for a in lead for b in rest]))


def delay(masked: Sequence[Sequence[float]], main: Sequence[Sequence[float]]) -> Estimate:
    """Onsets of the rest over the mean of main runs, mean over primes and runs."""
    return mean([float(np.mean(np.divide(each, np.mean(main, 0)))) for each in masked if main])


def settling(row: Row) -> float:
    """Step at which attention has settled over that of the MLP."""
    return row["settled"]["attention"] / row["settled"]["MLP"]


CLAIMS = (
    ClaimTest(
        "a",
        "One model learns the remainders by all primes below p.",
        theirs="validation accuracy 1 for all 29 primes (p = 113)",
        statistic="share of runs whose least held-out accuracy of any prime is 0.9 at the last "
        "step",
        bar=above(SHARE),
        samples=(registered(learned_all),),
        control="2 is at 0.9 in every run",
        beside=(registered(lambda row: row["final"]["2"] >= GENERALIZED),),
        check=control_of,
        note=lambda rows: (
            "all main runs: "
            f"{share([learned_all(row) for row in rows if row['arm'] in (KEPT, 'main')])}"
        ),
        planned=Planned(14, 0.8),
        late=True,
    ),
    ClaimTest(
        "b1",
        "2, 3, 5 and 7 generalize in that order.",
        theirs="2, 3, 5, 7 in that order (p = 113, 30% trained on)",
        statistic="share of runs in which their onsets do not fall, p = 47, 80% trained on,",
        bar=above(SHARE),
        samples=(Sample("main", in_order),),
        control="2, 3, 5 and 7 get half-way from chance to 1 in every run",
        **flags("main", lambda row: math.isfinite(max(onsets(row, False).values()))),
        planned=Planned(6, 1.0),
        cost=SEVEN,
        fresh=True,
        late=True,
    ),
    ClaimTest(
        "b2",
        "The other primes generalize in no particular order.",
        theirs="the other 25 around epoch 40,000 in no particular order",
        statistic="rank correlation of the other primes' onsets with their size, mean over runs in "
        "which all get half-way from chance to 1, p = 47, 7,000 steps,",
        bar=near(0, 0.3),
        samples=(Sample(LONG, rank_correlation, only=complete),),
        estimator=CORRELATIONS,
        control="at least 6 runs are such",
        **SIX_COMPLETE,
        planned=Planned(8, 0.0, 0.2),
        cost=ARMS,
        fresh=True,
    ),
    ClaimTest(
        "b3",
        "No other prime generalizes before 7.",
        theirs="the other 25 later",
        statistic="share of runs in which every other prime but 23, of which 47 is 1, comes after "
        "7, p = 47, 7,000 steps,",
        bar=above(SHARE),
        samples=(Sample(LONG, seven_first),),
        control="7 gets half-way from chance to 1 in every run",
        **flags(LONG, lambda row: math.isfinite(row["onset"]["7"])),
        planned=Planned(10, 0.95),
        cost=ARMS,
        fresh=True,
        late=True,
    ),
    ClaimTest(
        "c1",
        "Position embeddings are alike for addition.",
        theirs="Pearson correlation 0.95",
        statistic="mean correlation over addition runs",
        bar=above(0.5),
        samples=(Sample("addition", "end.position_correlation"),),
        estimator=CORRELATIONS,
        control="every addition run generalizes",
        **ADDITION_LEARNED,
        planned=Planned(4, 0.68, 0.07),
    ),
    ClaimTest(
        "c2",
        "Position embeddings are opposed for remainders.",
        theirs="Pearson correlation -0.64",
        statistic="mean correlation over main runs, last step,",
        bar=below(0),
        samples=(Sample("main", "end.position_correlation"),),
        estimator=CORRELATIONS,
        control="2 and 3 generalize in every run",
        **TWO_AND_THREE,
        planned=Planned(4, -0.7, 0.15),
    ),
    ClaimTest(
        "c3",
        "Position embeddings are more opposed for remainders than for shuffled labels.",
        theirs="not asked",
        statistic="mean correlation, remainders minus shuffled labels, last step, bootstrap,",
        bar=below(0),
        **contrast("shuffled", "end.position_correlation"),
        control="training accuracy 0.99 in every shuffled run",
        **MEMORIZED,
        planned=Planned(8, -0.15, 0.1),
        own=True,
    ),
    ClaimTest(
        "d1",
        "Singular values of the token embedding are more diffuse than for addition.",
        theirs="more components for 50% and for 90% (Fig. 9)",
        statistic="components for 90% of the variance, minus addition's, equal steps, bootstrap,",
        bar=above(0),
        **contrast("addition", "early.rank_90"),
        control="shuffled labels in place of remainders do not pass it, too",
        **noise_passes("early.rank_90"),
        planned=Planned(4, 20, 2),
    ),
    ClaimTest(
        "d2",
        "They are more diffuse than for shuffled labels.",
        theirs="not asked",
        statistic="components for 90% of the variance, minus shuffled labels', last step, "
        "bootstrap,",
        bar=above(0),
        **contrast("shuffled", "end.rank_90"),
        control="training accuracy 0.99 in every shuffled run",
        **MEMORIZED,
        planned=Planned(4, 5, 2),
        own=True,
    ),
    ClaimTest(
        "e",
        "The number of active frequencies falls again once the primes generalize.",
        theirs="0, 0, 10, 18, 10 at epochs 256 to 65,536: a fall by 44%",
        statistic="relative fall from the largest count to the last, runs that learned all primes,",
        bar=above(0.25),
        samples=(registered(fall, lambda row: learned_all(row) and "active" in row),),
        estimator=SHARES,
        control="at least 3 runs learned all primes, and the largest count exceeds the first in "
        "each",
        beside=(
            registered(learned_all, learned_all),
            registered(
                lambda row: max(row["active"][1]) > row["active"][1][0],
                lambda row: learned_all(row) and "active" in row,
            ),
        ),
        check=every(at_least(3), control_of),
        planned=Planned(10, 0.44, 0.2),
        cost="3.7 core-hours: 10 runs of 28,000 steps",
        late=True,
    ),
    ClaimTest(
        "f",
        "With shuffled labels neither embedding nor neurons are periodic.",
        theirs="no periodicity in either (Fig. 14, 16)",
        statistic="share of shuffled runs with p ≤ 0.01 (tokens in random order) in either",
        bar=below(SHARE),
        samples=(
            Sample(
                "shuffled",
                lambda row: min(row["early"]["p_embedding"], row["early"]["p_neurons"]) <= 0.01,
            ),
        ),
        control="p ≤ 0.01 in both in every main run",
        **flags(
            "main", lambda row: max(row["early"]["p_embedding"], row["early"]["p_neurons"]) <= 0.01
        ),
        planned=Planned(8, 0.02),
    ),
    ClaimTest(
        "g1",
        "Heads attend to one digit each.",
        theirs="from the answer to x0 all or nothing, in 4 of 4 heads (Fig. 19)",
        statistic="share of runs that learned all primes with 3 of 4 heads at 80% on one digit",
        bar=above(SHARE),
        samples=(registered(lambda row: one_digit(row) >= 0.75, learned_all),),
        control="at least 3 runs learned all primes",
        check=at_least(3),
        planned=Planned(10, 0.9),
        late=True,
    ),
    ClaimTest(
        "g2",
        "More heads attend to one digit than in addition.",
        theirs="T_nanda's heads may focus jointly on both",
        statistic="share of heads with 80% on one digit, remainders minus addition, bootstrap,",
        bar=above(0),
        **contrast("addition", one_digit),
        control="every addition run generalizes",
        **ADDITION_LEARNED,
        planned=Planned(4, 0.8, 0.2),
    ),
    ClaimTest(
        "g3",
        "More heads attend to one digit than with shuffled labels.",
        theirs="not asked",
        statistic="share of heads with 80% on one digit, remainders minus shuffled, bootstrap,",
        bar=above(0),
        **contrast("shuffled", one_digit),
        control="training accuracy 0.99 in every shuffled run",
        **MEMORIZED,
        planned=Planned(8, 0.3, 0.25),
        own=True,
    ),
    ClaimTest(
        "h1",
        "Without Grokfast training does not converge.",
        theirs="λ = 0 did not converge",
        statistic="share of the primes above 7 half-way from chance to 1 without Grokfast, mean,",
        bar=below(0.1),
        samples=(
            Sample(
                "no grokfast",
                lambda row: float(np.mean(np.isfinite(list(onsets(row, True).values())))),
            ),
        ),
        estimator=SHARES,
        control="with it every prime gets half-way from chance to 1 in at least 6 of 10 runs",
        **SIX_COMPLETE,
        planned=Planned(5, 0.02, 0.03),
        cost=ARMS,
        fresh=True,
    ),
    ClaimTest(
        "h2",
        "Without dropout it overfits all primes but 2 and 3.",
        theirs="validation diverged without dropout",
        statistic="share of runs that fit their training set and generalize on 2 and 3 alone",
        bar=above(SHARE),
        samples=(Sample("no dropout", two_and_three_alone),),
        control="with it every prime gets half-way from chance to 1 in at least 6 of 10 runs",
        **SIX_COMPLETE,
        planned=Planned(5, 1.0),
        cost="0.4 core-hours: 5 runs without dropout",
        fresh=True,
    ),
    ClaimTest(
        "i1",
        "Without 2, 3, 5, 7 the primes 11, 13, 17, 19 come first.",
        theirs="11, 13, 17, 19 first (App. A)",
        statistic="share of pairs in which one of the four precedes one of the rest, mean over "
        "runs,",
        bar=above(0.5),
        samples=(Sample("masked", led),),
        estimator=SHARES,
        control="in at least 6 of 10 main runs every prime gets half-way from chance to 1",
        **SIX_COMPLETE,
        planned=Planned(5, 0.8, 0.1),
        cost=ARMS,
        fresh=True,
    ),
    ClaimTest(
        "i2",
        "Without 2, 3, 5, 7 the rest is not notably delayed.",
        theirs="no notable delay (App. A)",
        statistic="onset of the rest, masked over main runs in which every prime gets half-way "
        "from chance to 1, mean over primes and runs,",
        bar=below(1.5),
        samples=(
            Sample("masked", lambda row: split_onsets(row)[1]),
            Sample(LONG, lambda row: split_onsets(row)[1], only=complete),
        ),
        estimator=delay,
        control="at least 6 of 10 main runs are such",
        **SIX_COMPLETE,
        planned=Planned(5, 1.1, 0.15),
        cost=ARMS,
        fresh=True,
    ),
    ClaimTest(
        "j1",
        "More frequencies are in play than in addition.",
        theirs="Sec. 4.4: a lot more frequencies than in addition",
        statistic="effective frequencies of the neurons, remainders minus addition, equal steps, "
        "bootstrap,",
        bar=above(0),
        **contrast("addition", "early.frequencies_neurons"),
        control="shuffled labels in place of remainders do not pass it, too",
        **noise_passes("early.frequencies_neurons"),
        planned=Planned(4, 11, 2),
    ),
    ClaimTest(
        "j2",
        "Neurons react to a very small set of frequencies.",
        theirs="Sec. 4.4, Fig. 15: highly reactive to a very small set",
        statistic="median over neurons of the three largest frequencies' share of power, last "
        "step, mean over runs,",
        bar=above(0.5),
        samples=(Sample("main", "end.neuron_few"),),
        estimator=SHARES,
        control="addition's is above 0.5 by the same measure",
        beside=(Sample("addition", "end.neuron_few"),),
        check=interval_above(0.5, SHARES),
        planned=Planned(6, 0.63, 0.1),
        cost="0.4 core-hours: 6 and 3 runs",
        fresh=True,
    ),
    ClaimTest(
        "j3",
        "More frequencies are in play than with shuffled labels.",
        theirs="not asked",
        statistic="effective frequencies of the neurons, remainders minus shuffled labels, equal "
        "steps of 2,000 or less, bootstrap,",
        bar=above(0),
        **contrast("shuffled", "early.frequencies_neurons"),
        control="2 and 3 generalize in every main run",
        **TWO_AND_THREE,
        cost="0.4 core-hours: 6 and 4 runs",
        fresh=True,
        own=True,
    ),
    ClaimTest(
        "k",
        "The attention layer settles before the MLP.",
        theirs="Fig. 18: the attention layer converges quickly",
        statistic="step at which the attention's gradient norm has made half of its fall over the "
        "MLP's, median over runs, 112 checkpoints, bootstrap,",
        bar=below(1),
        samples=(Sample(LONG, settling),),
        estimator=partial(bootstrap, lambda each: float(np.median(each))),
        control="both fall by a factor of 2 or more in every run",
        beside=(
            Sample(
                LONG,
                lambda row: min(row["settled"]["attention_fall"], row["settled"]["MLP_fall"]) >= 2,
            ),
        ),
        check=control_of,
        cost=ARMS,
        fresh=True,
    ),
)
