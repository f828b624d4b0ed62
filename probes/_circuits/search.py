"""Effects of edges, the smallest circuit that reaches a faithfulness, and its judgement."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from mechint.probes._circuits.graph import random_circuits
from mechint.probes._circuits.scoring import Scorer
from mechint.probes._effects import Curve, Shares
from mechint.subject.pairs import Pairs

AT_ONCE = 16
"""Sizes that are tried in one stacked forward."""


def find_circuit(
    scorer: Scorer, effects: Float[np.ndarray, " edge"], threshold: float
) -> Bool[np.ndarray, " edge"]:
    """(edge,) the edges of a circuit that is at least `threshold` faithful, of other examples too:
    what reaches the threshold is the lower end of the 95% interval.

    Edges are added from the largest effect (in size) on until the threshold is reached; then, round
    by round, as many as can go without falling below it are left out, from the one whose removal
    costs least on. Every edge that is left costs more than the threshold allows.

    Cost: some tens of stacked forwards.
    """
    order = np.argsort(-np.abs(effects), kind="stable")
    kept = _of_size(order, _smallest(scorer, order, threshold))
    while True:
        removed = _prunable(scorer, kept, threshold)
        if not len(removed):
            return kept
        kept[removed] = False


def _of_size(order: np.ndarray, size: int) -> np.ndarray:
    kept = np.zeros(len(order), bool)
    kept[order[:size]] = True
    return kept


def _smallest(scorer: Scorer, order: np.ndarray, threshold: float) -> int:
    """The smallest of the sizes tried at which the first edges of `order` reach the threshold.

    Faithfulness need not grow with every edge, so the first of the sizes that reaches it is taken:
    of all up to `AT_ONCE`, then on a grid that is refined below it.
    """
    low, high = 0, len(order)
    sizes = np.arange(1, min(AT_ONCE, high) + 1)
    while high - low > 1:
        circuits = np.stack([_of_size(order, int(size)) for size in sizes])
        reached = np.flatnonzero(scorer.effects(circuits).shares().low >= threshold)
        if len(reached):
            first = int(reached[0])
            low, high = int(sizes[first - 1]) if first else low, int(sizes[first])
        elif sizes[-1] == high:
            return high
        else:
            low = int(sizes[-1])
        sizes = np.unique(np.linspace(low, high, AT_ONCE + 2).round().astype(int))[1:]
    return high


def _prunable(scorer: Scorer, kept: np.ndarray, threshold: float) -> np.ndarray:
    """Edges of the circuit that can go together, those first that cost least."""
    members = np.flatnonzero(kept)
    alone = scorer.effects(without_each(kept)).shares().low
    order = members[np.argsort(-alone, kind="stable")]
    most = int((alone >= threshold).sum())
    low, high = 0, most + 1  # so many can go, so many cannot
    while high - low > 1:
        counts = np.unique(np.linspace(low, high, AT_ONCE + 2).round().astype(int))[1:-1]
        candidates = np.repeat(kept[None], len(counts), 0)
        for row, count in zip(candidates, counts, strict=True):
            row[order[:count]] = False
        enough = scorer.effects(candidates).shares().low >= threshold
        failing = np.flatnonzero(~enough)
        if len(failing):
            high = int(counts[failing[0]])
            enough = enough[: failing[0]]
        if len(enough):
            low = int(counts[len(enough) - 1])
    return order[:low]


def without_each(kept: Bool[np.ndarray, " edge"]) -> Bool[np.ndarray, "member edge"]:
    """One circuit per edge of `kept`, without that edge."""
    members = np.flatnonzero(kept)
    result = np.repeat(kept[None], len(members), 0)
    result[np.arange(len(members)), members] = False
    return result


# --- effects of each edge alone -------------------------------------------------------------------
def path_patching(scorer: Scorer) -> Float[np.ndarray, " edge"]:
    """Share of the model's score that is lost when the edge alone carries the source (Wang et al.
    2023; Goldowsky-Dill et al. 2023).

    Cost: the blocks behind each edge, stacked.
    """
    return 1 - scorer.faithfulness(without_each(np.ones(len(scorer.graph.edges), bool)))


def edge_attribution(scorer: Scorer, steps: int = 1) -> Float[np.ndarray, " edge"]:
    """The first-order estimate of `path_patching`: (base - source) of the sender · gradient of the
    score at the receiver's input.

    steps: 1 takes the gradient in the base run (edge attribution patching, Syed et al. 2023); more
    take its mean over runs whose embeddings lie evenly between the source's and the base's (EAP-IG,
    Hanna et al. 2024), at the midpoints of as many intervals.

    Cost: `steps` forwards and backwards per pair, whatever the number of edges.
    """
    low, high = scorer.ends
    points = [1.0] if steps == 1 else [(k + 0.5) / steps for k in range(steps)]
    total = np.zeros(len(scorer.graph.edges))
    for pairs, cut in scorer.parts():

        def scored(logits: Tensor, rows: Tensor, pairs: Pairs = pairs) -> Tensor:
            return scorer.score(logits, pairs[rows])

        for point in points:
            total += cut.attributed(point, scored) / len(points)
    return total / len(scorer.pairs) / (high - low)


SHARES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Of the edges, at which the faithfulness is taken for its integral over the size (MIB)."""


