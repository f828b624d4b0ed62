"""What a run of the composition study shows: when each hop was learned, and where its attention
goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import TrainingError
from mechint.studies.core.study import Runs, task_of
from mechint.training import Run

Heads = Float[np.ndarray, "head block"]
"""A share for each head and each block of queries."""

LEARNED = 0.95
"""Test accuracy at which a hop counts as learned: far from any constant answer."""


def hops_of(k: int) -> tuple[int, ...]:
    """1, 2, 4, … k.

    >>> hops_of(8)
    (1, 2, 4, 8)
    """
    return tuple(2**level for level in range(int(math.log2(k)) + 1))


def accuracies(run: Run, hop: int) -> Float[np.ndarray, " evaluation"]:
    """Test accuracy of one hop at every evaluation; a task of one output logs it without a name."""
    name = "test.accuracy" if len(task_of(run).outputs) == 1 else f"test.accuracy.{hop}-hop"
    return np.array([row[name] for row in run.metrics])


def steps_of(run: Run) -> Float[np.ndarray, " evaluation"]:
    """The steps of the evaluations."""
    return np.array([row["step"] for row in run.metrics], dtype=float)


def learned_at(run: Run, hop: int) -> float:
    """The first evaluated step at which `hop` is learned; infinite when it never is."""
    return float(min(steps_of(run)[accuracies(run, hop) >= LEARNED], default=math.inf))


def passed_stages(run: Run) -> bool:
    """Whether each hop but the last was learned at an evaluation within its own stage: after a step
    of it, and before the next hop is trained.
    """
    task, steps = task_of(run), steps_of(run)
    within = {
        hop: (steps > start) & (steps <= end)  # a row at step s is of the model after s batches
        for hop, (start, end) in zip(task.hops[:-1], pairwise(task.stages), strict=True)
    }
    return all((accuracies(run, hop)[rows] >= LEARNED).any() for hop, rows in within.items())


class Measures:
    """The study's runs by arm; patterns that are measured once are kept."""

    def __init__(self, runs: Runs, k: int) -> None:
        self.runs, self.k, self.hops = runs, k, hops_of(k)
        self.pattern = cache(self._pattern)
        self.blocks = cache(self._blocks)

    def group(self, arm: str) -> list[Run]:
        """The runs of an arm that have finished; TrainingError where there is none yet."""
        found = self.runs.finished(arm=arm)
        if not found:
            raise TrainingError(f"no run of the arm {arm!r} has finished")
        return found

    def learning_steps(self, arm: str) -> list[list[float]]:
        """One list of the hops' learning steps per seed."""
        hops = (self.k,) if arm == "direct" else self.hops
        return [[learned_at(run, hop) for hop in hops] for run in self.group(arm)]

    def last(self, arm: str) -> list[float]:
        """Last test accuracy on k hops, seed by seed."""
        return [float(accuracies(run, self.k)[-1]) for run in self.group(arm)]

    def passed_stages(self, arm: str) -> list[bool]:
        """Whether every hop but the last was learned within its own stage, seed by seed."""
        return [passed_stages(run) for run in self.group(arm)]

    def names(self, arm: str) -> list[str]:
        """Names of the runs of an arm that have finished."""
        return [
            name
            for name in self.runs.names(arm=arm)
            if self.runs.status(name) in ("finished", "stopped")
        ]

    def that_learned(self, arm: str) -> list[str]:
        """Names of the runs of an arm that learned every hop."""
        return [
            name
            for name in self.names(arm)
            if all(math.isfinite(learned_at(self.runs[name], hop)) for hop in self.hops)
        ]

    def _pattern(self, name: str, layer: int) -> tuple[float, float]:
        return pattern_shares(self.runs[name], layer)

    def _blocks(self, name: str, layer: int) -> tuple[Heads, Heads]:
        return block_shares(self.runs[name], layer)

    def avoided(self, name: str, layer: int) -> float:
        """Share of a layer's queries that look at all of the construction's block but its target,
        for the head that does most.
        """
        return float(self.blocks(name, layer)[1].mean(1).max())

    def followed(self, name: str, layer: int) -> float:
        """Share of a layer's queries that follow the construction in the way of their block, by
        looking at the target or at all of its block but it, for the head that does most.
        """
        return float(np.maximum(*self.blocks(name, layer)).mean(1).max())


