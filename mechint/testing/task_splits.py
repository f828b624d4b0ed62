"""Checks of what a task hands out: the same for the same seed, and no test example in training."""

from __future__ import annotations

import math
import random
from itertools import islice

import numpy as np
import torch

from mechint.task import SPLITS, Batch, FiniteTask, Task


def check_determinism(task: Task, seed: int, n: int) -> None:
    """Samples and streams are functions of their arguments, a stream can be entered anywhere, and
    no global seed moves.
    """
    before = _global_randomness()
    fresh = type(task).from_dict(task.to_dict())  # nothing cached
    for split in SPLITS:
        if not has_split(task, split, seed):
            continue
        assert _same(task.sample(n, seed, split), fresh.sample(n, seed, split)), (
            f"{task.name}: the same seed gives other {split} examples"
        )
        first = list(islice(task.stream(split, seed, 8), 4))
        later = next(iter(fresh.stream(split, seed, 8, start=3)))
        assert _same(first[3], later), (
            f"{task.name}: the {split} stream entered at batch 3 differs from the one read "
            "from the start"
        )
    assert before == _global_randomness(), f"{task.name}: a global random state was touched"


def check_inputs(task: FiniteTask) -> None:
    """The inputs are as many as the grid has places, each is there once, and in the grid's order:
    along every axis some tokens follow the index of this axis alone and tell its indices apart.
    """
    tokens = task.examples().tokens
    n = len(tokens)
    assert math.prod(task.grid) == n, (
        f"{task.name}: a grid of {task.grid} has {math.prod(task.grid)} places; there are {n} "
        "inputs"
    )
    distinct = len(set(map(tuple, tokens.tolist())))
    assert distinct == n, (
        f"{task.name}: {n} inputs, of which {distinct} differ; expected every input once, since a "
        "copy of a training input is no test of anything"
    )
    if len(task.grid) < 2:
        return
    placed = tokens.reshape(*task.grid, tokens.shape[1])
    for axis, size in enumerate(task.grid):
        slices = placed.movedim(axis, 0).flatten(1, -2)  # (index on the axis, all others, pos)
        follow = (slices == slices[:, :1]).all(1).all(0)
        seen = len(set(map(tuple, slices[:, 0, follow].tolist())))
        assert seen == size, (
            f"{task.name}: the tokens that follow axis {axis} of the grid {task.grid} alone tell "
            f"{seen} of its {size} indices apart; expected `inputs` in the order of `grid`, "
            "operand k on axis k"
        )


def check_split(task: Task, seed: int, n: int) -> None:
    """A finite task's split is a partition, and each stream stays inside its part; a generated
    task's test is not in training.
    """
    if isinstance(task, FiniteTask):
        parts = task.split(seed)
        everything = torch.cat([parts[split] for split in SPLITS]).sort().values
        assert torch.equal(everything, torch.arange(len(task.examples()))), (
            f"{task.name}: the split is not a partition of the inputs"
        )
        for split in (split for split in SPLITS if len(parts[split])):
            own = set(_rows(task.examples()[parts[split]]))
            assert set(_rows(next(iter(task.stream(split, seed, n))))) <= own, (
                f"{task.name}: the {split} stream leaves its part"
            )
        return
    trained = {row for batch in islice(task.stream("train", seed, 64), 8) for row in _rows(batch)}
    held_out = set(_rows(task.sample(n, seed, "test"))) | set(
        _rows(next(iter(task.stream("test", seed, n))))
    )
    assert not trained & held_out, f"{task.name}: a test example is in the training stream"


def has_split(task: Task, split: str, seed: int) -> bool:
    """Return whether there are examples of `split`: a finite task may leave validation or test
    empty.
    """
    return not isinstance(task, FiniteTask) or len(task.split(seed)[split]) > 0


def _global_randomness() -> str:
    generator = np.random.get_bit_generator()  # type: ignore[attr-defined]
    return repr((random.getstate(), generator.state["state"], torch.get_rng_state().tolist()))


def _same(a: Batch, b: Batch) -> bool:
    return torch.equal(a.tokens, b.tokens) and torch.equal(a.targets, b.targets)


def _rows(batch: Batch) -> list[tuple[float, ...]]:
    return [tuple(row) for row in batch.tokens.tolist()]
