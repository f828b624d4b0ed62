"""A rare task in bursts: how many inputs a batch holds where the task is left out of all batches
but every so many.
"""

from __future__ import annotations

from mechint.errors import ParameterError

TOLERANCE = 0.1
"""The most by which whole numbers of inputs may move the rare task's share, as a part of it."""


def burst_sizes(name: str, rare: float, gap: int, batch_size: int) -> tuple[int, int]:
    """Inputs of the other tasks in every batch, and of the rare one, of share `rare`, in every
    `gap`-th batch.

    Args:
        name: of the task, for the message.

    Raises:
        ParameterError: whole numbers of inputs would move the rare task's long-run share by more
            than `TOLERANCE` of it.

    >>> burst_sizes("mixture", rare=0.1, gap=5, batch_size=32)
    (29, 16)
    """
    usual, due = max(1, round(batch_size * (1 - rare))), round(gap * rare * batch_size)
    share = due / (gap * usual + due)
    if abs(share - rare) > TOLERANCE * rare:
        raise ParameterError(
            f"{name}: gap={gap}: with batch_size={batch_size}, {gap * rare * batch_size:.2g} "
            f"inputs of the rare task are due at a time; {due} would make its share {share:.2%}, "
            f"not {rare:.2%}; expected a larger gap or batch_size, with 5 due or more"
        )
    return usual, due
