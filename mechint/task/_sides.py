"""The examples that something is fitted on and those held out, where a task's inputs are a sample.

What is fitted on some prompts of a file and judged on pairs of the same prompts may have learned
them one by one. So the prompts are divided first. A prompt and its counterfactual, which are alike
but for what is asked about, go to one side wherever this leaves enough to hold out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.task.batch import Batch, rng
from mechint.task.families import FiniteTask

LEAST = 2
"""Examples that make a pair."""


@dataclass(frozen=True)
class Sides:
    """Examples that are fitted on and examples that are held out, as indices into `examples()`,
    ascending. apart: no example has a stated counterfactual on the other side.
    """

    fitted: Int[Tensor, " fitted"]
    held_out: Int[Tensor, " held_out"]
    apart: bool


def sides(task: FiniteTask, share: float, seed: int) -> Sides:
    """The examples of `task`, `share` of them held out at random, at least two.

    >>> import tasks
    >>> found = sides(tasks.comparison(n=3), 1 / 3, seed=0)
    >>> len(found.fitted), len(found.held_out), found.apart
    (6, 3, True)
    """
    n = len(task.examples())
    return divide(n, _stated(task), max(LEAST, round(share * n)), seed)


def divide(n: int, links: Iterable[tuple[int, int]], wanted: int, seed: int) -> Sides:
    """`wanted` of n examples held out at random. Those that links join, directly or not, stay
    together, unless this leaves fewer than half of `wanted` to hold out: then links are cut.

    >>> divide(4, [(0, 1), (2, 3)], 2, seed=0).apart, divide(3, [(0, 1), (1, 2)], 2, seed=0).apart
    (True, False)
    """
    together = [{index} for index in range(n)]
    for a, b in links:
        if together[a] is not together[b]:
            together[a] |= together[b]
            for index in together[b]:
                together[index] = together[a]
    order: list[int] = rng("held out", seed).permutation(n).tolist()
    held: set[int] = set()
    for index in order:
        if index not in held and len(held | together[index]) <= wanted:
            held |= together[index]
    apart = len(held) >= max(LEAST, wanted / 2)
    if not apart:
        held = set(order[:wanted])
    fitted, held_out = (
        torch.tensor([index for index in range(n) if (index in held) == side], dtype=torch.int64)
        for side in (False, True)
    )
    return Sides(fitted, held_out, apart)


def _stated(task: FiniteTask) -> list[tuple[int, int]]:
    """(base, source) of every pair that the task states, as indices into its examples."""
    places = {row: index for index, row in enumerate(_rows(task.examples()))}
    links: list[tuple[int, int]] = []
    for variable in task.variables.values():
        if (stated := task.stated_pairs(variable)) is not None:
            both = zip(_rows(stated.base), _rows(stated.source), strict=True)
            links += [(places[base], places[source]) for base, source in both]
    return links


def _rows(examples: Batch) -> list[tuple[int, ...]]:
    return [tuple(row) for row in examples.tokens.cpu().numpy().tolist()]
