"""Writes solved expressions with their chain of thought, a whole batch at once.

Where an item stands follows from the sizes of all brackets before it; whether it shows at a step,
from the step that resolves its bracket. Costs about brackets × items of the largest expression, two
bytes each, an example.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from tasks._listops.algebra import Ints, Mask
from tasks._listops.levels import Level
from tasks._listops.notation import CLOSE, END, EQUALS, NOTHING, START, STEP, Notation


@dataclass(frozen=True, eq=False)
class Writer:
    """Writes solved expressions in `notation`, with every step or without."""

    notation: Notation
    chain_of_thought: bool

    def write(
        self, levels: list[Level], n: int, n_ctx: int
    ) -> tuple[Int[np.ndarray, "m n_ctx"], Int[np.ndarray, " m"]]:
        """Tokens (m, n_ctx) and lengths (m,) of those m of the `n` expressions whose text fits."""
        tokens, lengths = self.spell(levels, n)
        fits = lengths <= n_ctx
        tokens, lengths = tokens[np.repeat(fits, lengths)], lengths[fits]
        padded = np.full((len(lengths), n_ctx), self.notation.end_token, np.int16)
        padded[np.arange(n_ctx) < lengths[:, None]] = tokens
        return padded, lengths

    def spell(
        self, levels: list[Level], n: int
    ) -> tuple[Int[np.ndarray, " token"], Int[np.ndarray, " n"]]:
        """All tokens of `n` solved expressions one after another, and the length (n,) of each."""
        if not n:
            return np.zeros(0, np.int16), np.zeros(0, np.int64)
        items = self._steps(levels, n)
        characters = self.notation.spelled.take(items[items != NOTHING], axis=0)
        tokens = characters[characters > 0] - np.int16(1)
        # the end stands nowhere but at the end
        return tokens, np.diff(np.flatnonzero(tokens == self.notation.end_token), prepend=-1)

    def _steps(self, levels: list[Level], n: int) -> NDArray[np.int16]:
        """Items (n, column) of the whole texts, with gaps: start, then a block of columns a step,
        then the answer.

        Step t shows the brackets of preorder rank < brackets - t; an item shows while its own
        bracket does, and a resolved bracket shows as its value while its parent does. So ranks are
        kept less the number of brackets.
        """
        place = _places(levels, n)
        width = int(place[0].size.max())
        items, values, owners, parents = (np.zeros((n, width), np.int16) for _ in range(4))
        item, folded, owner, parent = (grid.ravel() for grid in (items, values, owners, parents))
        brackets = place[0].brackets
        for level, at in zip(levels, place, strict=True):
            base = level.example * width
            rank = at.rank - brackets[level.example]
            for slot, value in enumerate(level.operands):
                # all slots as if plain values: what follows overwrites unused ones (they fall on
                # the close) and nested ones
                leaf = base + at.operand_start[slot]
                item[leaf], owner[leaf] = self.notation.value_item(value, not slot), rank
            start, close = base + at.start, base + at.start + at.size - 1
            item[close], owner[close] = CLOSE, rank
            item[start], owner[start] = self.notation.opening_item(level.operation, at.first), rank
            folded[start], parent[start] = (
                self.notation.value_item(level.value, at.first),
                at.parent - brackets[level.example],
            )
        steps = int(brackets.max()) if self.chain_of_thought else 1
        value = self.notation.value_item(levels[0].value, True)
        text = np.zeros((n, steps * (width + 1) + 5), np.int16)
        text[:, 0] = START
        for step in range(steps):
            first = step * (width + 1)
            if step:
                text[:, first] = np.where(brackets > step, STEP, NOTHING)
            unresolved = owners < -step
            # products: np.where takes five times as long
            text[:, first + 1 : first + 1 + width] = items * unresolved + values * (
                unresolved ^ (parents < -step)
            )
        if self.chain_of_thought:
            text[:, -5], text[:, -4] = STEP, value
        text[:, -3], text[:, -2], text[:, -1] = EQUALS, value, END
        return text


@dataclass(frozen=True, eq=False)
class _Place:
    """Where the brackets of a level stand: first item, number of items and of brackets within,
    preorder rank and the parent's (the root's own at the root).
    """

    start: Ints
    size: Ints
    brackets: Ints
    rank: Ints
    parent: Ints
    first: Mask
    operand_start: Ints


def _places(levels: list[Level], n: int) -> list[_Place]:
    """A `_Place` a level; sizes are summed from the deepest level up, places handed down from the
    root.
    """
    sizes: list[tuple[Ints, Ints]] = []
    for level in reversed(levels):
        size, brackets = level.valid.astype(np.int64), np.zeros(level.nested.shape, np.int64)
        if sizes:
            size[level.nested], brackets[level.nested] = (
                2 + sizes[0][0].sum(0),
                1 + sizes[0][1].sum(0),
            )
        sizes.insert(0, (size, brackets))
    places: list[_Place] = []
    start, rank, parent, first = (
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.ones(n, bool),
    )
    for level, (size, brackets) in zip(levels, sizes, strict=True):
        operand_start = start + 1 + np.cumsum(size, 0) - size
        operand_rank = rank + 1 + np.cumsum(brackets, 0) - brackets
        places.append(
            _Place(start, 2 + size.sum(0), 1 + brackets.sum(0), rank, parent, first, operand_start)
        )
        slot, bracket = np.nonzero(level.nested)
        start, rank, parent, first = (
            operand_start[level.nested],
            operand_rank[level.nested],
            rank[bracket],
            slot == 0,
        )
    return places
