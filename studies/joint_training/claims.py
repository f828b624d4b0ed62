"""The claims of the joint-training study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mechint.groups.layouts import agreement
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
    some_but_not_all,
    value_in,
)
from mechint.studies.joint_training.measures import SOLVED
from mechint.studies.joint_training.structure import (
    ENOUGH,
    apart,
    best_effect,
    better_smaller,
    beyond_fitting,
    comparable,
    effect_of_average,
    gain_of_fitting,
    line_before_half,
    over_models,
    parity,
    ratio,
    solved,
)
from mechint.studies.statistics import (
    MIN_RUNS,
    Bar,
    Estimate,
    Planned,
    bootstrap,
    cohens_d,
    difference,
    mean,
    mean_difference,
    pooled_difference,
)

STAR = 0.8
"""Accuracy at the star of the paper's Fig. 1 and 6, where an operation counts as learned."""

NESTED = "a GPU: the paper's n = 20 or 26, ten widths, five seeds, 20,000 steps"
T1, T2 = "0.7 core-hours: 216 runs on triplets", "0.1 core-hours: 12 runs on triplets"
WIDE = "64, 32 and 16 wide alone, 32, 16 and 8 wide in the mixture, 36 runs each"
SHARES = partial(mean, bounds=(0, 1))


def averaged(values: Sequence[float]) -> Estimate:
    """The mean of shares that pile up at their ends."""
    return bootstrap(lambda each: float(np.mean(each)), values)


