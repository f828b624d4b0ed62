"""The multiplication table that a trained model answers with.

The representation-theory project does not record the order of its permutations, so for symmetric
and alternating groups the table comes from the model itself. A model that is nearly right still
tells its group: every product can be had in many ways, x·y = (x·a)·(a⁻¹·y), and the answer that
most of them give is the group's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.errors import DataError
from mechint.groups.finite import FiniteGroup

VOTES = 32
"""Ways to have each product that are asked."""

ROUNDS = 3


def answers(
    model: Callable[[Tensor], Tensor], n: int, last_token: int | None
) -> Int[Tensor, "x y"]:
    """The class that `model` answers for every pair of `n` elements; `last_token` ends the prompt
    where there is one.
    """
    pairs = torch.cartesian_prod(torch.arange(n), torch.arange(n))
    if last_token is not None:
        pairs = torch.cat([pairs, torch.full((n * n, 1), last_token)], 1)
    with torch.no_grad():
        parts = [model(part)[:, -1].argmax(-1) for part in pairs.split(4096)]
    return torch.cat(parts).view(n, n)


def repair(table: Int[Tensor, "x y"]) -> Int[Tensor, "x y"]:
    """`table` with every entry replaced by what most of `VOTES` ways to have that product say.

    A group's own table stays as it is.

    >>> table = torch.arange(7).add(torch.arange(7)[:, None]) % 7
    >>> wrong = table.clone()
    >>> wrong[2, 3] = 0
    >>> bool((repair(wrong) == table).all())
    True
    """
    n = len(table)
    generator = torch.Generator().manual_seed(0)
    for _ in range(ROUNDS):
        identity = int((table == torch.arange(n)).sum(1).argmax())
        gives_identity = (table == identity).int()
        inverse = (gives_identity + gives_identity.T).argmax(1)  # (n,) on both sides where it can
        order = torch.randperm(n, generator=generator)
        through = order[order != identity][:VOTES]  # through the identity nothing new is asked
        if not len(through):
            break
        votes = torch.stack([table[table[:, a]][:, table[inverse[a]]] for a in through])
        repaired = votes.mode(0).values  # (n, n) the first factor of each vote is x·a
        if bool((repaired == table).all()):
            break
        table = repaired
    return table


def group_table(found: Int[Tensor, "x y"]) -> tuple[list[list[int]], int]:
    """The table of the group that the answers `found` (n, n) come nearest to, and how many answers
    are not its own.

    Raises:
        DataError: the answers are not those of a group, repaired or not.
    """
    table = found
    try:
        FiniteGroup(table.tolist())
    except DataError:
        table = repair(found)
        FiniteGroup(table.tolist())
    return table.tolist(), int((table != found).sum())