def pattern_shares(run: Run, layer: int, examples: int = 128) -> tuple[float, float]:
    """How much of layer `layer`'s attention (from 1) goes where the construction sends it, for the
    head that does most.

    Returns:
        Share of the queries (i, j) whose largest weight is on the target, and mean weight on the
        target, both 0 … 1.
    """
    subject = run.subject(n_examples=examples)
    targets = pattern_targets(run, subject.data.tokens, layer)  # (example, query), -1: none
    pattern = subject.activation(f"blocks.{layer - 1}.attn.hook_pattern")
    asked = targets >= 0
    index = targets.clamp_min(0)[:, None, :, None].expand(-1, pattern.shape[1], -1, 1)
    mass = pattern.gather(-1, index).squeeze(-1).transpose(1, 2)[asked].mean(0)  # (head,)
    right = (pattern.argmax(-1).transpose(1, 2)[asked] == targets[asked][:, None]).float().mean(0)
    best = int(right.argmax())
    return float(right[best]), float(mass[best])


def block_shares(run: Run, layer: int, examples: int = 128) -> tuple[Heads, Heads]:
    """How much of layer `layer`'s attention (from 1) follows the construction, one block of queries
    and one head at a time.

    Of a permutation the value that is missing tells as much as the one that is looked at. Which of
    the two a block of queries finds is its own matter: the tokens of different blocks share no
    embedding, and the OV matrix can turn those of one around and leave the others.

    Returns:
        Share of a block's queries whose largest weight is on the target, and of those which give
        the target's block more weight than uniform attention does, 1/k, and the target the least
        of it: 0 … 1, both (head, block), of the blocks from which the construction's layer has a
        target.
    """
    subject, n, k = run.subject(n_examples=examples), task_of(run).n, task_of(run).k
    targets = pattern_targets(run, subject.data.tokens, layer)
    asked = int((targets[0] >= 0).sum())  # the first blocks, whole
    targets = targets[:, :asked]
    pattern = subject.activation(f"blocks.{layer - 1}.attn.hook_pattern")[:, :, :asked]
    looking = pattern.argmax(-1) == targets[:, None]
    keys = rearrange(
        pattern, "example head query (block key) -> example head query block key", key=n
    )
    index = (targets // n)[:, None, :, None, None].expand(-1, pattern.shape[1], -1, 1, n)
    own = keys.gather(3, index).squeeze(3)  # (example, head, query, key) of the target's block
    avoiding = (own.argmin(-1) == (targets % n)[:, None]) & (own.sum(-1) > 1 / k)
    shares = (
        rearrange(one.double(), "example head (block query) -> example head block query", query=n)
        for one in (looking, avoiding)
    )
    looked, avoided = (one.mean((0, 3)).cpu().numpy() for one in shares)
    return looked, avoided


def pattern_targets(
    run: Run, tokens: Int[Tensor, "example pos"], layer: int
) -> Int[Tensor, "example pos"]:
    """The position that the construction's layer attends to from every position, -1 where it
    ends.
    """
    task = task_of(run)
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


def in_order(steps: Sequence[float]) -> bool:
    """Every hop learned, none before a shorter one, the last after the first."""
    return math.isfinite(max(steps)) and list(steps) == sorted(steps) and steps[0] < steps[-1]


def solved(steps: Sequence[Sequence[float]]) -> int:
    """How many runs learned every hop."""
    return sum(math.isfinite(max(row)) for row in steps)


def describe(steps: Sequence[Sequence[float]], hops: Sequence[int]) -> str:
    """Median steps at which hops are learned."""
    medians = [float(np.median(column)) for column in zip(*steps, strict=True)]
    words = (
        f"{hop}-hop " + (f"at step {step:.0f}" if math.isfinite(step) else "never")
        for hop, step in zip(hops, medians, strict=True)
    )
    return ", ".join(words) + " (medians)"
