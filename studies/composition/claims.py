"""The claims of the composition study."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

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
from mechint.studies.composition.measures import LEARNED
from mechint.studies.rows import Row, Rows
from mechint.studies.statistics import Planned, mean

SHARE = 0.4
"""The bar for the share of runs that learn: more than two in five, not a rare lucky one."""

MOST = 0.9
"""Share of the runs of a curriculum that must pass its stages."""


def learned_all(row: Row) -> bool:
    """Return whether the run learned every hop that it was trained on."""
    return math.isfinite(max(row["learned_at"].values()))


def learned_shortest(row: Row) -> bool:
    """The control of runs on several hops: that they train at all."""
    return math.isfinite(next(iter(row["learned_at"].values())))


def in_order(row: Row) -> bool:
    """No hop before a shorter one, and the longest after the first."""
    steps = list(row["learned_at"].values())
    return steps == sorted(steps) and steps[0] < steps[-1]


def longest(row: Row) -> float:
    """Last accuracy on the longest hop."""
    return list(row["last"].values())[-1]


def medians(rows: Rows, arm: str) -> str:
    """Median steps at which hops were learned.

    >>> medians(Rows([{"arm": "a", "learned_at": {"1": 150, "2": math.inf}}]), "a")
    'medians: 1-hop step 150, 2-hop never'
    """
    words, found = [], rows.where(arm=arm).column("learned_at")
    for hop in found[0]:
        steps = sorted(one[hop] for one in found)
        middle = steps[len(steps) // 2]
        words.append(f"{hop}-hop {f'step {middle:g}' if math.isfinite(middle) else 'never'}")
    return f"medians: {', '.join(words)}"


def learns_every_hop(arm: str) -> dict[str, Any]:
    """The share of an arm's runs that learn every hop."""
    return {
        "bar": above(SHARE),
        "samples": (Sample(arm, learned_all),),
        "control": "every run learns the 1-hop",
        "beside": (Sample(arm, learned_shortest),),
        "check": control_of,
        "note": lambda rows: medians(rows, arm),
    }


def passes_stages(arm: str, least: float) -> dict[str, Any]:
    """The control of a curriculum, in which a share of the runs must pass its stages."""
    return {"beside": (Sample(arm, "passed_stages"),), "check": partial(control_of, least=least)}


def follows(layer: int, where: str) -> dict[str, Any]:
    """The share of a layer's queries that follow the construction, in mixtures that learned."""

    def measured(name: str) -> Sample:
        return Sample("mixture", lambda row: row[name][layer - 1], only=lambda row: name in row)

    return {
        "statement": f"Layer {layer} attends from (i, j) to {where}, in the feed-forward model.",
        "theirs": "the hop length doubles with every layer (construction)",
        "statistic": f"share of layer {layer}'s queries that follow the target, block by block, by "
        "largest or least weight, mean over runs that learned every hop,",
        "bar": above(0.5),
        "samples": (measured("followed"),),
        "estimator": partial(mean, bounds=(0, 1)),
        "control": "at least 3 runs learned; below 0.5 at the initial weights",
        "beside": (measured("followed"), measured("followed_untrained")),
        "check": every(at_least(3), value_in(0, math.nextafter(0.5, 0))),
    }


CLAIMS = (
    ClaimTest(
        "a",
        "From 4-hop labels alone a transformer with feed-forward layers stays at chance.",
        theirs="at chance (figure); N^Ω(k) queries (theorem)",
        statistic="share of direct runs whose last accuracy on the longest hop exceeds chance by "
        "0.1",
        bar=below(SHARE),
        samples=(Sample("direct", lambda row: longest(row) > row["chance"] + 0.1),),
        control="the mixture with the same readout and steps learns it in a share above 0.4",
        beside=(
            Sample("mixture-last", lambda row: math.isfinite(list(row["learned_at"].values())[-1])),
        ),
        check=interval_above(SHARE),
        planned=Planned(8, at=0.0),
    ),
    ClaimTest(
        "b1",
        "A mixture with 1- and 2-hop labels, read after the last layer, learns all hops.",
        theirs="learns 1-, 2- and 4-hop (figure)",
        statistic="share of runs that learn every hop",
        **learns_every_hop("mixture-last"),
        planned=Planned(16, at=0.75),
    ),
    ClaimTest(
        "b2",
        "The mixture learns all hops where hop 2^(l-1) is read after layer l.",
        theirs="learns 1-, 2- and 4-hop (figure)",
        statistic="share of runs that learn every hop",
        **learns_every_hop("mixture"),
        planned=Planned(8, at=0.9),
    ),
    ClaimTest(
        "b3",
        "In a mixture shorter hops are learned before longer ones.",
        theirs="1-hop, then 2-hop, then 4-hop (figure)",
        statistic="share in order, of the mixture runs of either readout that learned every hop",
        bar=above(0.5),
        samples=(Sample(("mixture", "mixture-last"), in_order, only=learned_all),),
        control="at least 6 runs learned every hop",
        check=at_least(6),
        planned=Planned(20, at=0.9),
    ),
    ClaimTest(
        "b4",
        "One hop asked of each example, as in the paper's mixture, is enough.",
        theirs="a mixture of 1-, 2- and 4-hop data (figure)",
        statistic="share of runs that learn every hop, staged readout, three times the steps",
        **learns_every_hop("mixture-one-hop-each"),
        planned=Planned(16, at=0.75),
        cost="0.7 core-hours, at size overnight",
    ),
    ClaimTest(
        "c1",
        "A curriculum of one hop a stage learns the 4-hop, hop 2^(l-1) read after layer l.",
        theirs="poly(N, k) samples suffice (theorem)",
        statistic="share of runs above 0.95 on the longest hop at the end, stages of 400 steps",
        bar=above(SHARE),
        samples=(Sample("curriculum", lambda row: longest(row) > LEARNED),),
        control="nine in ten runs learn the hop of each earlier stage within it",
        **passes_stages("curriculum", MOST),
        planned=Planned(12, at=0.9),
        fresh=True,
    ),
    ClaimTest(
        "c2",
        "The curriculum learns the 4-hop with every hop read after the last layer, too.",
        theirs="not said which readout",
        statistic="share of runs above 0.95 on the longest hop at the end",
        bar=above(SHARE),
        samples=(Sample("curriculum-last", lambda row: longest(row) > LEARNED),),
        control="at least half of the runs learn the hop of each earlier stage within it",
        **passes_stages("curriculum-last", 0.5),
        planned=Planned(8, at=0.9),
    ),
    ClaimTest("d1", **follows(1, "(i, π_i(j))"), fresh=True),
    ClaimTest("d2", **follows(2, "(i + 1, hop(j))")),
    ClaimTest("d3", **follows(3, "(i + 2, 2-hop(j))")),
    ClaimTest(
        "e",
        "A curriculum forgets its first hop by the end.",
        theirs="catastrophic forgetting is what a mixture avoids (slides)",
        statistic="share of curriculum runs below 0.95 on the shortest hop at the end, stages of "
        "400 steps, hop 2^(l-1) read after layer l,",
        bar=above(SHARE),
        samples=(Sample("curriculum", lambda row: next(iter(row["last"].values())) < LEARNED),),
        control="nine in ten runs learned the hop of each earlier stage within it",
        **passes_stages("curriculum", MOST),
        planned=Planned(12, at=0.9),
        fresh=True,
    ),
)
