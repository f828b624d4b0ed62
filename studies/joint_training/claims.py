"""The claims of the joint-training study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechint.run_table.transitions import Transition, fit_transition
from mechint.studies.claims import ClaimTest, Found, PositiveControl, above, below, claim, near
from mechint.studies.joint_training.measures import SOLVED
from mechint.studies.joint_training.structure import (
    BY_SIZE,
    hold_parity,
    hold_ratio,
    sizes_of,
    solved,
)
from mechint.studies.rows import NoRunsError, Rows
from mechint.studies.statistics import (
    MIN_RUNS,
    Bar,
    Estimate,
    Planned,
    bootstrap,
    cohens_d,
    difference,
    mean,
    share,
)

STAR = 0.8
"""Accuracy at the star of the paper's Fig. 1 and 6, where an operation counts as learned."""

NESTED = "a GPU: the paper's n = 20 or 26, ten widths, five seeds, 20,000 steps"
SMALLER = 0.5

# --- triplets -------------------------------------------------------------------------------------


def triplets(rows: Rows, name: str, **labels: Any) -> Rows:
    """The runs of an arm on triplets."""
    return rows.where(arm=f"triplets {name}", **{"init": "normal", **labels})


def bootstrapped_mean(values: Sequence[float]) -> Estimate:
    """The mean of shares that pile up at their ends."""
    return bootstrap(lambda each: float(np.mean(each)), list(values))


MIXTURE, ALONE = "MAX+MED+ADD, early stop", "ADD, early stop"


@claim(
    "e1",
    "Beside maxima and medians more models solve held-out sums than alone.",
    theirs="100% against about 50% with early stopping (Fig. 29)",
    statistic="share of runs at 0.9, mixture of 2,700 minus 900 sums alone, early stop, 64 wide,",
    bar=above(0.2),
    control="the mixture's share is above 0.4",
    planned=None,
)
def mixture_against_alone(rows: Rows) -> Found:
    mixture, alone = solved(triplets(rows, MIXTURE)), solved(triplets(rows, ALONE))
    learned = share(mixture)
    return Found(
        difference(mixture, alone), PositiveControl(learned.low > 0.4, f"mixture {learned}")
    )


@claim(
    "e2",
    "The mixture reaches 100% on held-out sums.",
    theirs="100%",
    statistic="mean held-out accuracy, bootstrap,",
    bar=above(0.9),
    control="maxima and medians are at 0.95 on average where they are told apart",
    planned=Planned(16, 0.97, 0.06),
)
def mixture_reaches_all(rows: Rows) -> Found:
    runs = triplets(rows, MIXTURE)
    others = [
        at
        for row in runs
        for name, at in row.get("by_operation", {}).items()
        if name in ("MAX", "MED")
    ]
    known = float(np.mean(others)) if others else math.nan
    control = PositiveControl(not known < 0.95, f"{known:.2f}" if others else "held-out sums alone")
    return Found(bootstrapped_mean(runs.column("accuracy")), control)


@claim(
    "e3",
    "Sums alone reach about half of the held-out sums.",
    theirs="about 50%",
    statistic="mean held-out accuracy with the early stop, 64 wide, bootstrap,",
    bar=near(0.5, 0.2),
    control="some runs solve and some do not",
    planned=Planned(48, 0.55, 0.43),
    cost="0.5 core-hours: 48 runs",
    fresh=True,
)
def alone_reaches_half(rows: Rows) -> Found:
    runs = triplets(rows, ALONE)
    learned = share(solved(runs))
    control = PositiveControl(0 < learned.value < 1, f"{learned.shown} solve")
    return Found(bootstrapped_mean(runs.column("accuracy")), control)


@claim(
    "e5",
    "Over widths 8 to 64 more mixtures solve the sums than models of sums alone.",
    theirs="10 times smaller models (Fig. 29)",
    statistic="share of runs at 0.9, mixture minus alone, 12 a width, no early stop,",
    bar=above(0.2),
    control="the mixture's share is above 0.4 at the widest",
    late=True,
)
def over_widths(rows: Rows) -> Found:
    mixture, alone = (triplets(rows, name) for name in ("MAX+MED+ADD", "ADD"))
    widest = share(solved(mixture.where(width=max(mixture.values_of("width")))))
    control = PositiveControl(widest.low > 0.4, f"widest {widest}")
    return Found(difference(solved(mixture), solved(alone)), control)


