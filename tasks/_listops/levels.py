"""A batch of expressions as arrays, one `Level` per depth of nesting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks._listops.algebra import Ints, Mask


@dataclass(frozen=True, eq=False)
class Level:
    """All brackets of one depth: `example`, `operation`, `count`, `value` (bracket,); `nested`,
    `operands` (slot, bracket).
    """

    example: Ints
    operation: Ints
    count: Ints
    nested: Mask
    operands: Ints
    value: Ints

    @property
    def valid(self) -> Mask:
        """(slot, bracket) whether an operand stands in the slot."""
        return np.arange(len(self.operands))[:, None] < self.count


def select(levels: list[Level], keep: Mask) -> tuple[list[Level], int]:
    """The kept examples' brackets, examples renumbered, and how many examples that is."""
    number = np.cumsum(keep) - 1
    kept = []
    for level in levels:
        rows = np.flatnonzero(keep[level.example])
        if len(rows):
            kept.append(
                Level(
                    number[level.example[rows]],
                    level.operation[rows],
                    level.count[rows],
                    level.nested[:, rows],
                    level.operands[:, rows],
                    level.value[rows],
                )
            )
    return kept, int(keep.sum())
