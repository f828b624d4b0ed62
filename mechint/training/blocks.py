"""An ensemble's step on a CPU in blocks of models, each in a thread of its own.

Sixteen small models stacked leave the caches at every operation, and two cores that share each
operation wait for each other some hundred times a step. A block of a few models stays nearer to the
caches, and a core that computes a whole block waits once. How an ensemble is cut follows from the
plan alone, so that the same plan gives the same bits on one core as on two.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")

LEAST = 1 << 25
"""Estimated bytes of an ensemble from which on it is cut."""


def cut(models: int, model_bytes: int) -> list[slice]:
    """The models of each block: two halves, or all where they are small together.

    >>> cut(5, 1 << 24), cut(5, 1 << 20)
    ([slice(0, 3, None), slice(3, 5, None)], [slice(0, 5, None)])
    """
    if models < 2 or models * model_bytes < LEAST:
        return [slice(0, models)]
    half = -(-models // 2)
    return [slice(0, half), slice(half, models)]


def side_by_side(tasks: Sequence[Callable[[], T]], at_once: int | None = None) -> list[T]:
    """What each of `tasks` gives, in order; `at_once` of them at a time, which share PyTorch's
    threads evenly, or as many as there are threads when None.
    """
    threads = torch.get_num_threads()
    at_once = min(at_once or threads, len(tasks))
    if at_once < 2:
        return [task() for task in tasks]
    return list(_crew(at_once, max(1, threads // at_once)).map(lambda task: task(), tasks))


@functools.cache
def _crew(members: int, threads: int) -> ThreadPoolExecutor:
    """`members` threads, each of which lets PyTorch have `threads`."""
    before = torch.get_num_threads()
    begun = threading.Barrier(members + 1)

    def begin() -> None:
        torch.get_num_threads()  # at its first use PyTorch gives a thread what all have
        torch.set_num_threads(threads)
        begun.wait()

    crew = ThreadPoolExecutor(members, "mechint-block", initializer=begin)
    for _ in range(members):  # none is idle before all have begun, so each starts another
        crew.submit(lambda: None)
    begun.wait()
    torch.set_num_threads(before)  # what threads of others start with
    return crew
