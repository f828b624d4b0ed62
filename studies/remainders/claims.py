"""The claims of the remainders study."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from mechint.studies.claims import Found, PositiveControl, above, below, claim, control_of, near
from mechint.studies.remainders.measures import EASY, GENERALIZED, ONE_DIGIT
from mechint.studies.rows import Row, Rows
from mechint.studies.statistics import Estimate, Planned, bootstrap, mean, share

ARMS = "2.3 core-hours at p = 47: 3 arms of 8 runs; at the paper's p = 113, 25 core-hours a run"
SEVEN = "0.4 core-hours: 6 runs of 5,000 steps at p = 47"
SHARE = 0.4
LEAD = ("11", "13", "17", "19")
"""The primes that the paper sees first where the easy ones are masked."""


def least(row: Row) -> float:
    """Least held-out accuracy of any prime at the last step."""
    return min(row["final"].values())


def registered(rows: Rows) -> Rows:
    """The main runs on which a, e and g1 were registered: ten of 2026-11-23, where they are kept,
    and the first four of later seeds; all main runs where they are not.
    """
    main = rows.where(arm="main")
    if KEPT not in rows.values_of("arm"):
        return main
    return Rows([*rows.where(arm=KEPT), *main[:4]])


KEPT = "main of 2026-11-23"


def learned(rows: Rows, fewest: int = 3) -> tuple[Rows, PositiveControl]:
    """Registered runs with every prime at GENERALIZED, of which there must be some."""
    main = registered(rows)
    runs = Rows([row for row in main if least(row) >= GENERALIZED])
    return runs, PositiveControl(
        len(runs) >= fewest, f"{len(runs)} of {len(main)} learned all primes"
    )


def addition_learned(rows: Rows) -> PositiveControl:
    """Every addition run generalizes."""
    return control_of([least(row) >= GENERALIZED for row in rows.where(arm="addition")])


def memorized(rows: Rows) -> PositiveControl:
    """Every run on shuffled labels fits its training set."""
    runs = rows.where(arm="shuffled").having("train")
    return control_of([min(one.values()) >= 0.99 for one in runs.column("train")])


def contrast(
    rows: Rows, other: str, when: str, name: str, of: Callable[[Any], float] = float
) -> Estimate:
    """Mean of a measure of the structure, main runs less another arm's, by bootstrap, over the runs
    of which it is kept.
    """
    groups = [
        [of(one) for one in rows.where(arm=arm).having(f"{when}.{name}").column(f"{when}.{name}")]
        for arm in ("main", other)
    ]
    found = bootstrap(lambda a, b: float(np.mean(a) - np.mean(b)), *groups)
    means = " against ".join(f"{np.mean(group):.3g}" for group in groups)
    return dataclasses.replace(found, shown=means)


@claim(
    "a",
    "One model learns the remainders by all primes below p.",
    theirs="validation accuracy 1 for all 29 primes (p = 113)",
    statistic="share of runs whose least held-out accuracy of any prime is 0.9 at the last step",
    bar=above(SHARE),
    control="2 is at 0.9 in every run",
    planned=Planned(14, 0.8),
    late=True,
)
def all_primes(rows: Rows) -> Found:
    runs = registered(rows)
    control = control_of([row["final"]["2"] >= GENERALIZED for row in runs])
    every = [*runs, *rows.where(arm="main")[4:]] if KEPT in rows.values_of("arm") else runs
    note = f"all main runs: {share([least(row) >= GENERALIZED for row in every])}"
    return Found(share([least(row) >= GENERALIZED for row in runs]), control, note)


def onsets(row: Row, late: bool) -> dict[str, float]:
    """Onsets of the primes after, or among, the easy ones."""
    return {q: at for q, at in row["onset"].items() if (int(q) not in EASY) == late}


@claim(
    "b1",
    "2, 3, 5 and 7 generalize in that order.",
    theirs="2, 3, 5, 7 in that order (p = 113, 30% trained on)",
    statistic="share of runs in which their onsets do not fall, p = 47, 80% trained on,",
    bar=above(SHARE),
    control="2, 3, 5 and 7 get half-way from chance to 1 in every run",
    planned=Planned(6, 1.0),
    cost=SEVEN,
    fresh=True,
    late=True,
)
def first_primes(rows: Rows) -> Found:
    runs = rows.where(arm="main")
    early = [list(onsets(row, False).values()) for row in runs]
    return Found(
        share([each == sorted(each) and each[0] < each[-1] for each in early]),
        control_of([math.isfinite(max(each)) for each in early]),
    )


def every_onset(rows: Rows) -> PositiveControl:
    """Every prime gets half-way from chance to 1."""
    return control_of([math.isfinite(max(row["onset"].values())) for row in rows])


@claim(
    "b2",
    "The other primes generalize in no particular order.",
    theirs="the other 25 around epoch 40,000 in no particular order",
    statistic="rank correlation of the other primes' onsets with their size, mean over runs, "
    "p = 47,",
    bar=near(0, 0.3),
    control="every prime gets half-way from chance to 1 in every run",
    planned=Planned(6, 0.0, 0.2),
    cost=SEVEN,
    fresh=True,
)
def no_order(rows: Rows) -> Found:
    runs = rows.where(arm="main")
    found = []
    for row in runs:
        late = onsets(row, True)
        at = stats.rankdata(list(late.values()))
        found.append(float(stats.spearmanr([int(q) for q in late], at)[0]))  # type: ignore[arg-type]
    return Found(mean(found, (-1, 1)), every_onset(runs))


@claim(
    "b3",
    "No other prime generalizes before 7.",
    theirs="the other 25 later",
    statistic="share of runs in which every other prime but 23, of which 47 is 1, comes after 7, "
    "p = 47,",
    bar=above(SHARE),
    control="7 gets half-way from chance to 1 in every run",
    planned=Planned(6, 0.95),
    cost=SEVEN,
    fresh=True,
    late=True,
)
def others_later(rows: Rows) -> Found:
    runs = rows.where(arm="main")
    flags = [
        row["onset"]["7"] <= min(at for q, at in onsets(row, True).items() if q != "23")
        for row in runs
    ]
    return Found(share(flags), control_of([math.isfinite(row["onset"]["7"]) for row in runs]))


@claim(
    "c1",
    "Position embeddings are alike for addition.",
    theirs="Pearson correlation 0.95",
    statistic="mean correlation over addition runs",
    bar=above(0.5),
    control="every addition run generalizes",
    planned=Planned(4, 0.68, 0.07),
)
def alike(rows: Rows) -> Found:
    values = rows.where(arm="addition").column("end.position_correlation")
    return Found(mean(values, (-1, 1)), addition_learned(rows))


@claim(
    "c2",
    "Position embeddings are opposed for remainders.",
    theirs="Pearson correlation -0.64",
    statistic="mean correlation over main runs, last step,",
    bar=below(0),
    control="2 and 3 generalize in every run",
    planned=Planned(4, -0.7, 0.15),
)
def opposed(rows: Rows) -> Found:
    runs = rows.where(arm="main")
    seen = control_of([min(row["final"]["2"], row["final"]["3"]) >= GENERALIZED for row in runs])
    return Found(mean(runs.column("end.position_correlation"), (-1, 1)), seen)


@claim(
    "c3",
    "Position embeddings are more opposed for remainders than for shuffled labels.",
    theirs="not asked",
    statistic="mean correlation, remainders minus shuffled labels, last step, bootstrap,",
    bar=below(0),
    control="training accuracy 0.99 in every shuffled run",
    planned=Planned(8, -0.15, 0.1),
    own=True,
)
def more_opposed(rows: Rows) -> Found:
    found = contrast(rows, "shuffled", "end", "position_correlation")
    return Found(found, memorized(rows))


def noise_passes(rows: Rows, name: str) -> PositiveControl:
    """Met where shuffled labels do not exceed addition, too: what they show is no property of
    remainders.
    """
    noise, usual = (rows.where(arm=arm).column(f"early.{name}") for arm in ("shuffled", "addition"))
    found = bootstrap(lambda a, b: float(np.mean(a) - np.mean(b)), noise, usual)
    shown = f"shuffled labels minus addition {found}"
    return PositiveControl(not found.low > 0, shown)


@claim(
    "d1",
    "Singular values of the token embedding are more diffuse than for addition.",
    theirs="more components for 50% and for 90% (Fig. 9)",
    statistic="components for 90% of the variance, minus addition's, equal steps, bootstrap,",
    bar=above(0),
    control="shuffled labels in place of remainders do not pass it, too",
    planned=Planned(4, 20, 2),
)
def more_diffuse(rows: Rows) -> Found:
    return Found(contrast(rows, "addition", "early", "rank_90"), noise_passes(rows, "rank_90"))


@claim(
    "d2",
    "They are more diffuse than for shuffled labels.",
    theirs="not asked",
    statistic="components for 90% of the variance, minus shuffled labels', last step, bootstrap,",
    bar=above(0),
    control="training accuracy 0.99 in every shuffled run",
    planned=Planned(4, 5, 2),
    own=True,
)
def more_than_noise(rows: Rows) -> Found:
    return Found(contrast(rows, "shuffled", "end", "rank_90"), memorized(rows))


@claim(
    "e",
    "The number of active frequencies falls again once the primes generalize.",
    theirs="0, 0, 10, 18, 10 at epochs 256 to 65,536: a fall by 44%",
    statistic="relative fall from the largest count to the last, runs that learned all primes,",
    bar=above(0.25),
    control="at least 3 runs learned all primes, and the largest count exceeds the first in each",
    planned=Planned(10, 0.44, 0.2),
    cost="3.7 core-hours: 10 runs of 28,000 steps",
    late=True,
)
def falls_again(rows: Rows) -> Found:
    runs, control = learned(rows)
    counts = [row["active"][1] for row in runs if "active" in row]
    falls = [(max(each) - each[-1]) / max(each) for each in counts]
    rises = all(max(each) > each[0] for each in counts)
    peaks = ", ".join(f"{max(each)} to {each[-1]}" for each in counts)
    return Found(
        mean(falls, (0, 1)),
        PositiveControl(control.met and rises, control.shown),
        f"counts {peaks}",
    )


@claim(
    "f",
    "With shuffled labels neither embedding nor neurons are periodic.",
    theirs="no periodicity in either (Fig. 14, 16)",
    statistic="share of shuffled runs with p ≤ 0.01 (tokens in random order) in either",
    bar=below(SHARE),
    control="p ≤ 0.01 in both in every main run",
    planned=Planned(8, 0.02),
)
def not_periodic(rows: Rows) -> Found:
    found = {
        arm: [(one["p_embedding"], one["p_neurons"]) for one in rows.where(arm=arm).column("early")]
        for arm in ("shuffled", "main")
    }
    seen = control_of([max(pair) <= 0.01 for pair in found["main"]])
    return Found(share([min(pair) <= 0.01 for pair in found["shuffled"]]), seen)


def one_digit(heads: Sequence[Sequence[float]]) -> float:
    """Share of heads that give one digit ONE_DIGIT of all their attention."""
    return float(np.mean([max(head) >= ONE_DIGIT for head in heads]))


@claim(
    "g1",
    "Heads attend to one digit each.",
    theirs="from the answer to x0 all or nothing, in 4 of 4 heads (Fig. 19)",
    statistic="share of runs that learned all primes with 3 of 4 heads at 80% on one digit",
    bar=above(SHARE),
    control="at least 3 runs learned all primes",
    planned=Planned(10, 0.9),
    late=True,
)
def heads(rows: Rows) -> Found:
    runs, control = learned(rows)
    return Found(share([one_digit(row["end"]["heads"]) >= 0.75 for row in runs]), control)


@claim(
    "g2",
    "More heads attend to one digit than in addition.",
    theirs="T_nanda's heads may focus jointly on both",
    statistic="share of heads with 80% on one digit, remainders minus addition, bootstrap,",
    bar=above(0),
    control="every addition run generalizes",
    planned=Planned(4, 0.8, 0.2),
)
def more_heads(rows: Rows) -> Found:
    return Found(contrast(rows, "addition", "end", "heads", one_digit), addition_learned(rows))


@claim(
    "g3",
    "More heads attend to one digit than with shuffled labels.",
    theirs="not asked",
    statistic="share of heads with 80% on one digit, remainders minus shuffled, bootstrap,",
    bar=above(0),
    control="training accuracy 0.99 in every shuffled run",
    planned=Planned(8, 0.3, 0.25),
    own=True,
)
def more_heads_than_noise(rows: Rows) -> Found:
    return Found(contrast(rows, "shuffled", "end", "heads", one_digit), memorized(rows))


@claim(
    "h1",
    "Without Grokfast training does not converge.",
    theirs="λ = 0 did not converge",
    statistic="share of the primes above 7 half-way from chance to 1 without Grokfast, mean,",
    bar=below(0.1),
    control="every main run has all primes at 0.9",
    planned=Planned(8, 0.02, 0.03),
    cost=ARMS,
)
def without_grokfast(rows: Rows) -> Found:
    runs = rows.where(arm="no grokfast")
    late = [np.mean([math.isfinite(at) for at in onsets(row, True).values()]) for row in runs]
    return Found(mean([float(one) for one in late], (0, 1)), all_learn(rows))


def all_learn(rows: Rows) -> PositiveControl:
    """Every main run has all primes at GENERALIZED."""
    return control_of([least(row) >= GENERALIZED for row in rows.where(arm="main")])


@claim(
    "h2",
    "Without dropout it overfits all primes but 2 and 3.",
    theirs="validation diverged without dropout",
    statistic="share of runs that fit their training set and generalize on 2 and 3 alone",
    bar=above(SHARE),
    control="every main run has all primes at 0.9",
    planned=Planned(8, 1.0),
    cost=ARMS,
)
def without_dropout(rows: Rows) -> Found:
    runs = rows.where(arm="no dropout")
    flags = [
        min(row["train"].values()) >= 0.99
        and {q for q, at in row["final"].items() if at >= GENERALIZED} == {"2", "3"}
        for row in runs
    ]
    return Found(share(flags), all_learn(rows))


@claim(
    "i1",
    "Without 2, 3, 5, 7 the primes 11, 13, 17, 19 come first.",
    theirs="11, 13, 17, 19 first (App. A)",
    statistic="share of pairs in which one of the four precedes one of the rest, mean over runs,",
    bar=above(0.5),
    control="every prime gets half-way from chance to 1 in every main run",
    planned=Planned(8, 0.8, 0.1),
    cost=ARMS,
)
def masked_order(rows: Rows) -> Found:
    shares = []
    for row in rows.where(arm="masked"):
        lead, rest = _split(row["onset"])
        shares.append(float(np.mean([(a < b) + (a == b) / 2 for a in lead for b in rest])))
    return Found(mean(shares, (0, 1)), every_onset(rows.where(arm="main")))


def _split(onset: dict[str, float]) -> tuple[list[float], list[float]]:
    """Onsets of the four primes that lead, and of the rest."""
    return [onset[q] for q in LEAD if q in onset], [
        at for q, at in onset.items() if q not in LEAD and int(q) not in EASY
    ]


@claim(
    "i2",
    "Without 2, 3, 5, 7 the rest is not notably delayed.",
    theirs="no notable delay (App. A)",
    statistic="onset of the rest, masked over main, mean over primes and runs,",
    bar=below(1.5),
    control="every prime gets half-way from chance to 1 in every main run",
    planned=Planned(8, 1.1, 0.15),
    cost=ARMS,
)
def masked_delay(rows: Rows) -> Found:
    main = rows.where(arm="main")
    usual: Sequence[float] = np.mean([_split(row["onset"])[1] for row in main], 0).tolist()
    ratios = [
        float(np.mean(np.divide(_split(row["onset"])[1], usual)))
        for row in rows.where(arm="masked")
    ]
    return Found(mean(ratios), every_onset(main))


@claim(
    "j1",
    "More frequencies are in play than in addition.",
    theirs="Sec. 4.4: a lot more frequencies than in addition",
    statistic="effective frequencies of the neurons, remainders minus addition, equal steps, "
    "bootstrap,",
    bar=above(0),
    control="shuffled labels in place of remainders do not pass it, too",
    planned=Planned(4, 11, 2),
)
def more_frequencies(rows: Rows) -> Found:
    found = contrast(rows, "addition", "early", "frequencies_neurons")
    return Found(found, noise_passes(rows, "frequencies_neurons"))


@claim(
    "j2",
    "Neurons react to a very small set of frequencies.",
    theirs="Sec. 4.4, Fig. 15: highly reactive to a very small set",
    statistic="median over neurons of the three largest frequencies' share of power, last step, "
    "mean over runs,",
    bar=above(0.5),
    control="addition's is above 0.5 by the same measure",
    planned=Planned(6, 0.63, 0.1),
    cost="0.4 core-hours: 6 and 3 runs",
    fresh=True,
)
def few_a_neuron(rows: Rows) -> Found:
    beside, values = (
        rows.where(arm=arm).having("end.neuron_few").column("end.neuron_few")
        for arm in ("addition", "main")
    )
    known = mean(beside, (0, 1))
    return Found(mean(values, (0, 1)), PositiveControl(known.low > 0.5, f"addition {known}"))


@claim(
    "j3",
    "More frequencies are in play than with shuffled labels.",
    theirs="not asked",
    statistic="effective frequencies of the neurons, remainders minus shuffled labels, equal steps "
    "of 2,000 or less, bootstrap,",
    bar=above(0),
    control="2 and 3 generalize in every main run",
    cost="0.4 core-hours: 6 and 4 runs",
    fresh=True,
    own=True,
)
def more_frequencies_than_noise(rows: Rows) -> Found:
    found = contrast(rows, "shuffled", "early", "frequencies_neurons")
    runs = rows.where(arm="main")
    seen = control_of([min(row["final"]["2"], row["final"]["3"]) >= GENERALIZED for row in runs])
    return Found(found, seen)


@claim(
    "k",
    "The attention layer settles before the MLP.",
    theirs="Fig. 18: the attention layer converges quickly",
    statistic="step at which the attention's gradient norm has made half of its fall over the "
    "MLP's, median over runs, bootstrap,",
    bar=below(1),
    control="both fall by a factor of 2 or more in every run",
    cost="0.6 core-hours with four times the checkpoints: steps of 1.4 hide what is asked",
    fresh=True,
)
def attention_settles(rows: Rows) -> Found:
    found = rows.where(arm="main").having("settled").column("settled")
    falls = [min(one["attention_fall"], one["MLP_fall"]) >= 2 for one in found]
    ratios = [one["attention"] / one["MLP"] for one in found]
    return Found(bootstrap(lambda each: float(np.median(each)), ratios), control_of(falls))


CLAIMS = (
    *(all_primes, first_primes, no_order, others_later, alike, opposed, more_opposed),
    *(
        more_diffuse,
        more_than_noise,
        falls_again,
        not_periodic,
        heads,
        more_heads,
        more_heads_than_noise,
    ),
    *(without_grokfast, without_dropout, masked_order, masked_delay, more_frequencies),
    *(few_a_neuron, more_frequencies_than_noise, attention_settles),
)
