"""An ensemble's step on a CPU in blocks of models, each in a thread of its own.

Sixteen small models stacked leave the caches at every operation, and two cores that share each
operation wait for each other some hundred times a step. A block of a few models stays nearer to the
caches, and a core that computes a whole block waits once. How an ensemble is cut follows from the
plan alone, so that the same plan gives the same bits on one core as on two.
"""

from __future__ import annotations

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
