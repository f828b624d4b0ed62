"""The operands of a task's grid: where they stand in an example, which tokens their elements have,
and how the model embeds these. All of it follows from the task's layout, whatever examples the
subject holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from mechint.errors import DataError
from mechint.subject import Subject
from mechint.task import FiniteTask

MAX_INPUTS = 2**21
"""Inputs up to which a task is asked for all of them."""


def grid_tokens(subject: Subject) -> Int[Tensor, "*grid pos"] | None:
    """Tokens of all inputs of a task with several operands; None of other tasks."""
    task = subject.task
    if not isinstance(task, FiniteTask) or len(task.grid) < 2 or math.prod(task.grid) > MAX_INPUTS:
        return None
    return task.examples().tokens.reshape(*task.grid, -1)


def operand_positions(subject: Subject) -> tuple[int, ...] | None:
    """Positions of the tokens that vary with each operand alone; None where there is not one of
    each.
    """
    tokens = grid_tokens(subject)
    if tokens is None or tokens.shape[-1] != subject.data.tokens.shape[1]:
        return None
    axes = range(tokens.dim() - 1)
    varies = torch.stack(
        [(tokens != tokens.narrow(axis, 0, 1)).flatten(0, -2).any(0) for axis in axes]
    )  # (axis, pos)
    alone = varies & (varies.sum(0) == 1)
    if not bool((alone.sum(1) == 1).all()):
        return None
    return tuple(alone.int().argmax(1).tolist())


def axis_tokens(subject: Subject) -> tuple[list[int], list[int]] | None:
    """Tokens of the first and of the second operand along the axes of the grid."""
    tokens, positions = grid_tokens(subject), operand_positions(subject)
    if tokens is None or positions is None or len(positions) != 2:
        return None
    return tokens[:, 0, positions[0]].tolist(), tokens[0, :, positions[1]].tolist()


def places_of(subject: Subject, tokens: Sequence[int]) -> tuple[list[int], list[int]] | None:
    """The places of `tokens` along both axes of the grid; None where an axis lacks one. Where the
    second operand has tokens of its own, they are those of the first, moved on.

    >>> from mechint.planted import modular_addition
    >>> places_of(modular_addition(5, (1,)).subject, [3, 0])
    ([3, 0], [3, 0])
    """
    axes = axis_tokens(subject)
    if axes is None:
        return None
    left, right = axes
    if not {*left} & {*right}:
        right = [token - right[0] + left[0] for token in right]
    if not {*tokens} <= {*left} & {*right}:
        return None
    return [left.index(token) for token in tokens], [right.index(token) for token in tokens]


def element_places(subject: Subject) -> Int[Tensor, " element"]:
    """The place on either axis of the grid of each element of the group that acts on operands and
    answer: a task may number its tokens otherwise than the elements (hidden-addition). The order of
    the grid itself where the task names no such group.

    Raises:
        DataError: the task is none of two operands with a position each.

    >>> from mechint.planted import modular_addition
    >>> element_places(modular_addition(5, (1,)).subject).tolist()
    [0, 1, 2, 3, 4]
    """
    tokens, task = axis_tokens(subject), subject.task
    if tokens is None or task is None:
        raise DataError(f"{subject.describe()}: it has no two operands with a position each")
    left, right = tokens
    symmetry, elements = task.symmetry, left
    if symmetry is not None and task.outputs[0].group in (symmetry.group, None) and left == right:
        elements = list(symmetry.tokens) if {*symmetry.tokens} == {*left} else left
    place = {token: i for i, token in enumerate(left)}
    return torch.tensor([place[token] for token in elements], device=subject.device)


def by_element(
    subject: Subject, values: Shaped[Tensor, "example ..."]
) -> Shaped[Tensor, "element element ..."]:
    """(example, …) over the grid of both operands, its axes in the order of `element_places`."""
    grid, places = subject.grid(values), element_places(subject).to(values.device)
    if bool((places == torch.arange(len(places), device=places.device)).all()):
        return grid  # spares a copy of all values
    return grid[places[:, None], places]


def operand_tokens(subject: Subject) -> tuple[list[int], list[int]]:
    """Tokens of the first and of the second operand, in the order of `element_places`."""
    places, tokens = element_places(subject).tolist(), axis_tokens(subject)
    assert tokens is not None  # `element_places` has asked for them
    left, right = ([axis[place] for place in places] for axis in tokens)
    return left, right


def own_orders(subject: Subject, order: Sequence[int]) -> list[list[int]]:
    """The tokens of the elements `order`, and the second operand's of the same elements where it
    has tokens of its own.

    >>> from mechint.planted import modular_addition
    >>> own_orders(modular_addition(5, (1,)).subject, [2, 0])
    [[2, 0]]
    """
    first, tokens = list(order), axis_tokens(subject)
    if tokens is None or len(tokens[0]) != len(tokens[1]) or not {*first} <= {*tokens[0]}:
        return [first]
    second = [tokens[1][tokens[0].index(token)] for token in first]
    return [first] if second == first else [first, second]


# --- their embeddings -----------------------------------------------------------------------------
def embedding_rows(subject: Subject, *orders: Sequence[int]) -> Float[Tensor, "token d_embed"]:
    """The model's embeddings of elements, float64: the rows of W_E of their tokens, in several
    `orders` beside each other, and beside them the rows of the second operand's table where it has
    its own.
    """
    parts = [subject.model.W_E.detach()[list(tokens)].double() for tokens in orders]
    second = second_table(subject)
    if second is not None:
        parts.append(second[list(orders[-1])].double())
    return torch.cat(parts, 1)


def operand_rows(
    subject: Subject,
) -> tuple[Float[Tensor, "element d_embed"], Float[Tensor, "element d_embed"] | None]:
    """Embeddings of the first and of the second operand's elements in the order of
    `element_places`, float64; None for the second where it shares the first's.
    """
    left, right = operand_tokens(subject)
    weights, second = subject.model.W_E.detach(), second_table(subject)
    first = weights[left].double()
    if second is not None:
        return first, second[right].double()
    return first, None if left == right else weights[right].double()


def has_own(subject: Subject, order: Sequence[int]) -> bool:
    """Return whether the second operand has tokens or a table of its own."""
    return len(own_orders(subject, order)) > 1 or second_table(subject) is not None


def second_table(subject: Subject) -> Tensor | None:
    """The second operand's own embedding (d_vocab, d_embed), of networks that have one."""
    table = getattr(subject.model, "embed_y", None)
    return None if table is None else table.W_E.detach()
