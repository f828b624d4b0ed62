"""Where the two operands of a grid stand in an example, which elements they are, and how the model
embeds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from mechint.subject import Subject
from mechint.task import FiniteTask

MOST = 2**21
"""Inputs up to which a task is asked for all of them."""


def operand_positions(subject: Subject) -> tuple[int, int] | None:
    """The positions whose token is the first and the second operand of a grid of two; None where
    they have none of their own.
    """
    return _positions(subject.grid(subject.data.tokens))


def _positions(tokens: Int[Tensor, "x y pos"]) -> tuple[int, int] | None:
    varies_x = (tokens != tokens[:1]).any(0).any(0)
    varies_y = (tokens != tokens[:, :1]).any(0).any(0)
    first = torch.nonzero(varies_x & ~varies_y).flatten().tolist()
    second = torch.nonzero(varies_y & ~varies_x).flatten().tolist()
    return (first[0], second[0]) if len(first) == len(second) == 1 else None


def element_places(subject: Subject) -> Int[Tensor, " element"]:
    """Where on either axis of the grid each element stands of the group that acts on operands and
    answer: a task may number its tokens otherwise than the elements (hidden-addition). The order
    of the grid itself where the task names no such group.

    >>> from mechint.planted import modular_addition
    >>> element_places(modular_addition(5, (1,)).subject).tolist()
    [0, 1, 2, 3, 4]
    """
    tokens = subject.grid(subject.data.tokens)
    left, right = tokens[:, 0, 0].tolist(), tokens[0, :, 1].tolist()
    task = subject.task
    assert task is not None  # `grid` has asked for one
    symmetry, elements = task.symmetry, left
    if symmetry is not None and symmetry.group == task.outputs[0].group and left == right:
        elements = list(symmetry.tokens) if {*symmetry.tokens} == {*left} else left
    place = {token: i for i, token in enumerate(left)}
    return torch.tensor([place[token] for token in elements], device=tokens.device)


def by_element(
    subject: Subject, values: Shaped[Tensor, "example ..."]
) -> Shaped[Tensor, "element element ..."]:
    """(example, …) over the grid of both operands, its axes in the order of `element_places`."""
    grid, places = subject.grid(values), element_places(subject).to(values.device)
    if bool((places == torch.arange(len(places), device=places.device)).all()):
        return grid  # spares a copy of all values
    return grid[places[:, None], places]


def by_example(
    subject: Subject, table: Shaped[Tensor, "element element"]
) -> Shaped[Tensor, " example"]:
    """What `table` holds of the two elements of every example; undoes `by_element`."""
    of_place = element_places(subject).argsort().to(table.device)
    return table[of_place[:, None], of_place].flatten()


def operand_tokens(subject: Subject) -> tuple[list[int], list[int]]:
    """Tokens of the first and of the second operand, in the order of `element_places`."""
    tokens = subject.grid(subject.data.tokens)
    places = element_places(subject)
    return tokens[places, 0, 0].tolist(), tokens[0, places, 1].tolist()


def own_orders(subject: Subject, order: Sequence[int]) -> list[list[int]]:
    """The tokens of the elements `order`, and the second operand's of the same elements where it
    has tokens of its own. Asks the task, so that any of its examples will do.

    >>> from mechint.planted import modular_addition
    >>> own_orders(modular_addition(5, (1,)).subject, [2, 0])
    [[2, 0]]
    """
    first, task = list(order), subject.task
    if not isinstance(task, FiniteTask) or len(task.grid) != 2 or math.prod(task.grid) > MOST:
        return [first]
    tokens = task.examples().tokens.reshape(*task.grid, -1)  # (x, y, pos)
    positions = _positions(tokens)
    if positions is None:
        return [first]
    left, right = tokens[:, 0, positions[0]].tolist(), tokens[0, :, positions[1]].tolist()
    if len(left) != len(right) or not {*first} <= {*left}:
        return [first]
    second = [right[left.index(token)] for token in first]
    return [first] if second == first else [first, second]


def has_own(subject: Subject, order: Sequence[int]) -> bool:
    """Whether the second operand has tokens or a table of its own."""
    return len(own_orders(subject, order)) > 1 or _second_table(subject) is not None


def embedded(subject: Subject, tokens: Sequence[int]) -> dict[int, Float[Tensor, "token d_model"]]:
    """Position → what ``hook_embed`` is there for each of `tokens`, of the positions at which all
    of them occur; whatever tables the model embeds them with.

    Cost: one forward over as many examples as there are tokens and positions.
    """
    data = subject.data.tokens
    wanted = torch.tensor(list(tokens), device=data.device)
    examples = {t: where for t in range(data.shape[1]) if (where := _first(data[:, t], wanted))}
    if not examples:
        return {}
    together = sorted({i for where in examples.values() for i in where})
    row = {example: i for i, example in enumerate(together)}
    found = subject.activation("hook_embed", data=subject.data[torch.tensor(together)])
    return {
        t: found[[row[i] for i in where], t] for t, where in examples.items() if t < found.shape[1]
    }


def _first(column: Int[Tensor, " example"], tokens: Int[Tensor, " token"]) -> list[int]:
    """The first example that has each of `tokens` in `column`; empty where one has none."""
    hits = column[None] == tokens[:, None]  # (token, example)
    return hits.int().argmax(1).tolist() if bool(hits.any(1).all()) else []


def embedding_rows(subject: Subject, *orders: Sequence[int]) -> Float[Tensor, "token d_embed"]:
    """How the model embeds elements, float64: the rows of W_E of their tokens, in several `orders`
    beside each other, and beside them the rows of the second operand's table where it has its own.
    """
    parts = [subject.model.W_E.detach()[list(tokens)].double() for tokens in orders]
    second = _second_table(subject)
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
    weights, second = subject.model.W_E.detach(), _second_table(subject)
    first = weights[left].double()
    if second is not None:
        return first, second[right].double()
    return first, None if left == right else weights[right].double()


def _second_table(subject: Subject) -> Tensor | None:
    """The second operand's own embedding (d_vocab, d_embed), of networks that have one."""
    table = getattr(subject.model, "embed_y", None)
    return None if table is None else table.W_E.detach()
