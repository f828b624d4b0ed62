"""Runs of the half-learned study: sums mod 10 alone, with two shares held out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mechint.studies.half_learned.claims import CLAIMS, FIFTH
from mechint.studies.half_learned.figures import draw
from mechint.studies.half_learned.measures import measure
from mechint.studies.joint_training.plan import EARLY_STOP, LEARNED, triplets
from mechint.studies.study import FRESH, PlannedRun, Sentence, Study

SUM = ("ADD",)
TRAIN: Mapping[str, Any] = {"steps": 5000, "evaluate_every": 50, **LEARNED}
SEEDS = {"fresh": (16, 16, 16), "overnight": (64, 64, 64)}
"""Runs from N(0, 0.02), from PyTorch's initialization, and with 200 of 1,000 held out."""


def plan(size: str) -> list[PlannedRun]:
    """Sums alone from two initializations with 100 triplets held out, then with 200; at size laptop
    what suggested the claims.
    """
    if size == "smoke":
        few = {"steps": 6, "evaluate_every": 3, "batch_size": 8}
        return triplets("ADD", SUM, 12, 2, few, n=10)
    if size == "laptop":
        early = {"steps": 5000, "evaluate_every": 50, **EARLY_STOP}
        return triplets("ADD", SUM, 64, 32, early)
    normal, torch, more = SEEDS[size]
    twice = FIFTH.removeprefix("triplets ")
    return [
        *triplets("ADD", SUM, 64, normal, TRAIN, first=FRESH),
        *triplets("ADD", SUM, 64, torch, TRAIN, "torch", first=FRESH, stage=1),
        *triplets(twice, SUM, 64, more, TRAIN, first=FRESH, stage=2, excluded=200),
    ]


STUDY = Study(
    name="half-learned",
    title="Are half-learned sums worse than guesses?",
    paper="Our own study",
    summary=(
        "Sums mod 10 are sums mod 2 and mod 5 at once. The hypothesis: a small transformer that "
        "has learned one of the two and no more is below chance on the other, held out, by as "
        "many triplets as it is above chance in training. The reason, which is arithmetic: no two "
        "of three digits say anything of the parity of their sum, so that shares made of "
        "functions of two digits give the right one exactly chance over all 1,000 triplets, "
        "whatever they were fitted to. What is gained on 900 is lost on 100."
    ),
    here="triplets mod 10, 64 wide, 100 or 200 of 1,000 held out, 5,000 steps",
    there="nobody's, as far as we know",
    before=(
        "Data sets on which learners are right in training and below chance held out are known "
        "as anti-learning (Kowalczyk and Chapelle 2005, for kernels and linear learners). Of "
        "transformers that have learned a group in part we found nothing in three searches."
    ),
    claims=CLAIMS,
    sentences=(
        Sentence("a half-learned model is below chance on the other factor", ("a",)),
        Sentence(
            "what a half-learned model gains in training it loses held out",
            ("b", "c"),
        ),
        Sentence("least squares on pairs of digits says where it is wrong", ("d",)),
        Sentence("it is as far below chance as least squares on pairs", ("e",)),
    ),
    costs={"laptop": 0.3, "fresh": 0.5, "overnight": 2},
    plan=plan,
    measure=measure,
    draw=draw,
)
