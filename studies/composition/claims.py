"""The claims of the composition study."""

from __future__ import annotations

import math

import numpy as np

from mechint.studies.claims import (
    ClaimTest,
    Found,
    PositiveControl,
    above,
    below,
    claim,
    control_of,
)
from mechint.studies.composition.measures import LEARNED
from mechint.studies.rows import Row, Rows
from mechint.studies.statistics import Planned, mean, share

SHARE = 0.4
"""The bar for the share of runs that learn: more than two in five, not a rare lucky one."""

MOST = 0.9
"""Share of the runs of a curriculum that must pass its stages."""


def learned_all(row: Row) -> bool:
    """Return whether the run learned every hop that it was trained on."""
    return math.isfinite(max(row["learned_at"].values()))


def in_order(row: Row) -> bool:
    """No hop before a shorter one, and the longest after the first."""
    steps = list(row["learned_at"].values())
    return steps == sorted(steps) and steps[0] < steps[-1]


def longest(row: Row) -> float:
    """Last accuracy on the longest hop."""
    return list(row["last"].values())[-1]


def medians(rows: Rows) -> str:
    """Median steps at which hops were learned.

    >>> medians(Rows([{"learned_at": {"1": 150, "2": math.inf}}]))
    'medians: 1-hop step 150, 2-hop never'
    """
    words = []
    for hop in rows[0]["learned_at"]:
        steps = sorted(row["learned_at"][hop] for row in rows)
        middle = steps[len(steps) // 2]
        words.append(f"{hop}-hop {f'step {middle:g}' if math.isfinite(middle) else 'never'}")
    return f"medians: {', '.join(words)}"


def shortest_learned(rows: Rows) -> PositiveControl:
    """The control of runs on several hops: that they train at all."""
    return control_of([math.isfinite(next(iter(row["learned_at"].values()))) for row in rows])


def mixed(rows: Rows, arm: str) -> Found:
    """The share of an arm's runs that learn every hop."""
    runs = rows.where(arm=arm)
    return Found(share(list(map(learned_all, runs))), shortest_learned(runs), medians(runs))


@claim(
    "a",
    "From 4-hop labels alone a transformer with feed-forward layers stays at chance.",
    theirs="at chance (figure); N^Ω(k) queries (theorem)",
    statistic="share of direct runs whose last accuracy on the longest hop exceeds chance by 0.1",
    bar=below(SHARE),
    control="the mixture with the same readout and steps learns it in a share above 0.4",
    planned=Planned(8, at=0.0),
)
def direct(rows: Rows) -> Found:
    runs, beside = rows.where(arm="direct"), rows.where(arm="mixture-last")
    off = [longest(row) > row["chance"] + 0.1 for row in runs]
    learned = share([math.isfinite(list(row["learned_at"].values())[-1]) for row in beside])
    accuracy = float(np.mean([longest(row) for row in runs]))
    note = f"accuracy {accuracy:.2f} after {runs[0]['steps']:,} steps"
    return Found(share(off), PositiveControl(learned.low > SHARE, f"mixture {learned}"), note)


@claim(
    "b1",
    "A mixture with 1- and 2-hop labels, read after the last layer, learns all hops.",
    theirs="learns 1-, 2- and 4-hop (figure)",
    statistic="share of runs that learn every hop",
    bar=above(SHARE),
    control="every run learns the 1-hop",
    planned=Planned(16, at=0.75),
)
def mixture_last(rows: Rows) -> Found:
    return mixed(rows, "mixture-last")


@claim(
    "b2",
    "The mixture learns all hops where hop 2^(l-1) is read after layer l.",
    theirs="learns 1-, 2- and 4-hop (figure)",
    statistic="share of runs that learn every hop",
    bar=above(SHARE),
    control="every run learns the 1-hop",
    planned=Planned(8, at=0.9),
)
def mixture_staged(rows: Rows) -> Found:
    return mixed(rows, "mixture")


@claim(
    "b3",
    "In a mixture shorter hops are learned before longer ones.",
    theirs="1-hop, then 2-hop, then 4-hop (figure)",
    statistic="share in order, of the mixture runs of either readout that learned every hop",
    bar=above(0.5),
    control="at least 6 runs learned every hop",
    planned=Planned(20, at=0.9),
)
def order(rows: Rows) -> Found:
    runs = [*rows.where(arm="mixture"), *rows.where(arm="mixture-last")]
    learned = [row for row in runs if learned_all(row)]
    control = PositiveControl(len(learned) >= 6, f"{len(learned)} of {len(runs)}")
    return Found(share(list(map(in_order, learned))), control)


@claim(
    "b4",
    "One hop asked of each example, as in the paper's mixture, is enough.",
    theirs="a mixture of 1-, 2- and 4-hop data (figure)",
    statistic="share of runs that learn every hop, staged readout, three times the steps",
    bar=above(SHARE),
    control="every run learns the 1-hop",
    planned=Planned(16, at=0.75),
    cost="0.7 core-hours, at size overnight",
)
def one_hop_each(rows: Rows) -> Found:
    return mixed(rows, "mixture-one-hop-each")


def curriculum(rows: Rows, arm: str, least: float) -> Found:
    """The share of an arm's runs that end above LEARNED on the longest hop."""
    runs = rows.where(arm=arm)
    ends = [longest(row) > LEARNED for row in runs]
    note = f"last accuracy on the longest hop {mean([longest(row) for row in runs]).value:.2f}"
    return Found(share(ends), control_of(runs.column("passed_stages"), least), note)


@claim(
    "c1",
    "A curriculum of one hop a stage learns the 4-hop, hop 2^(l-1) read after layer l.",
    theirs="poly(N, k) samples suffice (theorem)",
    statistic="share of runs above 0.95 on the longest hop at the end, stages of 400 steps",
    bar=above(SHARE),
    control="nine in ten runs learn the hop of each earlier stage within it",
    planned=Planned(12, at=0.9),
    fresh=True,
)
def curriculum_staged(rows: Rows) -> Found:
    return curriculum(rows, "curriculum", MOST)


@claim(
    "c2",
    "The curriculum learns the 4-hop with every hop read after the last layer, too.",
    theirs="not said which readout",
    statistic="share of runs above 0.95 on the longest hop at the end",
    bar=above(SHARE),
    control="at least half of the runs learn the hop of each earlier stage within it",
    planned=Planned(8, at=0.9),
)
def curriculum_last(rows: Rows) -> Found:
    return curriculum(rows, "curriculum-last", 0.5)


def attention(rows: Rows, arm: str, layer: int) -> Found:
    """The mean share of a layer's queries that follow the construction, in runs that learned."""
    runs = [row for row in rows.where(arm=arm) if "followed" in row]
    start = mean(
        [row["followed_untrained"][layer - 1] for row in runs if "followed_untrained" in row]
    )
    met = len(runs) >= 3 and not start.value >= 0.5
    control = PositiveControl(met, f"{len(runs)} learned, {start.value:.2f} at the initial weights")
    return Found(mean([row["followed"][layer - 1] for row in runs], (0, 1)), control)


def pattern_claim(id: str, where: str, layer: int, fresh: bool = False) -> ClaimTest:
    """A claim about one layer's attention in the staged mixture."""
    return claim(
        id,
        f"Layer {layer} attends from (i, j) to {where}, in the feed-forward model.",
        theirs="the hop length doubles with every layer (construction)",
        statistic=f"share of layer {layer}'s queries that follow the target, block by block, by "
        "largest or least weight, mean over runs that learned every hop,",
        bar=above(0.5),
        control="at least 3 runs learned; below 0.5 at the initial weights",
        fresh=fresh,
    )(lambda rows: attention(rows, "mixture", layer))


@claim(
    "e",
    "A curriculum forgets its first hop by the end.",
    theirs="catastrophic forgetting is what a mixture avoids (slides)",
    statistic="share of curriculum runs below 0.95 on the shortest hop at the end, stages of 400 "
    "steps, hop 2^(l-1) read after layer l,",
    bar=above(SHARE),
    control="nine in ten runs learned the hop of each earlier stage within it",
    planned=Planned(12, at=0.9),
    fresh=True,
)
def forgetting(rows: Rows) -> Found:
    runs = rows.where(arm="curriculum")
    first = [next(iter(last.values())) for last in runs.column("last")]
    control = control_of(runs.column("passed_stages"), MOST)
    note = f"last accuracy on the shortest hop {mean(first).value:.2f}"
    return Found(share([one < LEARNED for one in first]), control, note)


CLAIMS = (
    direct,
    mixture_last,
    mixture_staged,
    order,
    one_hop_each,
    curriculum_staged,
    curriculum_last,
    pattern_claim("d1", "(i, π_i(j))", 1, fresh=True),
    pattern_claim("d2", "(i + 1, hop(j))", 2),
    pattern_claim("d3", "(i + 2, 2-hop(j))", 3),
    forgetting,
)
