"""The smallest circuit that reaches a faithfulness: edges added by their effect, then pruned."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from probes._circuits.scoring import Scorer

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
        reached = np.flatnonzero(scorer.least_faithfulness(circuits) >= threshold)
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
    alone = scorer.least_faithfulness(without_each(kept))
    order = members[np.argsort(-alone, kind="stable")]
    most = int((alone >= threshold).sum())
    low, high = 0, most + 1  # so many can go, so many cannot
    while high - low > 1:
        counts = np.unique(np.linspace(low, high, AT_ONCE + 2).round().astype(int))[1:-1]
        candidates = np.repeat(kept[None], len(counts), 0)
        for row, count in zip(candidates, counts, strict=True):
            row[order[:count]] = False
        enough = scorer.least_faithfulness(candidates) >= threshold
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
