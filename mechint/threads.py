"""Work of PyTorch or numpy in threads, each of which computes with its share of the cores.

    halves = side_by_side([lambda: heavy(first), lambda: heavy(second)])

Two threads that each compute something whole wait for each other once, where two that share every
small operation do so all the time. What is computed does not depend on how many there are.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


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

    crew = ThreadPoolExecutor(members, "mechint", initializer=begin)
    for _ in range(members):  # none is idle before all have begun, so each starts another
        crew.submit(lambda: None)
    begun.wait()
    torch.set_num_threads(before)  # what threads of others start with
    return crew