def median_ratio(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """The median of the first runs over that of the second."""
    found = bootstrap(lambda a, b: float(np.median(a) / np.median(b)), first, second)
    return replace(found, shown=f"{np.median(first):,.0f} against {np.median(second):,.0f} steps")


# --- samples --------------------------------------------------------------------------------------
def triplets(name: str, measure: Any = solved, width: int | None = None, **more: Any) -> Sample:
    """The runs of an arm on triplets, from normal initial weights, of one width if it is named."""
    labels: Mapping[str, Any] = {"init": "normal"} | ({"width": width} if width else {})
    return Sample(f"triplets {name}", measure, labels=labels, **more)


def cell(name: str, width: int, measure: Any = solved, **more: Any) -> Sample:
    """The runs by size of an arm on triplets, of one width."""
    return Sample(f"triplets {name}, by size", measure, labels={"width": width}, **more)


def grams(name: str, **more: Any) -> Sample:
    """Gram matrices of the digits beyond isotropy, 32 wide."""
    return cell(name, 32, lambda row: np.array(row["beyond_isotropy"]), **more)


def sizes(arm: str, level: float | None = None, size: str = "parameters") -> Sample:
    """The size of each run of an arm, and its accuracy, or whether that is at `level`."""

    def pair(row: Any) -> tuple[float, float]:
        return row[size], row["accuracy"] if level is None else row["accuracy"] >= level

    return Sample(arm, pair, only=lambda row: size in row)


MIXTURE, ALONE = "MAX+MED+ADD", "ADD"
EARLY_MIXTURE, EARLY_ALONE = f"{MIXTURE}, early stop", f"{ALONE}, early stop"


# --- rows that differ in arms and bar alone -------------------------------------------------------
def factor_claim(
    id: str,
    statement: str,
    theirs: str,
    arms: tuple[str, str],
    bar: Bar,
    level: float = 0.5,
    cost: str = NESTED,
    **more: Any,
) -> ClaimTest:
    """A claim about the factor between the sizes at which two arms pass a level; not run where a
    size of the study trains neither.
    """
    return ClaimTest(
        id,
        statement,
        theirs,
        f"parameters of {arms[0]} over those of {arms[1]}, exact shift test at {level}, "
        "profile likelihood,",
        bar,
        "runs of both a bar apart; no larger model does worse; no plateau",
        () if cost == NESTED else tuple(sizes(arm, level) for arm in arms),
        ratio(bar),
        comparable(bar),
        cost=cost,
        **more,
    )


def parity_claim(id: str, arm: str, theirs: str, cost: str) -> ClaimTest:
    """A claim about the averaged embeddings of the models of an arm that learned sums."""
    return ClaimTest(
        id,
        f"Averaged embeddings of models that learned {arm} separate parity.",
        theirs,
        "p-value of the separation of even from odd in the first half of the components",
        below(0.05),
        "at least 10 models are at 0.9",
        (
            Sample(
                arm,
                lambda row: np.array(row["similarity"]),
                only=lambda row: "similarity" in row and solved(row),
            ),
        ),
        parity,
        at_least(ENOUGH),
        cost=cost,
    )


def ratio_claim(id: str, kind: str, theirs: str, bar: Bar, says: str) -> ClaimTest:
    """A claim about the norm ratios of a last sublayer, mixture against sums alone."""
    return ClaimTest(
        id,
        f"On sums the mixture's last layer {says} than that of sums alone.",
        theirs,
        f"Cohen's d over models at 0.95 of the mean log norm ratio of {kind} at = and >,",
        bar,
        "at least 3 models an arm",
        cost=NESTED,
    )


def first_ratio_claim(id: str, kind: str, says: str, theirs: str, bar: Bar) -> ClaimTest:
    """A claim about the norm ratios of a first sublayer on triplets: the unit is the model."""
    return ClaimTest(
        id,
        f"On triplets the mixture's first {kind} {says} than that of sums alone.",
        f"ours; last layer: d = {theirs} (Fig. 31)",
        f"Cohen's d over models of the mean log norm ratio of L0 {kind} at =, 32 wide,",
        bar,
        "at least 10 models",
        tuple(cell(name, 32, f"ratios.L0 {kind}") for name in (MIXTURE, ALONE)),
        cohens_d,
        at_least(ENOUGH),
        cost=T1,
        fresh=True,
        own=True,
    )


def proficient(found: Sequence[Mapping[str, float]]) -> PositiveControl:
    """Met where MAX and MED were known, on average, when ADD came."""
    known = {name: float(np.mean([one[name] for one in found])) for name in ("MAX", "MED")}
    shown = ", ".join(f"{name} {at:.2f}" for name, at in known.items())
    return PositiveControl(min(known.values()) >= SOLVED, shown)


def curriculum_claim(id: str, width: int) -> ClaimTest:
    """A claim about sums after maxima and medians, at one width."""
    labels = {"width": width}
    alone = Sample("ADD beside the curriculum", solved, labels=labels)
    return ClaimTest(
        id,
        f"A model {width} wide learns sums after maxima and medians that it does not learn alone.",
        "48 wide (Fig. 5), and even 24, about 7 times smaller",
        "share of runs at 0.9 on ADD, after MAX+MED minus alone, same steps,",
        above(0.2),
        "alone at most half get there; MAX and MED were at 0.9 when ADD came",
        (Sample("curriculum", solved, labels=labels), alone),
        difference,
        every(proficient, value_in(0, 0.5)),
        (Sample("curriculum", "proficiency", labels=labels), alone),
        cost="1.3 core-hours: 24 wide with twice the steps",
        late=True,
    )


def pair_claim(
    id: str, statement: str, theirs: str, arm: str, least: float, cost: str
) -> ClaimTest:
    """A claim about a mixture at one width against a larger model of its operation alone."""
    times = {1.5: "1.5 times the size", 2: "twice the parameters"}[least]
    arms = arm, arm[: arm.index(" in ")]
    return ClaimTest(
        id,
        statement,
        theirs,
        f"share of pairs in which the mixture does better, rank sum at {times},",
        above(0.5),
        "sizes 1.5 times apart" if least < 2 else "sizes twice apart",
        tuple(sizes(f"{name}, one width") for name in arms),
        better_smaller(least),
        apart(least),
        cost=cost,
        fresh=True,
    )


TABLE = "ADD, uneven table", "ADD, even table"
ORDER = "Fig. 1: an order of magnitude"
LONG = "17 core-hours: ADD alone with 30,000 steps"
TEN = "1 to 2 core-hours: ten models 48 wide"
PAIR, BLOCKS = "0.4 core-hours: 6 nested runs", "0.6 core-hours: 40 runs"

CLAIMS = (
    factor_claim("a1", "MED takes more parameters than MAX.", "Fig. 1", ("MED", "MAX"), above(1)),
    factor_claim(
        "a2", "ADD takes three times the parameters of MED.", ORDER, ("ADD", "MED"), above(3)
    ),
    factor_claim(
        "a3", "NADD takes three times the parameters of MED.", ORDER, ("NADD", "MED"), above(3)
    ),
    factor_claim(
        "a4",
        "PROD at a prime takes three times the parameters of PROD at n = 20.",
        "Fig. 1",
        ("PROD prime", "PROD"),
        above(3),
    ),
    factor_claim(
        "b1",
        "Beside MAX and MED sums take fewer parameters.",
        "less than half (n = 10, Fig. 20)",
        ("ADD", "ADD in MAX+MED+ADD"),
        above(1.5),
        STAR,
        LONG,
        late=True,
    ),
    factor_claim(
        "b2",
        "Beside PROD sums take fewer parameters.",
        "2.5 times fewer (n = 20, Fig. 1)",
        ("ADD", "ADD in ADD+PROD"),
        above(1.5),
        STAR,
        LONG,
        late=True,
    ),
    factor_claim(
        "b3",
        "Beside MAX products at a prime take fewer parameters.",
        "2.6 times fewer (Fig. 1)",
        ("PROD prime", "PROD prime in MAX+PROD"),
        above(1.5),
        STAR,
    ),
    factor_claim(
        "b4",
        "Beside PROD alternating sums take fewer parameters.",
        "NADD beside PROD (Fig. 15, 16)",
        ("NADD", "NADD in NADD+PROD"),
        above(1.5),
        STAR,
    ),
    factor_claim(
        "c",
        "Mixing two hard operations does not help.",
        "ADD and PROD at primes: no easier together (Fig. 6)",
        ("ADD, n = 19", "ADD in ADD+PROD, n = 19"),
        below(1.5),
        STAR,
    ),
    ClaimTest(
        "d1",
        "A shuffled addition table is not learned in the mixture.",
        "about 20% (n = 26)",
        "mean accuracy on shuffled ADD in the mixture, where the true mixture does best,",
        below(0.35),
        "the true mixture is at 0.9 there",
        planned=Planned(5, 0.2, 0.08),
        cost=NESTED,
    ),
    factor_claim(
        "d2",
        "In the mixture a shuffled table takes no fewer parameters.",
        "twice the parameters (Fig. 3)",
        ("shuffled ADD, n = 26", "shuffled ADD in MAX+MED+ADD, n = 26"),
        below(1),
    ),
    ClaimTest(
        "e1",
        "Beside maxima and medians more models solve held-out sums than alone.",
        "100% against about 50% with early stopping (Fig. 29)",
        "share of runs at 0.9, mixture of 2,700 minus 900 sums alone, early stop, 64 wide,",
        above(0.2),
        "the mixture's share is above 0.4",
        (triplets(EARLY_MIXTURE), triplets(EARLY_ALONE)),
        difference,
        interval_above(0.4),
        (triplets(EARLY_MIXTURE),),
    ),
    ClaimTest(
        "e2",
        "The mixture reaches 100% on held-out sums.",
        "100%",
        "mean held-out accuracy, bootstrap,",
        above(0.9),
        "maxima and medians are at 0.95 on average where they are told apart",
        (triplets(EARLY_MIXTURE, "accuracy"),),
        averaged,
        value_in(0.95),
        (
            triplets(
                EARLY_MIXTURE,
                lambda row: np.mean([row["by_operation"][name] for name in ("MAX", "MED")]),
            ),
        ),
        planned=Planned(16, 0.97, 0.06),
    ),
    ClaimTest(
        "e3",
        "Sums alone reach about half of the held-out sums.",
        "about 50%",
        "mean held-out accuracy with the early stop, 64 wide, bootstrap,",
        near(0.5, 0.2),
        "some runs solve and some do not",
        (triplets(EARLY_ALONE, "accuracy"),),
        averaged,
        some_but_not_all,
        (triplets(EARLY_ALONE),),
        planned=Planned(48, 0.55, 0.43),
        cost="0.5 core-hours: 48 runs",
        fresh=True,
    ),
    ClaimTest(
        "e5",
        "Over widths 8 to 64 more mixtures solve the sums than models of sums alone.",
        "10 times smaller models (Fig. 29)",
        "share of runs at 0.9, mixture minus alone, 12 a width, no early stop,",
        above(0.2),
        "the mixture's share is above 0.4 at the widest",
        (triplets(MIXTURE), triplets(ALONE)),
        difference,
        interval_above(0.4),
        (triplets(MIXTURE, width=64),),
        late=True,
    ),
    ClaimTest(
        "e6",
        "With 300 sums beside maxima and medians a model 16 wide reaches half.",
        "50% with a 10 times smaller model (Fig. 29)",
        "mean held-out accuracy, 16 wide,",
        above(0.5),
        "64 wide it is above 0.5",
        (triplets(f"300 each of {MIXTURE}", "accuracy", 16),),
        SHARES,
        interval_above(0.5, SHARES),
        (triplets(f"300 each of {MIXTURE}", "accuracy", 64),),
        planned=Planned(8, 0.85, 0.2),
        late=True,
    ),
    factor_claim(
        "f",
        "Beside OP_TOP and OP_BOTTOM whole products take far fewer parameters.",
        "5 to 6 times fewer (Fig. 7)",
        ("OP", "OP in OP+OP_TOP+OP_BOTTOM"),
        above(2),
        cost="2.5 to 4 core-hours: 5 widths, 6 seeds an arm",
        late=True,
    ),
    parity_claim("g1", "ADD in ADD+PROD", "PC1 (Fig. 2)", TEN),
    parity_claim("g2", "ADD in MAX+MED+ADD", "top components (Fig. 13)", TEN),
    parity_claim(
        "g3", "ADD", "PC1 and PC2 (Fig. 2)", "30,000 steps a run: 0 of 29 got to 0.9 in 10,000"
    ),
    ratio_claim("h1", "attention", "d = +0.18 (Fig. 31)", above(0), "attends more"),
    ratio_claim("h2", "MLP", "d = -0.34 (Fig. 31)", below(0), "feeds forward less"),
    curriculum_claim("i1", 48),
    curriculum_claim("i2", 24),
    ClaimTest(
        "j",
        "One level of nesting more costs more than one operand more.",
        "Fig. 34",
        "factor of a level over that of an operand, 50% points, bootstrap,",
        above(1),
        "every curve passes 50% inside the range of sizes",
        cost=NESTED,
    ),
    ClaimTest(
        "k1",
        "Without a chain of thought sums are not learned.",
        "Fig. 30",
        "share of runs of ADD without steps at 0.5 or more, all widths,",
        below(0.25),
        "with steps ADD passes 50% in some run",
        (Sample("ADD, no steps", lambda row: row["accuracy"] >= 0.5),),
        beside=(Sample("ADD", lambda row: row["accuracy"] >= 0.5),),
        check=partial(control_of, least=0.01),
        planned=Planned(15, 0.0),
        cost="7 core-hours",
    ),
    factor_claim(
        "k2",
        "Without a chain of thought MED takes more parameters.",
        "Fig. 30",
        ("MED, no steps", "MED"),
        above(1),
        cost="7 core-hours",
    ),
    factor_claim(
        "l1",
        "The transition of ADD grows with the modulus.",
        "n = 10 to 226 (Fig. 6)",
        ("ADD, n = 26", "ADD, n = 10"),
        above(1),
    ),
    factor_claim(
        "m1",
        "A random sum table with uneven answers is easy.",
        "Fig. 32",
        ("ADD", TABLE[0]),
        above(1.5),
    ),
    factor_claim(
        "m2",
        "A random sum table with even answers is as hard as the true one.",
        "Fig. 32",
        ("ADD", TABLE[1]),
        (0.5, 2.0),
    ),
    ClaimTest(
        "p",
        "Those that solve the sums do so in half the steps in the mixture.",
        "Fig. 4, 23, 24: almost half the steps",
        "median step at 0.9 among runs that get there, mixture over alone, 64 wide, bootstrap,",
        below(0.75),
        "at least 3 runs of each arm get there",
        tuple(
            triplets(
                name, lambda row: row["solved_at"], 64, only=lambda row: row["solved_at"] < math.inf
            )
            for name in (MIXTURE, ALONE)
        ),
        median_ratio,
        at_least(MIN_RUNS),
        cost="0.4 core-hours: 16 runs an arm",
        fresh=True,
    ),
    ClaimTest(
        "t1",
        "On triplets sums alone take more than twice the width.",
        "10 times smaller models (Fig. 29)",
        f"width of sums alone over that in the mixture, exact shift test at 0.9, {WIDE},",
        above(2),
        "no larger model does worse; sums alone still gain from 32 to 64 wide",
        tuple(sizes(f"triplets {name}, by size", SOLVED, "width") for name in (ALONE, MIXTURE)),
        ratio(above(2)),
        comparable(above(2)),
        cost=T1,
        fresh=True,
    ),
    ClaimTest(
        "t2",
        "On triplets more mixtures solve the sums than models of sums alone twice as wide.",
        "10 times smaller models (Fig. 29)",
        f"share of runs at 0.9, mixture minus alone, {WIDE},",
        above(0),
        "some runs solve and some do not",
        tuple(
            cell(name, times * width)
            for width in (8, 16, 32)
            for name, times in ((MIXTURE, 1), (ALONE, 2))
        ),
        pooled_difference,
        some_but_not_all,
        cost=T1,
        fresh=True,
    ),
    ClaimTest(
        "t3",
        "On triplets size is not what sums alone lack.",
        "ours",
        "share of runs of sums alone at 0.9, 64 wide minus 32 wide,",
        below(0.3),
        "the mixture gains from 16 to 32 wide",
        (cell(ALONE, 64), cell(ALONE, 32)),
        difference,
        interval_above(0, difference),
        (cell(MIXTURE, 32), cell(MIXTURE, 16)),
        cost=T1,
        fresh=True,
        own=True,
    ),
    ClaimTest(
        "t4",
        "On triplets fewer models learn sums beside products than alone.",
        "ours; nested: 2.5 times fewer parameters (Fig. 1)",
        "share of runs at 0.9, ADD+PROD minus sums alone, 32 wide,",
        below(0),
        "at least 5 models of sums alone solve",
        (cell("ADD+PROD", 32), cell(ALONE, 32)),
        difference,
        value_in(5, of=sum),
        (cell(ALONE, 32),),
        cost=T2,
        fresh=True,
        own=True,
    ),
    ClaimTest(
        "r1",
        "Models of sums alone share one layout up to the symmetries of addition.",
        "ours",
        "agreement of models that solve up to x → ux, less as they stand, 32 wide, bootstrap,",
        above(0.2),
        "at least 10 models, and more agreement than fitting gives to permuted digits",
        (grams(ALONE, only=solved),),
        gain_of_fitting,
        beyond_fitting,
        cost=T1,
        fresh=True,
        own=True,
    ),
    ClaimTest(
        "r2",
        "Mixtures agree on the layout of the digits as they stand.",
        "averaged embeddings are regular (Fig. 2, 13)",
        "agreement of mixtures on triplets, 32 wide, bootstrap,",
        above(0.8),
        "at least 10 models",
        (grams(MIXTURE),),
        partial(over_models, agreement),
        at_least(ENOUGH),
        cost=T1,
        fresh=True,
    ),
    ClaimTest(
        "r3",
        "One mixture is more regular than one model of sums alone.",
        "highly regular structures in the embedding of inputs (abstract)",
        "largest effect of a layout in a model that solves, mixture minus alone, 32 wide, "
        "bootstrap,",
        above(0.1),
        "at least 10 models of each",
        tuple(cell(name, 32, best_effect, only=solved) for name in (MIXTURE, ALONE)),
        mean_difference,
        at_least(ENOUGH),
        cost=T1,
        fresh=True,
    ),
    ClaimTest(
        "r4",
        "Beside products the digits have a layout though sums are not learned.",
        "ours",
        "largest effect of a layout in the average of ADD+PROD, 32 wide, bootstrap,",
        above(0.5),
        "at least 10 models, each below 0.5 on sums",
        (grams("ADD+PROD"),),
        effect_of_average,
        every(at_least(ENOUGH), value_in(0, math.nextafter(0.5, 0), max)),
        (cell("ADD+PROD", 32), cell("ADD+PROD", 32, "accuracy")),
        cost=T2,
        fresh=True,
        own=True,
    ),
    ClaimTest(
        "r5",
        "In mixtures the number line comes before the sums.",
        "ours",
        "share of mixtures with a line's effect of 0.5 before 0.5 of the sums, 32 wide,",
        above(0.8),
        "no effect of 0.5 in initial weights",
        (cell(MIXTURE, 32, line_before_half, only=lambda row: max(row["curve"][1]) >= 0.5),),
        beside=(cell(MIXTURE, 32, lambda row: row["line"][1][0]),),
        check=value_in(-math.inf, math.nextafter(0.5, 0), max),
        cost=T1,
        fresh=True,
        own=True,
    ),
    ClaimTest(
        "r6",
        "Averaged embeddings of ADD+PROD on triplets separate parity.",
        "PC1 (Fig. 2), of models that learned",
        "p-value of the separation of even from odd in the first half of the components",
        below(0.05),
        "at least 10 models",
        (cell("ADD+PROD", 32, lambda row: np.array(row["similarity"])),),
        parity,
        at_least(ENOUGH),
        cost=T2,
        fresh=True,
    ),
    first_ratio_claim("u1", "attention", "writes more", "+0.18", above(0)),
    first_ratio_claim("u2", "MLP", "writes less", "-0.34", below(0)),
    pair_claim(
        "n1",
        "Beside MAX and MED models 48 wide learn nested sums better than alone 64 wide.",
        "less than half (n = 10, Fig. 20)",
        "ADD in MAX+MED+ADD",
        1.5,
        PAIR,
    ),
    pair_claim(
        "n2",
        "Beside PROD models 48 wide learn nested sums better than alone 64 wide.",
        "2.5 times fewer (n = 20, Fig. 1)",
        "ADD in ADD+PROD",
        1.5,
        PAIR,
    ),
    pair_claim(
        "n3",
        "Beside OP_TOP and OP_BOTTOM whole products 24 wide are learned better than alone 40 wide.",
        "5 to 6 times fewer (Fig. 7)",
        "OP in OP+OP_TOP+OP_BOTTOM",
        2,
        BLOCKS,
    ),
)
