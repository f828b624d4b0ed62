"""Finite algebras: a set of values 0 … size-1 with named operations on any number of operands."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np
from jaxtyping import Int

from mechint.groups import finite
from mechint.groups.finite import FiniteGroup
from mechint.task import rng

Table = Int[np.ndarray, "n n"]
ADDITIONS = ("sum", "shuffled", "random-uniform", "random-skewed")


@dataclass(frozen=True)
class Operation:
    """A function of one or more operands; `symbol` is its one-character name."""

    symbol: str
    compute: Callable[[Sequence[int]], int]


@dataclass(frozen=True, eq=False)
class Algebra:
    """`size` values, the operations by name in a fixed order, and the group its values form.

    >>> integers(10).compute(3, [7, 4])
    1
    """

    size: int
    operations: Mapping[str, Operation]
    group: FiniteGroup

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the operations, by the order of their numbers."""
        return tuple(self.operations)

    def compute(self, operation: int, operands: Sequence[int]) -> int:
        """The value of operation number `operation`."""
        return self.operations[self.names[operation]].compute(operands)


# --- integers mod n -------------------------------------------------------------------------------
def integers(n: int, addition: Table | None = None) -> Algebra:
    """0 … n-1 with MAX, MIN, MED, ADD, PROD and NADD (Σ (-1)^i x_i), the last three mod n.

    The median of an even number of operands is the mean of the middle two, rounded down (as in
    ListOps, Nangia & Bowman 2018). `addition` (n, n) replaces the table of ADD; more than two
    operands are then added from the left.
    """
    operations = {
        "MAX": Operation("+", max),
        "MIN": Operation("-", min),
        "MED": Operation("/", lambda x: int(statistics.median(x))),
        "ADD": Operation("%", lambda x: sum(x) % n),
        "PROD": Operation("*", lambda x: math.prod(x) % n),
        "NADD": Operation("~", lambda x: (sum(x[::2]) - sum(x[1::2])) % n),
    }
    if addition is not None:
        operations["ADD"] = folded("%", addition)
    return Algebra(n, operations, finite.cyclic(n))


def folded(symbol: str, table: Table) -> Operation:
    """The operation whose value is ``table[table[x0, x1], x2]`` and so on, from the left."""
    rows = table.tolist()
    return Operation(symbol, lambda x: reduce(lambda a, b: rows[a][b], x))


def addition_table(kind: str, n: int, seed: int) -> Table | None:
    """The table (n, n) of ADD for a kind of `ADDITIONS`; None for the sum itself.

    shuffled: symmetric; the sums above the diagonal are shuffled among themselves and mirrored,
    those on the diagonal shuffled apart, so that answers stay as frequent as in the sum ("Small
    Models, Smarter Learning", App. K). random-uniform: all n² answers shuffled, each as frequent as
    any other. random-skewed: every answer drawn on its own, v with probability ∝ 1 / (v + 1).
    """
    if kind == "sum":
        return None
    generator = rng("addition", kind, n, seed)
    table = np.add.outer(np.arange(n), np.arange(n)) % n
    if kind == "random-uniform":
        return generator.permutation(table.ravel()).reshape(n, n)
    if kind == "random-skewed":
        share = np.cumsum(1 / np.arange(1, n + 1))
        return np.searchsorted(share / share[-1], generator.random((n, n)), side="right")
    assert kind == "shuffled", kind
    upper = np.triu_indices(n, 1)
    shuffled = np.diag(generator.permutation(table.diagonal()))
    shuffled[upper] = generator.permutation(table[upper])
    return np.triu(shuffled) + np.triu(shuffled, 1).T


# --- permutations and random answers --------------------------------------------------------------
def permutation_blocks() -> Algebra:
    """The 36 block-diagonal 6×6 permutation matrices of two 3×3 blocks with OP, OP_TOP and
    OP_BOTTOM.

    Value ``6 * top + bottom``, each block a permutation of three points in lexicographic order. OP
    multiplies both blocks; OP_TOP and OP_BOTTOM multiply one and leave the other as it is in the
    first operand.
    """
    group = finite.permutation_blocks()
    element = np.arange(36)
    top, bottom = np.divmod(element[:, None], 6)
    operations = {
        "OP": folded("*", group.table),
        "OP_TOP": folded("^", group.table // 6 * 6 + bottom),
        "OP_BOTTOM": folded("_", group.table % 6 + 6 * top),
    }
    return Algebra(36, operations, group)


def random_answers(algebra: Algebra, seed: int) -> Algebra:
    """`algebra` with every answer replaced by a fixed random function of the operation and all its
    operands in order: SplitMix64 (Steele, Lea & Flood 2014) chained over seed, index of the
    operation and operands, mod the number of values.
    """
    operations = {}
    for index, (name, entry) in enumerate(algebra.operations.items()):
        start = _mix(_mix(seed) ^ index)
        operations[name] = Operation(entry.symbol, partial(_hash, algebra.size, start))
    return Algebra(algebra.size, operations, algebra.group)


_WORD = (1 << 64) - 1


def _mix(word: int) -> int:
    """SplitMix64's output for the state `word`."""
    word = (word + 0x9E3779B97F4A7C15) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def _hash(size: int, start: int, operands: Sequence[int]) -> int:
    return reduce(lambda word, operand: _mix(word ^ operand), operands, start) % size