@claim(
    "e6",
    "With 300 sums beside maxima and medians a model 16 wide reaches half.",
    theirs="50% with a 10 times smaller model (Fig. 29)",
    statistic="mean held-out accuracy, 16 wide,",
    bar=above(0.5),
    control="64 wide it is above 0.5",
    late=True,
    planned=Planned(8, 0.85, 0.2),
)
def few_sums(rows: Rows) -> Found:
    runs = triplets(rows, "300 each of MAX+MED+ADD")
    wide = mean(runs.where(width=64).column("accuracy"), (0, 1))
    return Found(
        mean(runs.where(width=16).column("accuracy"), (0, 1)),
        PositiveControl(wide.low > 0.5, f"64 wide {wide}"),
    )


@claim(
    "p",
    "Those that solve the sums do so in half the steps in the mixture.",
    theirs="Fig. 4, 23, 24: almost half the steps",
    statistic="median step at 0.9 among runs that get there, mixture over alone, 64 wide, "
    "bootstrap,",
    bar=below(0.75),
    control="at least 3 runs of each arm get there",
    cost="0.4 core-hours: 16 runs an arm",
    fresh=True,
)
def faster(rows: Rows) -> Found:
    groups = [
        [at for at in triplets(rows, name, width=64).column("solved_at") if math.isfinite(at)]
        for name in ("MAX+MED+ADD", "ADD")
    ]
    few = min(map(len, groups))
    if not few:
        raise NoRunsError("an arm of which no run solves")
    shown = " and ".join(f"{np.median(each):,.0f}" for each in groups)
    return Found(
        bootstrap(lambda a, b: float(np.median(a) / np.median(b)), *groups),
        PositiveControl(few >= MIN_RUNS, f"{len(groups[0])} and {len(groups[1])}"),
        f"medians of {shown} steps",
    )


# --- transitions over model size ------------------------------------------------------------------


def transition(rows: Rows, arm: str) -> Transition:
    """The fitted curve of an arm's accuracy over its parameters."""
    runs = rows.where(arm=arm).having("parameters")
    return fit_transition(runs.column("parameters"), runs.column("accuracy"))


def inside(fits: Mapping[str, Transition], level: float = SMALLER) -> PositiveControl:
    """Every curve passes the level inside the range of sizes, by the interval of its point, from at
    least MIN_RUNS runs of every size.
    """
    words = []
    for arm, fit in fits.items():
        low, high = fit.interval(level)
        if not low or math.isinf(high):
            words.append(f"{arm} leaves the range of sizes")
        elif np.unique(fit.parameters, return_counts=True)[1].min() < MIN_RUNS:
            words.append(f"{arm} has fewer than {MIN_RUNS} runs at a size")
    return PositiveControl(not words, "; ".join(words) or "all inside")


def factor_claim(
    id: str,
    statement: str,
    theirs: str,
    arms: tuple[str, str],
    bar: Bar,
    level: float = SMALLER,
    cost: str = NESTED,
    late: bool = False,
) -> ClaimTest:
    """A claim about the factor between the transition points of two arms."""

    @claim(
        id,
        statement,
        theirs=theirs,
        statistic=f"parameters of {arms[0]} over those of {arms[1]}, exact shift test at {level}, "
        "profile likelihood,",
        bar=bar,
        control="runs of both a bar apart; no larger model does worse; no plateau",
        cost=cost,
        late=late,
    )
    def judge(rows: Rows) -> Found:
        first, second = (sizes_of(rows, arm, level) for arm in arms)
        return hold_ratio(first, second, bar)

    return judge


