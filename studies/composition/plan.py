"""Runs of the composition study: direct, mixture and curriculum, with two readouts.

*Staged* reads hop 2^(l-1) after layer l, where the paper's construction has it: supervision at
every layer, a stronger hint than the source states. *Last* reads every hop after the last layer.
In a mixture every example asks all of its hops, but for *one hop each*, which is the source's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mechint.studies.composition.claims import CLAIMS
from mechint.studies.composition.figures import draw
from mechint.studies.composition.measures import measure
from mechint.studies.study import FRESH, PlannedRun, Sentence, Study, arm

SEED = 3000

SIZES: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"n": 3, "n_last": 3, "k": 2, "d": 16, "d_last": 16, "stages": (0, 10)},
    "laptop": {"n": 6, "n_last": 4, "k": 4, "d": 64, "d_last": 32},
    "fresh": {"n": 6, "n_last": 4, "k": 4, "d": 64, "d_last": 32, "stages": (0, 400, 800)},
    "overnight": {"n": 6, "n_last": 6, "k": 4, "d": 64, "d_last": 64},
}
STEPS = {
    "smoke": dict.fromkeys(("staged", "last", "one hop each", "curriculum-last"), 40),
    "laptop": {
        **{"staged": 900, "last": 6000},
        **{"one hop each": 2700, "curriculum-last": 4000},
    },
    "fresh": {"staged": 1500, "last": 0, "one hop each": 0, "curriculum-last": 0},
    "overnight": {
        **{"staged": 2000, "last": 30_000},
        **{"one hop each": 6000, "curriculum-last": 30_000},
    },
}
ONLY: Mapping[str, tuple[str, ...]] = {
    "laptop": ("mixture", "curriculum", "mixture-last", "direct", "curriculum-last"),
    "fresh": ("curriculum", "mixture"),
}
"""The arms of a size that has not all: one hop each takes an hour of a core."""

SEEDS = {"mixture": 8, "curriculum": 12, "direct": 8, "curriculum-last": 8}
"""Of an arm; 16 of the others, so that a share of three in four is shown to exceed 0.4."""


def plan(size: str) -> list[PlannedRun]:
    """Every arm at a size; a seed draws the hidden permutations too, and a run stops when every hop
    is at 0.99.
    """
    budget, steps = SIZES[size], STEPS[size]
    k = budget["k"]
    hops = tuple(2**level for level in range(k.bit_length()))
    read = {"read_layers": tuple(range(1, len(hops) + 1))}
    stages = {"stages": budget.get("stages", (0, 200, 400)), "cumulative": False}
    mixed = {"hops": hops}
    staged = {
        "mixture": (mixed, read, steps["staged"]),
        "curriculum": ({**mixed, **stages}, read, steps["staged"]),
        "mixture-one-hop-each": (
            {**mixed, "weights": (1.0,) * len(hops)},
            read,
            steps["one hop each"],
        ),
    }
    last = {
        "mixture-last": (mixed, {}, steps["last"]),
        "direct": ({"hops": (k,)}, {}, steps["last"]),
        "curriculum-last": ({**mixed, **stages}, {}, steps["curriculum-last"]),
    }
    planned, first = [], FRESH if size == "fresh" else SEED
    for readout, arms in (("staged", staged), ("last", last)):
        n, width = (
            (budget["n"], budget["d"])
            if readout == "staged"
            else (budget["n_last"], budget["d_last"])
        )
        for name, (task, model, length) in arms.items():
            if name not in ONLY.get(size, (*staged, *last)):
                continue
            train = {
                "steps": length,
                "evaluate_every": max(1, min(25, length // 10), length // 80),
                "eval_examples": 64 if size == "smoke" else 256,
                "stop_accuracy": 0.99,
            }
            planned += arm(
                name,
                "composition",
                range(first, first + (1 if size == "smoke" else SEEDS.get(name, 16))),
                {"n": n, "k": k, **task},
                {"d_model": width, "n_layers": len(hops), **model},
                train,
                own=("perm_seed",),
                readout=readout,
            )
    return planned


STUDY = Study(
    name="composition",
    title="Learning compositional functions with transformers",
    paper="Wang et al. 2025, Learning compositional functions with transformers (slides, Part II)",
    summary=(
        "Composing k permutations that interleave with k hidden ones needs only log₂k + 1 layers, "
        "each doubling the hop length. From k-hop labels alone gradient descent needs "
        "exponentially many examples; a curriculum, or a mixture with shorter hops, makes it easy."
    ),
    here="N = 4 or 6, k = 4, width 32 or 64, at most 6,000 steps of 64 examples",
    there="k = 4 (figure); k⁴N⁶ samples (theorem)",
    claims=CLAIMS,
    sentences=(
        Sentence("labels of the longest hop alone stay at chance", ("a",)),
        Sentence(
            "a mixture learns every hop, short ones first",
            ("b1", "b2", "b3"),
        ),
        Sentence(
            "a curriculum learns the longest hop",
            ("c1", "c2"),
        ),
        Sentence("a curriculum forgets its first hop", ("e",)),
        Sentence(
            "layers attend as the construction does",
            ("d2", "d3", "d1"),
        ),
        Sentence(
            "samples grow as a power of N and k with help, and exponentially in k without",
            cost="not estimated: sweeps over N and k",
        ),
    ),
    costs={"laptop": 0.9, "fresh": 0.2, "overnight": 14},
    plan=plan,
    measure=measure,
    draw=draw,
)
