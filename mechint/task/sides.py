"""Divide a finite task's examples into those that something is fitted on and those it is judged on.

What is fitted on some prompts of a file and judged on pairs of the same prompts may have learned
them one by one. So the prompts are divided first. A prompt and its counterfactual, alike but for
what is asked about, go to one side wherever this leaves enough to hold out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.task.batch import Batch, rng
from mechint.task.families import FiniteTask

MIN_PAIR = 2
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
    >>> halves = sides(tasks.comparison(n=3), 1 / 3, seed=0)
    >>> len(halves.fitted), len(halves.held_out), halves.apart
    (6, 3, True)
    """
    n = len(task.examples())
    return divide(n, _stated(task), max(MIN_PAIR, round(share * n)), seed)


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
    held_out: set[int] = set()
    for index in order:
        if index not in held_out and len(held_out | together[index]) <= wanted:
            held_out |= together[index]
    apart = len(held_out) >= max(MIN_PAIR, wanted / 2)
    if not apart:
        held_out = set(order[:wanted])
    sides_by_index = (
        [index for index in range(n) if (index in held_out) == side] for side in (False, True)
    )
    fitted, judged = (torch.tensor(side, dtype=torch.int64) for side in sides_by_index)
    return Sides(fitted, judged, apart)


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
