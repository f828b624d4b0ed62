"""Draws and solves whole batches of nested expressions, without a Python loop over examples.

A batch of expressions is a list of `Level`s, one a depth of nesting; a column of a level is a
bracket, and the nested operands of level d, read slot by slot, are the brackets of level d + 1.
Growing goes down the levels, solving goes up.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from tasks._listops.algebra import Ints, Mask
from tasks._listops.levels import Level, select
from tasks._listops.notation import Notation
from tasks._listops.writer import Writer

NESTING = 0.5
"""Probability that an operand is a bracket, where the depth allows one."""
CHUNK = 8192
"""Most expressions drawn at once; bounds memory."""


@dataclass(frozen=True, eq=False)
class Patterns:
    """Held-out operand tuples, ordered: `tuples` (pattern, operand) over 0 … size-1."""

    tuples: Ints
    size: int

    @cached_property
    def _codes(self) -> Ints:
        return np.sort(self.encode(self.tuples.T))

    def encode(self, operands: Ints) -> Ints:
        """One number for each tuple, a column of (operand, tuple)."""
        return self.size ** np.arange(len(operands), dtype=np.int64) @ operands

    def found(self, levels: list[Level], n: int) -> Mask:
        """(n,) whether any bracket, once its operands are values, shows a pattern among its
        consecutive operands.
        """
        length = self.tuples.shape[1]
        found = np.zeros(n, bool)
        for level in levels:
            for first in range(len(level.operands) - length + 1):
                codes = self.encode(level.operands[first : first + length])
                place = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
                found[
                    level.example[(self._codes[place] == codes) & (level.count >= first + length)]
                ] = True
        return found

    def plant(self, levels: list[Level], n: int, generator: np.random.Generator) -> Mask:
        """Write a random pattern into one bracket that holds just as many plain values, drawn from
        all such of an example.

        Returns (n,) whether the example had one.
        """
        length = self.tuples.shape[1]
        fits = [np.flatnonzero((level.count == length) & ~level.nested.any(0)) for level in levels]
        example = np.concatenate(
            [level.example[rows] for level, rows in zip(levels, fits, strict=True)]
        )
        order = np.lexsort((generator.random(len(example)), example))
        chosen = np.zeros(len(example), bool)
        chosen[order[np.flatnonzero(np.diff(example[order], append=-1))]] = True
        for level, rows, here in zip(
            levels,
            fits,
            np.split(chosen, np.cumsum([len(rows) for rows in fits])[:-1]),
            strict=True,
        ):
            level.operands[:length, rows[here]] = self.tuples[
                generator.integers(0, len(self.tuples), here.sum())
            ].T
        return np.isin(np.arange(n), example)


@dataclass(frozen=True, eq=False)
class Grammar:
    """Expressions with `fewest` to `operands` operands a bracket and up to `depth` nested brackets,
    of at most `n_ctx` characters.

    `weights` (operation,): how often each of the algebra's operations is drawn, in proportion.
    """

    notation: Notation
    weights: NDArray[np.float64]
    fewest: int
    operands: int
    depth: int
    chain_of_thought: bool
    n_ctx: int

    @property
    def writer(self) -> Writer:
        """What writes solved expressions as tokens."""
        return Writer(self.notation, self.chain_of_thought)

    @property
    def most_brackets(self) -> int:
        """No text with more brackets fits: each takes two items and an operand at every step that
        still shows it.
        """
        if not self.chain_of_thought:
            return self.n_ctx // 3
        return next(b for b in itertools.count() if 3 * (b + 1) * (b + 2) // 2 > self.n_ctx)

    # --- growing and solving ----------------------------------------------------------------------
    def grow(self, n: int, generator: np.random.Generator) -> tuple[list[Level], Mask]:
        """`n` random trees with unsolved nested operands, and (n,) which of them stayed within
        `most_brackets`.

        The number of operands is uniform, every operand is nested with probability `NESTING`,
        operations come with `weights`, values are uniform.
        """
        share = np.cumsum(self.weights) / np.sum(self.weights)
        levels: list[Level] = []
        example, brackets = np.arange(n), np.zeros(n, np.int64)
        for below in reversed(range(self.depth)):
            shape = (self.operands, len(example))
            brackets += np.bincount(example, minlength=n)
            small = brackets <= self.most_brackets
            count = generator.integers(self.fewest, self.operands + 1, len(example))
            operation = np.searchsorted(share, generator.random(len(example)), side="right")
            operands = generator.integers(0, self.notation.algebra.size, shape)
            nested = np.zeros(shape, bool)
            if below:
                nested = (
                    (generator.random(shape) < NESTING)
                    & (np.arange(self.operands)[:, None] < count)
                    & small[example]
                )
            levels.append(
                Level(example, operation, count, nested, operands, np.zeros(len(example), np.int64))
            )
            example = example[np.nonzero(nested)[1]]
            if not len(example):
                break
        return levels, brackets <= self.most_brackets

    def solve(self, levels: list[Level]) -> list[Level]:
        """`levels` with every bracket's value, the nested operands' included."""
        solved: list[Level] = []
        for level in reversed(levels):
            if solved:
                level.operands[level.nested] = solved[0].value
            solved.insert(
                0,
                replace(
                    level,
                    value=self.notation.algebra.apply(level.operation, level.operands, level.count),
                ),
            )
        return solved

    def draw(
        self, n: int, generator: np.random.Generator, patterns: Patterns, held_out: bool
    ) -> tuple[Int[np.ndarray, "n n_ctx"], Int[np.ndarray, " n"]]:
        """Tokens (n, n_ctx), padded with the end, and lengths (n,) of `n` expressions.

        held_out: each shows at least one of `patterns` as all operands of a bracket; otherwise none
        shows any.
        """
        parts: list[tuple[NDArray[np.int16], Ints]] = []
        have = drawn = 0
        while have < n or not parts:
            size = min(CHUNK, int(1.2 * (n - have) * (drawn + 1) / (have + 1)) + 16)
            levels, keep = self.grow(size, generator)
            if held_out:
                keep &= patterns.plant(levels, size, generator)
            levels = self.solve(levels)
            if not held_out:
                keep &= ~patterns.found(levels, size)
            parts.append(self.writer.write(*select(levels, keep), self.n_ctx))
            have, drawn = have + len(parts[-1][1]), drawn + size
        tokens, lengths = (np.concatenate(part)[:n] for part in zip(*parts, strict=True))
        return tokens, lengths

    # --- sizes ------------------------------------------------------------------------------------
    def length(self, complete: bool) -> int:
        """Characters of the longest text the grammar writes, or of a short one that has `operands`
        at once and reaches `depth`.

        The longest is the complete tree; the short one a chain of brackets with the fewest operands
        but for the first.
        """
        notation = self.notation
        widest = int(
            np.argmax(
                [
                    len(text) * (weight > 0)
                    for text, weight in zip(notation.openings, self.weights, strict=True)
                ]
            )
        )
        value = notation.algebra.size - 1 if complete else 0
        levels, rows = [], 1
        for depth in range(self.depth):
            count = np.full(rows, self.operands if complete or not depth else self.fewest)
            nested = np.arange(self.operands)[:, None] < (count if complete else np.ones(rows))
            nested = nested if depth + 1 < self.depth else np.zeros_like(nested)
            zeros = np.zeros(rows, np.int64)
            levels.append(
                Level(
                    zeros,
                    zeros + widest,
                    count,
                    nested,
                    np.full((self.operands, rows), value),
                    zeros + value,
                )
            )
            rows = int(nested.sum())
        return int(self.writer.spell(levels, 1)[1][0])
