"""Judging a circuit: faithfulness, completeness, minimality, size, and random circuits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from probes._circuits.graph import random_circuits
from probes._circuits.scoring import Scorer
from probes._circuits.search import without_each

SHARES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Of the edges, at which the faithfulness is taken for its integral over the size (MIB)."""


@dataclass(frozen=True)
class Judgement:
    """A circuit on pairs; all shares of the model's score.

    faithfulness: F(C). completeness: 1 - F(M \\ C), what the model loses without the circuit.
    drops: (member,) F(C) - F(C \\ e) of each edge e; their least is the minimality. accuracy:
    share of pairs that the circuit alone answers right.
    """

    faithfulness: float
    completeness: float
    drops: Float[np.ndarray, " member"]
    accuracy: float


def judge_circuit(scorer: Scorer, kept: Bool[np.ndarray, " edge"]) -> Judgement:
    """The circuit `kept` on the pairs of `scorer`. Cost: one forward per edge of it."""
    alone, without = scorer.faithfulness(np.stack([kept, ~kept]))
    drops = alone - scorer.faithfulness(without_each(kept))
    accuracy = float(scorer.answered(kept[None]).mean())
    return Judgement(float(alone), float(1 - without), drops, accuracy)


# --- over all sizes -------------------------------------------------------------------------------
@dataclass(frozen=True)
class Curve:
    """Faithfulness of the circuits of the first edges by effect, by their number.

    cpr = ∫ F(k) dk and cmd = ∫ |1 - F(k)| dk over the share k of the edges, by the trapezoidal rule
    (Mueller et al. 2025, MIB): a good ranking has a large cpr, a faithful one a small cmd.
    """

    sizes: Int[np.ndarray, " size"]
    faithfulness: Float[np.ndarray, " size"]

    @property
    def cpr(self) -> float:
        return self._integral(self.faithfulness)

    @property
    def cmd(self) -> float:
        return self._integral(np.abs(1 - self.faithfulness))

    def _integral(self, values: Float[np.ndarray, " size"]) -> float:
        return float(np.trapezoid(values, self.sizes / self.sizes[-1]))


def curve_of(scorer: Scorer, effects: Float[np.ndarray, " edge"]) -> Curve:
    """Faithfulness by size, the edges taken from the largest effect in size on."""
    n = len(effects)
    sizes = np.unique([round(share * n) for share in SHARES])
    ranks = np.empty(n, np.int64)
    ranks[np.argsort(-np.abs(effects), kind="stable")] = np.arange(n)
    return Curve(sizes, scorer.faithfulness(ranks[None] < sizes[:, None]))


# --- random circuits ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Rivals:
    """The circuit beside random ones of its size, on the same pairs.

    sufficiency: F(C), and of other circuits made of random paths (circuit,); necessity:
    1 - F(M \\ C), and of as many random edges outside the circuit (set,). No two are alike; where
    the graph has fewer than were asked for, they are all that there are, and the test is exact.
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
