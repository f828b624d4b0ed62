"""Measures of a run of the composition study: when hops were learned, where it attends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from mechint.studies.study import untrained
from mechint.subject import Subject
from mechint.training import Run

LEARNED = 0.95
"""Test accuracy at which a hop counts as learned: far from any constant answer."""

PATTERNED = ("mixture",)
"""Arms whose attention is compared with the construction's."""


def measure(run: Run, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Chance; the step at which each hop was learned (inf: never) and its last accuracy; for a
    curriculum whether every hop but the last was learned within its stage; the shares of queries
    that follow the construction, layer by layer, here and at the initial weights; the curves.
    """
    task: Any = run.spec.task
    steps = [int(row["step"]) for row in run.metrics]
    curves = {hop: accuracies(run, hop) for hop in task.hops}
    learned = {
        hop: min((s for s, a in zip(steps, curve, strict=True) if a >= LEARNED), default=math.inf)
        for hop, curve in curves.items()
    }
    row: dict[str, Any] = {
        "chance": 1 / task.n,
        "learned_at": {str(hop): at for hop, at in learned.items()},
        "last": {str(hop): float(curve[-1]) for hop, curve in curves.items()},
        "curve": {"step": thin(steps), **{str(hop): thin(c) for hop, c in curves.items()}},
    }
    if labels["arm"].startswith("curriculum"):
        row["passed_stages"] = all(
            any(start < s <= end and a >= LEARNED for s, a in zip(steps, curves[hop], strict=True))
            for hop, (start, end) in zip(task.hops[:-1], pairwise(task.stages), strict=True)
        )
    if labels["arm"] in PATTERNED and math.isfinite(max(learned.values())):
        layers = range(1, len(task.hops) + 1)
        row["followed"] = [followed(run.subject(n_examples=128), layer) for layer in layers]
        row["followed_untrained"] = [
            followed(untrained(run, n_examples=128), layer) for layer in layers
        ]
    return row


def accuracies(run: Run, hop: int) -> list[float]:
    """Test accuracy of a hop at every evaluation; a task of one output logs it without a name."""
    name = "test.accuracy" if len(run.spec.task.outputs) == 1 else f"test.accuracy.{hop}-hop"
    return [float(row[name]) for row in run.metrics]


def thin(values: list[Any], most: int = 40) -> list[Any]:
    """Every so many of the values, the last one too, so that at most about `most` are left.

    >>> thin(list(range(101)), 11)
    [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    """
    every = max(1, -(-len(values) // most))
    kept = values[::every]
    return kept if (len(values) - 1) % every == 0 else [*kept, values[-1]]


def followed(subject: Subject, layer: int) -> float:
    """Share of a layer's queries (from 1) that follow the construction, for the best head.

    Of a permutation the value that is missing tells as much as the one that is looked at, and each
    block of queries finds the one or the other on its own: a query follows where its largest weight
    is on the target, or, where its block does that instead, where the target's block has more than
    uniform attention's share and the target the least of it.
    """
    task: Any = subject.task
    n, k = task.n, task.k
    targets = pattern_targets(task, subject.data.tokens, layer)  # (example, query), -1: none
    asked = int((targets[0] >= 0).sum())  # the first blocks, whole
    targets = targets[:, :asked]
    pattern = subject.activation(f"blocks.{layer - 1}.attn.hook_pattern")[:, :, :asked]
    looking = pattern.argmax(-1) == targets[:, None]
    keys = rearrange(pattern, "e head query (block key) -> e head query block key", key=n)
    index = (targets // n)[:, None, :, None, None].expand(-1, pattern.shape[1], -1, 1, n)
    own = keys.gather(3, index).squeeze(3)  # (example, head, query, key) of the target's block
    avoiding = (own.argmin(-1) == (targets % n)[:, None]) & (own.sum(-1) > 1 / k)
    shares: list[Float[np.ndarray, "head block"]] = [
        rearrange(one.double(), "e head (block query) -> e head block query", query=n)
        .mean((0, 3))
        .cpu()
        .numpy()
        for one in (looking, avoiding)
    ]
    return float(np.maximum(*shares).mean(1).max())


def pattern_targets(
    task: Any, tokens: Int[Tensor, "example pos"], layer: int
) -> Int[Tensor, "example pos"]:
    """The position that the construction's layer attends to from every position, -1 where it
    ends: (i, π_i(j)) in layer 1, (i + 2^(l-2), hop(j)) in layer l.
    """
    n, k = task.n, task.k
    targets = tokens.new_full(tokens.shape, -1)
    if layer == 1:
        for i in range(k):
            targets[:, i * n : (i + 1) * n] = task.permutations[i] + i * n
        return targets
    half = 2 ** (layer - 2)
    shorter = type(task)(n=n, k=k, perm_seed=task.perm_seed, hops=(half,))
    begun = shorter.label_inputs(tokens)[..., 0]
    for i in range(k - 2 * half + 1):
        targets[:, i * n : (i + 1) * n] = begun[:, i * n : (i + 1) * n] + (i + half) * n
    return targets
