"""Claims a to c of the composition paper: what is learned from which data."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mechint.errors import TrainingError, counted
from mechint.studies.composition.measures import LEARNED, Measures, describe, in_order, solved
from mechint.studies.core.claims import Criterion, Finding, Part, Replaced, claim
from mechint.studies.core.evidence import MIN_RUNS, every, more_often, share_within
from mechint.studies.core.study import mean_and_spread, task_of

READOUT = (
    "The mixture had supervision after every layer and the direct runs after the last one alone, "
    "so that two things differed; with the last readout for both and 1,000 steps neither learned."
)


SHARE = 0.4
"""What the share of runs that learn exceeds, by its exact interval."""

TWO_IN_FIVE = (
    "Of more than two runs in five, not of a rare lucky one: 5 of 5 has its lower end at 0.48, 0 "
    "of 8 its upper end at 0.37; five runs cannot show that it holds of most."
)
ONE_HOP_EACH = "mixture-one-hop-each"


def _steps(study: Measures, arm: str) -> list[list[float]]:
    steps = study.learning_steps(arm)
    if not steps:
        raise TrainingError(f"no run of the arm {arm!r} has finished")
    return steps


@claim(
    "a",
    statement=(
        "Trained on k-hop labels alone, an ordinary transformer with feed-forward layers stays at "
        "chance."
    ),
    paper=(
        "without data mixture the transformer cannot learn the 4-hop task (figure); N^Ω(k) "
        "queries needed (theorem)"
    ),
    criterion=Criterion(
        "All hops read after the last layer, in both arms, where every example of the mixture asks "
        "all of its hops: in every direct run the last test accuracy of the k-hop is at most "
        "chance + {margin:g}, and in the same number of steps the mixture learns the k-hop more "
        "often (Fisher's exact one-sided test, p ≤ {alpha:g}). Control: some mixture run learns "
        "it.",
        margin=0.05,
        alpha=0.05,
    ),
    reason=(
        "The same model, readout and steps must suffice with easier data; staying at chance for "
        "ever cannot be shown by a run. 256 test examples spread by 0.03. The source mixes data of "
        "one hop each; here the mixture has the same inputs as direct training, with labels of the "
        "shorter hops besides."
    ),
    replaced=(
        Replaced(
            "In every seed the last test accuracy of the k-hop is at most chance + 0.05, after at "
            "least 1.5 times the steps in which every staged mixture run learned it.",
            "reproduced",
            "0.16 ± 0.00 (3 runs) after 1,000 steps, chance 0.17",
            READOUT,
        ),
    ),
)
def direct_stays_at_chance(study: Measures, criterion: Criterion) -> Finding:
    """Last accuracy of every direct run, and Fisher's exact test against the mixture."""
    direct, mixed = _steps(study, "direct"), _steps(study, "mixture-last")
    last = study.last("direct")
    chance = 1 / task_of(study.group("direct")[0]).n
    reached = (solved([[row[-1]] for row in mixed]), len(mixed))
    shown = f"last accuracy {mean_and_spread(last)}, chance {chance:.2f}"
    parts = (
        every("direct at chance", [one <= chance + criterion["margin"] for one in last], shown),
        more_often(
            "k-hop learned, mixture against direct",
            reached,
            (solved(direct), len(direct)),
            criterion["alpha"],
        ),
    )
    ours = (
        f"Direct: {shown}; the mixture with the same readout and steps learned the k-hop in "
        f"{reached[0]} of {reached[1]} runs."
    )
    return Finding(
        parts,
        ours,
        {"direct": last, "chance": chance, "mixture steps": mixed},
        control=Part("mixture learns", reached[0] > 0, f"{reached[0]} runs", reached[1]),
    )


@claim(
    "b",
    statement=(
        "On a mixture of 1-, 2-, 4-, … k-hop labels, here of every example, the transformer learns "
        "all of them, easy to hard."
    ),
    paper="with mixture it learns from 1-hop to 4-hop, in that order (figure)",
    criterion=Criterion(
        "Every example asks all of its hops. With either readout, the staged and the last one: "
        "every run that passes a test accuracy of {learned:g} on every hop passes no longer hop "
        "before a shorter one and the longest after the first, and the 95% exact interval of the "
        "share of runs that pass lies above {share:g}. The same of the runs that ask one hop of "
        "each example, with the staged readout, where at least {runs} are trained (overnight). "
        "Control: every run passes it on the shortest hop.",
        learned=LEARNED,
        share=SHARE,
        runs=MIN_RUNS,
    ),
    reason=(
        f"{TWO_IN_FIVE} The steps are compared at the resolution of the evaluations. The source "
        "mixes data of one hop each, from which a hop has a third of the labels at k = 4: with so "
        "many steps as the others such a run cannot tell."
    ),
    replaced=(
        Replaced(
            "With the staged readout every seed passes a test accuracy of 0.95 on every hop, no "
            "longer hop before a shorter one, the longest after the first.",
            "reproduced",
            "staged 5 of 5 runs; last layer 0 of 3",
            "The staged readout is a stronger hint than the source states; the last one was "
            "reported and not judged.",
        ),
        Replaced(
            "With either readout, the staged and the last one: every run that passes a test "
            "accuracy of 0.95 on every hop passes no longer hop before a shorter one and the "
            "longest after the first, and the 95% exact interval of the share of runs that pass "
            "lies above 0.4. Control: every run passes it on the shortest hop.",
            "underpowered",
            "staged 5 of 5 runs [0.48, 1.00]; last layer 6 of 8 [0.35, 0.97]",
            "It did not say that every example asks all of its hops, which is more than the "
            "source's mixture gives; with one hop of each example the only run had 0.72 on 4 hops "
            "after 900 steps.",
        ),
    ),
)
def mixture_learns_in_order(study: Measures, criterion: Criterion) -> Finding:
    """Order in which every run learns its hops, and the share of runs that learn all."""
    parts, words, values = [], [], {}
    judged: list[list[float]] = []
    arms = {"mixture": "staged", "mixture-last": "last", ONE_HOP_EACH: "one hop each"}
    for arm, readout in arms.items():
        if arm == ONE_HOP_EACH and not study.names(arm):
            continue
        steps = _steps(study, arm)
        passed = [row for row in steps if np.isfinite(max(row))]
        words.append(
            f"{readout} {len(passed)} of {counted(len(steps), 'run')}, "
            f"{describe(steps, study.hops)}"
        )
        values[arm] = steps
        if arm == ONE_HOP_EACH and len(steps) < criterion["runs"]:
            words[-1] += ", not judged"
            continue
        judged += steps
        parts.append(
            share_within(
                f"{readout}: runs that learned", len(passed), len(steps), low=criterion["share"]
            )
        )
        if passed:
            parts.append(every(f"{readout}: easy to hard", [in_order(row) for row in passed]))
    control = _shortest(judged)
    ours = f"Learned every hop, all hops asked of every example unless said: {'; '.join(words)}."
    return Finding(parts, ours, values, control=control)


