"""Claims a and b of the remainders paper: which primes are learned, and when."""

from __future__ import annotations

import math

import numpy as np

from mechint.studies.core.claims import Criterion, Finding, Replaced, claim
from mechint.studies.core.evidence import mean_within, share_within
from mechint.studies.core.study import mean_and_spread
from mechint.studies.remainders.measures import (
    EASY,
    GENERALIZED,
    HALFWAY,
    SHARE,
    Measures,
    in_steps,
    rank_correlation,
)

NIGHT = ("overnight", "full")
TWO_IN_FIVE = (
    "The paper shows one model; a claim about training holds of more than two runs in five, not of "
    "a rare lucky one. 5 of 5 have their lower end at 0.48: five runs cannot show that it holds of "
    "most."
)
THAT_LEARNED = (
    "The paper's is a model that has learned all primes; runs that have not are shown beside."
)
EVERY_RUN = (
    "The paper shows one model and says of no run that it is like every other; in every run was "
    "missed by one of six, where the interval of their share tells neither way."
)


@claim(
    "a",
    statement="one model learns the remainders by all primes below p",
    paper="validation accuracy 1 for all 29 primes (p = 113, 65,536 epochs)",
    criterion=Criterion(
        "The least held-out accuracy of any prime at the last step is at least {bar:g} in a share "
        "of the main runs whose 95% exact interval lies above {share:g}. Control: that of 2 is, in "
        "every run.",
        bar=GENERALIZED,
        share=SHARE,
    ),
    reason=(
        f"The last step, never the best. {TWO_IN_FIVE} At p = 47 a run is a ninth as long as the "
        "paper's, with 80% train, and some primes still rise at its end."
    ),
    replaced=(
        Replaced(
            "the least held-out accuracy of any prime at the last step is at least 0.9 in every "
            "main run",
            "reproduced",
            "0.95 ± 0.04 (2 runs)",
            "Two main runs; now at least three.",
        ),
        Replaced(
            "the least held-out accuracy of any prime at the last step is at least 0.9 in every "
            "one of at least three main runs",
            "not reproduced",
            "5 of 6 runs, 95% interval [0.36, 1.00]; 0.94 ± 0.05 (6 runs)",
            EVERY_RUN,
        ),
    ),
)
def all_primes(study: Measures, criterion: Criterion) -> Finding:
    """The least held-out accuracy of any prime in every main run."""
    finals = {name: study.final(name) for name in study.names("main")}
    least = [min(final.values()) for final in finals.values()]
    shown = f"least held-out accuracy {mean_and_spread(least)}"
    mean = float(np.mean([list(final.values()) for final in finals.values()]))
    primes = len(next(iter(finals.values())))
    return Finding(
        [
            share_within(
                "runs with all primes",
                sum(one >= criterion["bar"] for one in least),
                len(least),
                low=criterion["share"],
            )
        ],
        f"{shown} of {primes} primes; mean over primes {mean:.3f}",
        {"final": finals},
        control=study.every_run(
            "2 learned", "main", lambda name: study.final(name)[2] >= criterion["bar"]
        ),
    )


@claim(
    "b",
    statement="2, 3, 5 and 7 generalize first and in that order, the others later in no order",
    paper="2, 3, 5, 7 in that order, the other 25 around epoch 40,000 in no particular order",
    criterion=Criterion(
        "By onsets, the first steps at which a prime is {half:.0%} of the way from chance to 1: "
        "those of 2, 3, 5, 7 do not fall, 7 comes after 2 and none of the others before 7, and the "
        "others' interquartile range is smaller than the gap from 7 to their median, each in a "
        "share of the main runs whose 95% exact interval lies above {share:g}; a run in which 2, "
        "3, 5 and 7 come at one evaluation does not count for their order; and the mean rank "
        "correlation of the others' onsets with their size lies within {rank:g} of 0, by its 95% "
        "interval. Control: every prime gets so far in every main run.",
        half=HALFWAY,
        share=SHARE,
        rank=0.5,
    ),
    reason=(
        "Ties within one evaluation are no disorder, and four of them no order. An accuracy bar "
        "such as 0.9 comes later for large primes by arithmetic alone; together and in no order is "
        "a small spread beside the gap, and no strong rank correlation over runs. "
        f"{TWO_IN_FIVE} 47 is 1 modulo 23, so that at laptop 23 is a sum of the digits and no "
        "later prime."
    ),
    sizes=NIGHT,
    replaced=(
        Replaced(
            "in every main run the first steps at 0.9 of 2, 3, 5, 7 do not fall, none of the "
            "others comes before 7, and the rank correlation of the others' first steps with their "
            "size has p > 0.05",
            "not reproduced",
            "rank correlations +0.84, +0.71 (p = 0.002, 0.02); 13 before 7 in one of two runs",
            "The order depended on the threshold (correlation 0.38 at normalized accuracy 0.3, "
            "0.81 at 0.9): 0.9 of 43 classes is later than 0.9 of 11 by arithmetic.",
        ),
        Replaced(
            "by onsets half-way from chance to 1, also at laptop: in every main run those of 2, 3, "
            "5, 7 do not fall and none of the others comes before 7; in every main run the others' "
            "interquartile range is smaller than the gap from 7 to their median; the mean rank "
            "correlation of the others' onsets with their size lies within 0.5 of 0",
            "not reproduced",
            "3 of 6 and 5 of 6 runs; rank correlation 0.55 [0.29, 0.81]",
            "In all three runs that failed 23 came before 7: modulo 23, 47 is 1, and the remainder "
            f"is that of the sum of the digits, for p = 47 alone. {EVERY_RUN}",
        ),
        Replaced(
            "By onsets, the first steps at which a prime is 50% of the way from chance to 1: "
            "those of 2, 3, 5, 7 do not fall and none of the others comes before 7, and the "
            "others' interquartile range is smaller than the gap from 7 to their median, each in a "
            "share of the main runs whose 95% exact interval lies above 0.4; and the mean rank "
            "correlation of the others' onsets with their size lies within 0.5 of 0, by its 95% "
            "interval. Control: every prime gets so far in every main run.",
            {},
            "no run at the paper's length",
            "Runs in which 2, 3, 5 and 7 come at one evaluation met it, and show no order.",
        ),
    ),
)
def order_of_primes(study: Measures, criterion: Criterion) -> Finding:
    """Order and spread of the primes' onsets in every main run, and their rank correlation."""
    ordered, together, ranks, onsets, values = [], [], [], [], {}
    for name in study.names("main"):
        first, late = study.onsets(name), study.late_onsets(name)
        onsets.append(first)
        early = [first[q] for q in EASY if q in first]
        after = math.isfinite(early[-1]) and early[-1] <= min(late.values())
        if not after or early[0] < max(early):
            ordered.append(early == sorted(early) and after)
        finite = [step if math.isfinite(step) else 1e12 for step in late.values()]
        low, middle, high = np.quantile(finite, (0.25, 0.5, 0.75))
        together.append(bool(high - low < middle - early[-1]))
        ranks.append(rank_correlation(list(late), list(late.values())))
        values[name] = {"onsets": first, "rank_correlation": ranks[-1]}
    parts = (
        share_within(
            "2, 3, 5, 7 first and in order", sum(ordered), len(ordered), low=criterion["share"]
        ),
        share_within("the others together", sum(together), len(together), low=criterion["share"]),
        mean_within("rank correlation of the others", ranks, -criterion["rank"], criterion["rank"]),
    )
    ours = f"{in_steps(onsets, EASY)}; rank correlation of the rest {mean_and_spread(ranks)}"
    return Finding(parts, ours, values, control=study.all_halfway())