@dataclass(frozen=True)
class Judgement:
    """A circuit on pairs; all shares of the model's score.

    faithfulness: F(C), with its 95% interval over examples. completeness: 1 - F(M \\ C), what the
    model loses without the circuit. drops: (member,) F(C) - F(C \\ e) of each edge e; their least
    is the minimality. accuracy: share of pairs that the circuit alone answers right.
    """

    faithfulness: float
    interval: list[float]
    completeness: float
    drops: Float[np.ndarray, " member"]
    accuracy: float


def judge_circuit(scorer: Scorer, kept: Bool[np.ndarray, " edge"]) -> Judgement:
    """The circuit `kept` on the pairs of `scorer`. Cost: one forward per edge of it."""
    (alone, without), low, high = scorer.effects(np.stack([kept, ~kept])).shares()
    drops = alone - scorer.faithfulness(without_each(kept))
    accuracy = float(scorer.answered(kept[None]).mean())
    interval = [float(low[0]), float(high[0])]
    return Judgement(float(alone), interval, float(1 - without), drops, accuracy)


def needed_components(
    scorer: Scorer, kept: Bool[np.ndarray, " edge"], slack: float
) -> dict[str, float]:
    """Heads and MLPs of the circuit with the share of the score that is lost without all of the
    edges of each; without those, weakest first, that together carry at most `slack` of it.

    Cost: two forwards per component.
    """
    names = scorer.graph.components(kept)
    if not names:
        return {}
    own = np.stack(
        [
            [
                name in (edge.sender.component, edge.receiver.component)
                for edge in scorer.graph.edges
            ]
            for name in names
        ]
    )
    (whole,) = scorer.faithfulness(kept[None])
    losses = whole - scorer.faithfulness(kept & ~own)
    order = np.argsort(losses, kind="stable")
    together = whole - scorer.faithfulness(kept & ~np.logical_or.accumulate(own[order]))
    idle = {names[index] for index, loss in zip(order, together, strict=True) if loss <= slack}
    return {name: float(loss) for name, loss in zip(names, losses, strict=True) if name not in idle}


# --- over all sizes -------------------------------------------------------------------------------
def curve_of(scorer: Scorer, effects: Float[np.ndarray, " edge"]) -> tuple[Curve, Shares]:
    """Faithfulness by size, the edges taken from the largest effect in size on; with intervals."""
    n = len(effects)
    sizes = np.unique([round(share * n) for share in SHARES])
    ranks = np.empty(n, np.int64)
    ranks[np.argsort(-np.abs(effects), kind="stable")] = np.arange(n)
    shares = scorer.effects(ranks[None] < sizes[:, None]).shares()
    return Curve(sizes, shares.value), shares


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