def _shortest(steps: list[list[float]]) -> Part:
    """The control of runs on several hops: that they train at all."""
    first = [math.isfinite(row[0]) for row in steps]
    return Part("shortest hop learned", all(first), f"{sum(first)} of {len(first)}", len(first))


@claim(
    "c",
    statement="An easy-to-hard curriculum, hop 2^(l-1) alone in stage l, learns it too.",
    paper="poly(N, k) samples suffice (theorem)",
    criterion=Criterion(
        "Every stage on its own hop alone, with the staged readout, hop 2^(l-1) after layer l: the "
        "95% exact interval of the share of curriculum runs that end above {learned:g} on the "
        "k-hop lies above {share:g}. Control: every run passes it on the hop of each earlier stage "
        "at an evaluation within that stage. The last readout is shown beside.",
        learned=LEARNED,
        share=SHARE,
    ),
    reason=(
        f"{TWO_IN_FIVE} In the source each stage is gradient descent on the data of its own hop, "
        "which trains the layer of that hop; nothing keeps a model from forgetting the earlier "
        "ones, and an earlier stage that has failed tells nothing of the last. The theorem's "
        "sample size, k⁴N⁶, is 12 million examples at k = 4 and N = 6 before constants and "
        "logarithms, 200 times those of a run at laptop: a share that is missed is of such runs, "
        "and no counterexample."
    ),
    replaced=(
        Replaced(
            "With the staged readout every seed of the curriculum ends above 0.95 on the k-hop.",
            "reproduced",
            "1.00 ± 0.00 (3 runs); with the last readout 0 of 1",
            "The staged readout is a stronger hint than the source states; the last one was "
            "reported and not judged.",
        ),
        Replaced(
            "with either readout, earlier hops staying in later stages: the 95% exact interval of "
            "the share of curriculum runs that end above 0.95 on the k-hop lies above 0.4",
            "underpowered",
            "staged 5 of 5 runs [0.48, 1.00]; last readout 6 of 8 [0.35, 0.97]",
            "Its last stage was the mixture of (b); the source trains stage l on hop 2^(l-1), and "
            "names the forgetting of earlier hops as what a mixture avoids.",
        ),
        Replaced(
            "Every stage on its own hop alone: with either readout the 95% exact interval of the "
            "share of curriculum runs that end above 0.95 on the k-hop lies above 0.4. Control: "
            "every run passes it on the shortest hop.",
            "not reproduced",
            "staged 4 of 5 runs [0.28, 0.99]; last readout 0 of 8 [0.00, 0.37]",
            "Stage l of the source trains layer l, which is the staged readout; nothing there says "
            "that a curriculum works with the last one, on which the verdict stood. The control "
            "asked nothing of stage 2, which three of the eight runs with the last readout did not "
            "learn within its 200 steps.",
        ),
    ),
)
def curriculum_learns(study: Measures, criterion: Criterion) -> Finding:
    """Share of curriculum runs that end above the bar, with its exact interval."""
    last = study.last("curriculum")
    part = share_within(
        "runs that end there",
        sum(one > criterion["learned"] for one in last),
        len(last),
        low=criterion["share"],
    )
    passed = study.passed_stages("curriculum")
    control = Part(
        "earlier stages learned", all(passed), f"{sum(passed)} of {len(passed)}", len(passed)
    )
    words = [_curriculum("staged readout", last, passed)]
    values = {"curriculum": last, "earlier stages learned": passed}
    if study.names("curriculum-last"):  # trained later than the staged one, and not judged
        beside, passed = study.last("curriculum-last"), study.passed_stages("curriculum-last")
        words.append(f"{_curriculum('last readout', beside, passed)}, not judged")
        values |= {"curriculum-last": beside, "earlier stages learned, last readout": passed}
    ours = f"Last accuracy on {study.k} hops: {'; '.join(words)}."
    return Finding([part], ours, values, control=control)


def _curriculum(readout: str, last: Sequence[float], passed: Sequence[bool]) -> str:
    """How the runs of one readout end, and in how many the earlier stages were learned."""
    return (
        f"{readout} {mean_and_spread(last)}, earlier stages learned in {sum(passed)} of "
        f"{len(passed)}"
    )
