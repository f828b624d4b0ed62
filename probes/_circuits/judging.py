"""What a circuit is judged by: faithfulness, completeness, minimality, and random circuits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from probes._circuits.graph import random_circuits
from probes._circuits.scoring import Scorer
from probes._circuits.search import without_each
from probes.ties import TIE

SUBSETS = 20
"""Parts of the circuit that are taken out of circuit and model alike, for the incompleteness."""


@dataclass(frozen=True)
class Judgement:
    """A circuit on pairs; all shares of the model's score.

    faithfulness: F(C). completeness: 1 - F(M \\ C), what the model loses without the circuit.
    drops: (member,) F(C) - F(C \\ e) of each edge e; their least is the minimality. accuracy:
    share of pairs that the circuit alone answers right. above: share of pairs on which it scores
    more than the model, 1/2 where the two are equivalent (Shi et al. 2024, Sec. 3); a pair on which
    they differ by no more than rounding, `TIE` of the largest score, counts half.
    """

    faithfulness: float
    completeness: float
    drops: Float[np.ndarray, " member"]
    accuracy: float
    above: float


def judge_circuit(scorer: Scorer, kept: Bool[np.ndarray, " edge"]) -> Judgement:
    """The circuit `kept` on the pairs of `scorer`. Cost: one forward per edge of it."""
    low, high = scorer.ends
    every = np.ones_like(kept)
    scores = scorer.scores(np.stack([every, kept, ~kept]))
    alone, without = ((one.mean() - low) / (high - low) for one in scores[1:])
    drops = alone - scorer.faithfulness(without_each(kept))
    gaps, rounding = scores[1] - scores[0], TIE * np.abs(scores[:2]).max()
    above = (gaps > rounding) + 0.5 * (np.abs(gaps) <= rounding)
    accuracy = float(scorer.answered(kept[None]).mean())
    return Judgement(float(alone), float(1 - without), drops, accuracy, float(above.mean()))


def incompleteness(scorer: Scorer, kept: Bool[np.ndarray, " edge"], seed: int) -> float:
    """Mean over random parts K of the circuit C of |F(C \\ K) - F(M \\ K)| (Wang et al. 2023, Sec.
    4): 0 where the circuit without a part does as the model without it.
    """
    generator = np.random.default_rng(seed)
    dropped = (generator.random((SUBSETS, len(kept))) < 0.5) & kept
    alone = scorer.faithfulness(kept & ~dropped)
    whole = scorer.faithfulness(~dropped)
    return float(np.abs(alone - whole).mean())


@dataclass(frozen=True)
class Rivals:
    """The circuit beside random ones of its size, on the same pairs.

    sufficiency: F(C), and of other circuits made of random paths (circuit,); necessity:
    1 - F(M \\ C), and of as many random edges outside the circuit (set,). No two are alike, and
    there are fewer than asked for where the graph has no more.
    """

    sufficiency: float
    random_sufficiency: Float[np.ndarray, " circuit"]
    necessity: float
    random_necessity: Float[np.ndarray, " set"]


def rivals_of(scorer: Scorer, kept: Bool[np.ndarray, " edge"], n: int, seed: int) -> Rivals:
    """The tests of sufficiency and partial necessity of Shi et al. (2024), Sec. 3, with `n` random
    circuits each. Cost: 2 n stacked forwards.
    """
    size = int(kept.sum())
    observed = scorer.faithfulness(np.stack([kept, ~kept]))
    drawn = random_circuits(scorer.graph, size, n, seed, apart_from=kept)
    if not len(drawn):  # no other circuit has the size
        drawn = kept[None]
    return Rivals(
        float(observed[0]),
        scorer.faithfulness(drawn),
        float(1 - observed[1]),
        1 - scorer.faithfulness(without_others(kept, n, seed + 1)),
    )


def without_others(
    kept: Bool[np.ndarray, " edge"], n: int, seed: int
) -> Bool[np.ndarray, "set edge"]:
    """The model without as many random edges outside the circuit `kept` as that has, or without all
    of them where they are fewer: `n` sets, no two alike, or all that there are.

    >>> without_others(np.array([True, False, False]), 9, 0).sum(0).tolist()
    [2, 1, 1]
    """
    outside, generator = np.flatnonzero(~kept), np.random.default_rng(seed)
    size = min(int(kept.sum()), len(outside))
    found: dict[bytes, np.ndarray] = {}
    while len(found) < min(n, math.comb(len(outside), size)):
        one = np.ones_like(kept)
        one[generator.permutation(outside)[:size]] = False
        found[one.tobytes()] = one
    return np.stack(list(found.values()))