@claim(
    "d1",
    "A shuffled addition table is not learned in the mixture.",
    theirs="about 20% (n = 26)",
    statistic="mean accuracy on shuffled ADD in the mixture, where the true mixture does best,",
    bar=below(0.35),
    control="the true mixture is at 0.9 there",
    planned=Planned(5, 0.2, 0.08),
    cost=NESTED,
)
def shuffled_table(rows: Rows) -> Found:
    true = rows.where(arm="ADD in MAX+MED+ADD, n = 26").by("width")
    best = max(true, key=lambda width: float(np.mean(true[width].column("accuracy"))))
    reached = float(np.mean(true[best].column("accuracy")))
    runs = rows.where(arm="shuffled ADD in MAX+MED+ADD, n = 26", width=best)
    control = PositiveControl(reached >= SOLVED, f"true {reached:.2f}, {best} wide")
    return Found(mean(runs.column("accuracy"), (0, 1)), control)


def averaged_parity(id: str, arm: str, theirs: str, cost: str) -> ClaimTest:
    """A claim about the averaged embeddings of the models of an arm that learned sums."""

    @claim(
        id,
        f"Averaged embeddings of models that learned {arm} separate parity.",
        theirs=theirs,
        statistic="p-value of the separation of even from odd in the first half of the components",
        bar=below(0.05),
        control="at least 10 models are at 0.9",
        cost=cost,
    )
    def judge(rows: Rows) -> Found:
        runs = rows.where(arm=arm)
        kept = [
            np.array(row["similarity"])
            for row in runs
            if "similarity" in row and row["accuracy"] >= SOLVED
        ]
        if not kept:
            raise NoRunsError(f"no embedding of a model that learned {arm} is kept")
        return hold_parity(kept)

    return judge


def ratio_claim(id: str, kind: str, theirs: str, bar: Bar, says: str) -> ClaimTest:
    """A claim about the norm ratios of a sublayer, mixture against sums alone."""

    @claim(
        id,
        f"On sums the mixture's last layer {says} than that of sums alone.",
        theirs=theirs,
        statistic=f"Cohen's d over models at 0.95 of the mean log norm ratio of {kind} at = and >,",
        bar=bar,
        control="at least 3 models an arm",
        cost=NESTED,
    )
    def judge(rows: Rows) -> Found:
        groups = [
            [
                row["ratios"][f"L2 {kind}"]
                for row in rows.where(arm=f"{arm}, three layers")
                if row["accuracy"] >= 0.95
            ]
            for arm in ("ADD in MAX+MED+ADD", "ADD")
        ]
        few = min(map(len, groups))
        return Found(cohens_d(*groups), PositiveControl(few >= MIN_RUNS, f"{few} models an arm"))

    return judge


def curriculum_claim(id: str, width: int) -> ClaimTest:
    """A claim about sums after maxima and medians, at one width."""

    @claim(
        id,
        f"A model {width} wide learns sums after maxima and medians that it does not learn alone.",
        theirs="48 wide (Fig. 5), and even 24, about 7 times smaller",
        statistic="share of runs at 0.9 on ADD, after MAX+MED minus alone, same steps,",
        bar=above(0.2),
        control="alone at most half get there; MAX and MED were at 0.9 when ADD came",
        cost="1.3 core-hours: 24 wide with twice the steps",
        late=True,
    )
    def judge(rows: Rows) -> Found:
        after, alone = (
            rows.where(arm=arm, width=width) for arm in ("curriculum", "ADD beside the curriculum")
        )
        known = {
            name: float(np.mean([one[name] for one in after.column("proficiency")]))
            for name in ("MAX", "MED")
        }
        few = sum(solved(alone)) * 2 <= len(alone)
        shown = ", ".join(f"{name} {at:.2f}" for name, at in known.items())
        control = PositiveControl(few and min(known.values()) >= SOLVED, shown)
        return Found(difference(solved(after), solved(alone)), control)

    return judge


CELLS = tuple(f"{m} operands, depth {k}" for m in (3, 4, 5) for k in (3, 4, 5))


@claim(
    "j",
    "One level of nesting more costs more than one operand more.",
    theirs="Fig. 34",
    statistic="factor of a level over that of an operand, 50% points, bootstrap,",
    bar=above(1),
    control="every curve passes 50% inside the range of sizes",
    cost=NESTED,
)
def nesting_costs_more(rows: Rows) -> Found:
    fits = {arm: transition(rows, arm) for arm in CELLS}
    draws = np.log([fit.draws() for fit in fits.values()]).reshape(
        3, 3, -1
    )  # operands, depth, draw
    costs = np.exp(np.diff(draws, axis=1).mean((0, 1)) - np.diff(draws, axis=0).mean((0, 1)))
    low, high = np.quantile(costs, (0.025, 0.975))
    n = min(len(fit.accuracies) for fit in fits.values())
    return Found(Estimate(float(np.median(costs)), float(low), float(high), n), inside(fits))


