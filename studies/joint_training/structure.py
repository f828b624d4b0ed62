"""Claims on triplets over sizes, and on pairs of widths: how much larger models of sums alone must
be, and the layouts of the digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mechint.decide import YES, Decision
from mechint.groups.layouts import agreement, align, find_layouts
from mechint.run_table.shifts import (
    LEVEL,
    GroupRuns,
    at_most,
    at_most_by_rank,
    decide_ratio,
    estimate_ratio,
    falling,
    has_plateau,
    strata,
)
from mechint.studies.claims import ClaimTest, Found, PositiveControl, above, below
from mechint.studies.joint_training.measures import SOLVED, parity_separation
from mechint.studies.rows import NoRunsError, Rows
from mechint.studies.statistics import Bar, Estimate, bootstrap, cohens_d, difference, share

Array = NDArray[np.float64]
PERMUTATIONS, FITTINGS, DRAWS = 199, 40, 200
"""Permuted tokens of a layout; of fitting alone; draws of the bootstrap over models."""
ORDERS = 199
"""Orders of the digits against which a separation is judged; ten have 126 different ones."""
ENOUGH = 10
"""Models of which an average says something."""
MIXTURE, ALONE = "MAX+MED+ADD", "ADD"


# --- what is read of rows -------------------------------------------------------------------------
def cell(rows: Rows, name: str, width: int) -> Rows:
    """The runs of an arm on triplets, of one width."""
    return rows.where(arm=f"triplets {name}, by size", width=width)


def solved(rows: Rows) -> list[bool]:
    """For each run, whether it has learned."""
    return [accuracy >= SOLVED for accuracy in rows.column("accuracy")]


def residuals(rows: Rows, learned: bool = False) -> Array:
    """(run, n, n) Gram matrices of the digits beyond isotropy, of those that learned if asked."""
    found = [row["beyond_isotropy"] for row in rows if not learned or row["accuracy"] >= SOLVED]
    if not found:
        raise NoRunsError("no run solves")
    return np.array(found)


def sizes_of(rows: Rows, arm: str, level: float, size: str = "parameters") -> GroupRuns:
    """The runs of an arm, each with its size and whether it is at `level`."""
    runs = rows.where(arm=arm).having(size)
    return GroupRuns.of(runs.column(size), [at >= level for at in runs.column("accuracy")])


# --- estimators -----------------------------------------------------------------------------------
def hold_ratio(first: GroupRuns, second: GroupRuns, bar: Bar) -> Found:
    """The factor by which the first group must be larger, by the exact shift test and the profile
    likelihood.
    """
    ratio = estimate_ratio(first, second)
    ends = [end for end in bar if math.isfinite(end)]
    wrong = [f"no runs of both {end:g} apart" for end in ends if not strata(first, second, end)]
    if min(falling(first), falling(second)) <= 0.05:
        wrong.append("a larger model does worse")
    if has_plateau(first):
        wrong.append("size is not its limit")
    p_values = ", ".join(f"{at_most(first, second, end):.2g} that at most {end:g}" for end in ends)
    return Found(
        Estimate(ratio.value, ratio.low, ratio.high, min(len(first.sizes), len(second.sizes))),
        PositiveControl(not wrong, "; ".join(wrong) or "none falls, no plateau"),
        f"exact p {p_values}",
        decide_ratio(first, second, bar, ratio),
    )


def hold_pair(rows: Rows, mixture: str, ratio: float) -> Found:
    """Accuracies of one width in the mixture against those of a larger one alone, by rank sum: the
    share of pairs in which the mixture does better.
    """
    small, large = (
        rows.where(arm=f"{name}, one width") for name in (mixture, mixture[: mixture.index(" in ")])
    )
    larger, smaller = (
        GroupRuns.of(runs.column("parameters"), runs.column("accuracy")) for runs in (large, small)
    )
    better = bootstrap(_share_above, list(smaller.values), list(larger.values), draws=500)
    apart = float(larger.sizes.min() / smaller.sizes.max())
    most = at_most_by_rank(larger, smaller, ratio)
    worse = at_most_by_rank(smaller, larger, 1 / apart)
    verdict = YES if most <= LEVEL else Decision("no" if worse <= LEVEL else "unclear", "by rank")
    control = PositiveControl(apart >= ratio, f"sizes {apart:.2g} apart")
    shown = f"means {smaller.values.mean():.2f} and {larger.values.mean():.2f}"
    return Found(better, control, f"{shown}; p {most:.2g} that at most {ratio:g}", verdict)


def _share_above(first: Sequence[float], second: Sequence[float]) -> float:
    """Share of pairs in which the first is larger, ties half."""
    apart = np.subtract.outer(np.asarray(first), np.asarray(second))
    return float(((apart > 0) + (apart == 0) / 2).mean())


def over_models(statistic: Callable[[Array, Sequence[int]], float], found: Array) -> Estimate:
    """A statistic of several models' matrices: bootstrap over models; the statistic gets which of
    them each is, since a model drawn twice is no pair.
    """

    def of(drawn: Sequence[tuple[int, Array]]) -> float:
        return statistic(np.array([one for _, one in drawn]), [i for i, _ in drawn])

    return bootstrap(of, list(enumerate(found)), draws=DRAWS)


def best_effects(found: Array) -> list[float]:
    """The largest effect of each model."""
    return [max(find_layouts(one, PERMUTATIONS).effects.values()) for one in found]


def fitting_alone(found: Array) -> Array:
    """(fitting,) agreement that fitting gives to models whose tokens were permuted."""
    draw, n = np.random.default_rng(0), found.shape[-1]
    shuffled = (
        np.array([one[np.ix_(order, order)] for one in found for order in (draw.permutation(n),)])
        for _ in range(FITTINGS)
    )
    return np.array([agreement(align(each)) for each in shuffled])


# --- what each claim measures ---------------------------------------------------------------------
def takes_twice_the_width(rows: Rows) -> Found:
    alone, mixture = (
        sizes_of(rows, f"triplets {name}, by size", SOLVED, "width") for name in (ALONE, MIXTURE)
    )
    return hold_ratio(alone, mixture, above(2))


def half_the_width(rows: Rows) -> Found:
    pairs = [
        (solved(cell(rows, MIXTURE, width)), solved(cell(rows, ALONE, 2 * width)))
        for width in (8, 16, 32)
    ]
    mixture, alone = ([flag for pair in pairs for flag in pair[side]] for side in (0, 1))
    seen = share([*mixture, *alone])
    return Found(
        difference(mixture, alone), PositiveControl(0 < seen.value < 1, f"{seen.shown} solve")
    )


def plateau(rows: Rows) -> Found:
    gain = difference(*(solved(cell(rows, ALONE, width)) for width in (64, 32)))
    mixture = difference(*(solved(cell(rows, MIXTURE, width)) for width in (32, 16)))
    return Found(gain, PositiveControl(mixture.low > 0, f"the mixture gains {mixture}"))


def beside_products(rows: Rows) -> Found:
    mixed, alone = solved(cell(rows, "ADD+PROD", 32)), solved(cell(rows, ALONE, 32))
    return Found(difference(mixed, alone), PositiveControl(sum(alone) >= 5, f"{sum(alone)} alone"))


def copies(rows: Rows) -> Found:
    found = residuals(cell(rows, ALONE, 32), learned=True)
    gain = over_models(lambda each, own: agreement(align(each), own) - agreement(each, own), found)
    fitted, alone = agreement(align(found)), fitting_alone(found)
    met = len(found) >= ENOUGH and fitted > float(np.quantile(alone, 0.95))
    shown = f"{len(found)} models, {fitted:.2f} after fitting, {alone.mean():.2f} of fitting alone"
    return Found(gain, PositiveControl(met, shown), f"{agreement(found):.2f} as they stand")


def mixtures_agree(rows: Rows) -> Found:
    found = residuals(cell(rows, MIXTURE, 32))
    shown = f"{len(found)} models"
    return Found(over_models(agreement, found), PositiveControl(len(found) >= ENOUGH, shown))


def more_regular(rows: Rows) -> Found:
    groups = [
        best_effects(residuals(cell(rows, name, 32), learned=True)) for name in (MIXTURE, ALONE)
    ]
    means = [float(np.mean(one)) for one in groups]
    apart = bootstrap(lambda a, b: float(np.mean(a) - np.mean(b)), *groups)
    control = PositiveControl(
        min(map(len, groups)) >= ENOUGH, " and ".join(str(len(one)) for one in groups)
    )
    return Found(apart, control, f"means {means[0]:.2f} and {means[1]:.2f}")


def regular_without_learning(rows: Rows) -> Found:
    runs = cell(rows, "ADD+PROD", 32)
    found, accuracies = residuals(runs), runs.column("accuracy")
    whole = find_layouts(found.mean(0), PERMUTATIONS)
    name = max(whole.effects, key=lambda one: whole.effects[one])
    effect = over_models(lambda each, _: whole.effect_of(each.mean(0))[name], found)
    most = max(accuracies)
    shown = f"{len(found)} models, at most {most:.2f} of the sums"
    return Found(effect, PositiveControl(len(found) >= ENOUGH and most < 0.5, shown), name)


def line_first(rows: Rows) -> Found:
    flags = []
    for row in cell(rows, MIXTURE, 32):
        half = next((step for step, at in zip(*row["curve"], strict=True) if at >= 0.5), None)
        if half is not None:
            before = [effect for step, effect in zip(*row["line"], strict=True) if step < half]
            flags.append(max(before, default=0.0) >= 0.5)
    first = [row["line"][1][0] for row in cell(rows, MIXTURE, 32)]
    control = PositiveControl(max(first) < 0.5, f"at most {max(first):.2f} at the first step")
    return Found(share(flags), control)


def products_separate_parity(rows: Rows) -> Found:
    kept = [np.array(row["similarity"]) for row in cell(rows, "ADD+PROD", 32)]
    return hold_parity(kept)


def hold_parity(kept: Sequence[Array]) -> Found:
    """The p-value of the separation of even from odd in the averaged similarity."""
    half = len(kept[0]) // 2
    found, at, p = parity_separation(np.mean(kept, 0), half, ORDERS)
    again = bootstrap(
        lambda each: parity_separation(np.mean(each, 0), half, ORDERS)[2], kept, draws=80
    )
    words = f"share {found:.2f} of component {at}"
    control = PositiveControl(len(kept) >= ENOUGH, f"{len(kept)} models")
    return Found(Estimate(p, again.low, again.high, len(kept), words), control)


def ratio_of(sublayer: str) -> Callable[[Rows], Found]:
    """Norm ratios of a sublayer on sums, mixture against sums alone: the unit is the model."""

    def judge(rows: Rows) -> Found:
        groups = [
            [one[sublayer] for one in cell(rows, name, 32).column("ratios")]
            for name in (MIXTURE, ALONE)
        ]
        few = min(map(len, groups))
        return Found(cohens_d(*groups), PositiveControl(few >= ENOUGH, f"{few} models an arm"))

    return judge


T1, T2 = "0.7 core-hours: 216 runs on triplets", "0.1 core-hours: 12 runs on triplets"
NESTED, BLOCKS = "1.6 core-hours: 22 nested runs", "0.6 core-hours: 40 runs"
WIDE = "64, 32 and 16 wide alone, 32, 16 and 8 wide in the mixture, 36 runs each"
MODELS = "at least 10 models"

# id, statement, the paper's, statistic, bar, control, judge, cost, ours
TABLE: tuple[tuple[str, str, str, str, Bar, str, Callable[[Rows], Found], str, bool], ...] = (
    (
        "t1",
        "On triplets sums alone take more than twice the width.",
        "10 times smaller models (Fig. 29)",
        f"width of sums alone over that in the mixture, exact shift test at 0.9, {WIDE},",
        above(2),
        "no larger model does worse; sums alone still gain from 32 to 64 wide",
        takes_twice_the_width,
        T1,
        False,
    ),
    (
        "t2",
        "On triplets more mixtures solve the sums than models of sums alone twice as wide.",
        "10 times smaller models (Fig. 29)",
        f"share of runs at 0.9, mixture minus alone, {WIDE},",
        above(0),
        "some runs solve and some do not",
        half_the_width,
        T1,
        False,
    ),
    (
        "t3",
        "On triplets size is not what sums alone lack.",
        "ours",
        "share of runs of sums alone at 0.9, 64 wide minus 32 wide,",
        below(0.3),
        "the mixture gains from 16 to 32 wide",
        plateau,
        T1,
        True,
    ),
    (
        "t4",
        "On triplets fewer models learn sums beside products than alone.",
        "ours; nested: 2.5 times fewer parameters (Fig. 1)",
        "share of runs at 0.9, ADD+PROD minus sums alone, 32 wide,",
        below(0),
        "at least 5 models of sums alone solve",
        beside_products,
        T2,
        True,
    ),
    (
        "r1",
        "Models of sums alone share one layout up to the symmetries of addition.",
        "ours",
        "agreement of models that solve up to x → ux, less as they stand, 32 wide, bootstrap,",
        above(0.2),
        "at least 10 models, and more agreement than fitting gives to permuted digits",
        copies,
        T1,
        True,
    ),
    (
        "r2",
        "Mixtures agree on the layout of the digits as they stand.",
        "averaged embeddings are regular (Fig. 2, 13)",
        "agreement of mixtures on triplets, 32 wide, bootstrap,",
        above(0.8),
        MODELS,
        mixtures_agree,
        T1,
        False,
    ),
    (
        "r3",
        "One mixture is more regular than one model of sums alone.",
        "highly regular structures in the embedding of inputs (abstract)",
        "largest effect of a layout in a model that solves, mixture minus alone, 32 wide, "
        "bootstrap,",
        above(0.1),
        "at least 10 models of each",
        more_regular,
        T1,
        False,
    ),
    (
        "r4",
        "Beside products the digits have a layout though sums are not learned.",
        "ours",
        "largest effect of a layout in the average of ADD+PROD, 32 wide, bootstrap,",
        above(0.5),
        "at least 10 models, each below 0.5 on sums",
        regular_without_learning,
        T2,
        True,
    ),
    (
        "r5",
        "In mixtures the number line comes before the sums.",
        "ours",
        "share of mixtures with a line's effect of 0.5 before 0.5 of the sums, 32 wide,",
        above(0.8),
        "no effect of 0.5 in initial weights",
        line_first,
        T1,
        True,
    ),
    (
        "r6",
        "Averaged embeddings of ADD+PROD on triplets separate parity.",
        "PC1 (Fig. 2), of models that learned",
        "p-value of the separation of even from odd in the first half of the components",
        below(0.05),
        MODELS,
        products_separate_parity,
        T2,
        False,
    ),
    *(
        (
            id,
            f"On triplets the mixture's first {kind} {says} than that of sums alone.",
            f"ours; last layer: d = {theirs} (Fig. 31)",
            f"Cohen's d over models of the mean log norm ratio of L0 {kind} at =, 32 wide,",
            bar,
            MODELS,
            ratio_of(f"L0 {kind}"),
            T1,
            True,
        )
        for id, kind, says, theirs, bar in (
            ("u1", "attention", "writes more", "+0.18", above(0)),
            ("u2", "MLP", "writes less", "-0.34", below(0)),
        )
    ),
    *(
        (
            id,
            f"Beside {others} models 48 wide learn nested sums better than alone 64 wide.",
            theirs,
            "share of pairs in which the mixture does better, rank sum at 1.5 times the size,",
            above(0.5),
            "sizes 1.5 times apart",
            lambda rows, arm=arm: hold_pair(rows, arm, 1.5),
            NESTED,
            False,
        )
        for id, others, arm, theirs in (
            ("n1", "MAX and MED", "ADD in MAX+MED+ADD", "less than half (n = 10, Fig. 20)"),
            ("n2", "PROD", "ADD in ADD+PROD", "2.5 times fewer (n = 20, Fig. 1)"),
        )
    ),
    (
        "n3",
        "Beside OP_TOP and OP_BOTTOM whole products 24 wide are learned better than alone 40 wide.",
        "5 to 6 times fewer (Fig. 7)",
        "share of pairs in which the mixture does better, rank sum at twice the parameters,",
        above(0.5),
        "sizes twice apart",
        lambda rows: hold_pair(rows, "OP in OP+OP_TOP+OP_BOTTOM", 2),
        BLOCKS,
        False,
    ),
)
BY_SIZE = tuple(ClaimTest(*row[:6], row[6], cost=row[7], fresh=True, own=row[8]) for row in TABLE)