@claim(
    "k1",
    "Without a chain of thought sums are not learned.",
    theirs="Fig. 30",
    statistic="share of runs of ADD without steps at 0.5 or more, all widths,",
    bar=below(0.25),
    control="with steps ADD passes 50% in some run",
    planned=Planned(15, 0.0),
    cost="7 core-hours",
)
def no_sums_without_steps(rows: Rows) -> Found:
    flags = [at >= 0.5 for at in rows.where(arm="ADD, no steps").column("accuracy")]
    seen = [at >= 0.5 for at in rows.where(arm="ADD").column("accuracy")]
    return Found(share(flags), PositiveControl(any(seen), f"{sum(seen)} of {len(seen)}"))


TABLE = "ADD, uneven table", "ADD, even table"

CLAIMS = (
    *(
        factor_claim(id, says, theirs, arms, bar)
        for id, says, theirs, arms, bar in (
            ("a1", "MED takes more parameters than MAX.", "Fig. 1", ("MED", "MAX"), above(1)),
            (
                "a2",
                "ADD takes three times the parameters of MED.",
                "Fig. 1: an order of magnitude",
                ("ADD", "MED"),
                above(3),
            ),
            (
                "a3",
                "NADD takes three times the parameters of MED.",
                "Fig. 1: an order of magnitude",
                ("NADD", "MED"),
                above(3),
            ),
            (
                "a4",
                "PROD at a prime takes three times the parameters of PROD at n = 20.",
                "Fig. 1",
                ("PROD prime", "PROD"),
                above(3),
            ),
        )
    ),
    factor_claim(
        "b1",
        "Beside MAX and MED sums take fewer parameters.",
        "less than half (n = 10, Fig. 20)",
        ("ADD", "ADD in MAX+MED+ADD"),
        above(1.5),
        STAR,
        "17 core-hours: ADD alone with 30,000 steps",
        late=True,
    ),
    factor_claim(
        "b2",
        "Beside PROD sums take fewer parameters.",
        "2.5 times fewer (n = 20, Fig. 1)",
        ("ADD", "ADD in ADD+PROD"),
        above(1.5),
        STAR,
        "17 core-hours: ADD alone with 30,000 steps",
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
    shuffled_table,
    factor_claim(
        "d2",
        "In the mixture a shuffled table takes no fewer parameters.",
        "twice the parameters (Fig. 3)",
        ("shuffled ADD, n = 26", "shuffled ADD in MAX+MED+ADD, n = 26"),
        below(1),
    ),
    *(mixture_against_alone, mixture_reaches_all, alone_reaches_half),
    *(over_widths, few_sums),
    factor_claim(
        "f",
        "Beside OP_TOP and OP_BOTTOM whole products take far fewer parameters.",
        "5 to 6 times fewer (Fig. 7)",
        ("OP", "OP in OP+OP_TOP+OP_BOTTOM"),
        above(2),
        cost="2.5 to 4 core-hours: 5 widths, 6 seeds an arm",
        late=True,
    ),
    averaged_parity("g1", "ADD in ADD+PROD", "PC1 (Fig. 2)", "1 core-hour: ten models 48 wide"),
    averaged_parity(
        "g2", "ADD in MAX+MED+ADD", "top components (Fig. 13)", "1 core-hour: ten models 48 wide"
    ),
    averaged_parity(
        "g3", "ADD", "PC1 and PC2 (Fig. 2)", "30,000 steps a run: 0 of 29 got to 0.9 in 10,000"
    ),
    ratio_claim("h1", "attention", "d = +0.18 (Fig. 31)", above(0), "attends more"),
    ratio_claim("h2", "MLP", "d = -0.34 (Fig. 31)", below(0), "feeds forward less"),
    curriculum_claim("i1", 48),
    curriculum_claim("i2", 24),
    nesting_costs_more,
    no_sums_without_steps,
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
    faster,
    *BY_SIZE,
)
