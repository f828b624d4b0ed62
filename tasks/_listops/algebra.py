"""Finite algebras: a set of values 0 … size-1 with named operations on any number of operands.

Every operation is given twice: `reduce` for a whole batch at once, `plain` for one list of operands
in ordinary Python, so that the one can be held against the other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mechint.groups import named
from mechint.groups.finite import FiniteGroup
from mechint.task import rng

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

ADDITIONS = ("sum", "shuffled", "random-uniform", "random-skewed")


@dataclass(frozen=True)
class Operation:
    """An operation on one or more operands.

    reduce(operands (slot, batch), valid (slot, batch)) -> (batch,): column by column over the slots
    marked valid, which come first. plain([x0, x1, …]) -> the same for one column. `symbol` is its
    one-character name.
    """

    symbol: str
    reduce: Callable[[Ints, Mask], Ints]
    plain: Callable[[list[int]], int]


@dataclass(frozen=True, eq=False)
class Algebra:
    """`size` values, the operations by name in a fixed order, and the group its values form.

    >>> ten = integers(10)
    >>> # 7 + 4, 3 - 8 + 2
    >>> ten.apply(np.array([3, 5]), np.array([[7, 3], [4, 8], [9, 2]]),
    ...     np.array([2, 3])).tolist()
    [1, 7]
    """

    size: int
    operations: Mapping[str, Operation]
    group: FiniteGroup
    suffix: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the operations, by the order of their numbers."""
        return tuple(self.operations)

    def apply(self, operation: Ints, operands: Ints, count: Ints) -> Ints:
        """Values (batch,) of `operation` (batch,), an index into `names`, on the first `count`
        (batch,) of `operands` (slot, batch).
        """
        valid = np.arange(len(operands))[:, None] < count
        values = np.empty(len(count), np.int64)
        for index, entry in enumerate(self.operations.values()):
            rows = np.flatnonzero(operation == index)
            if len(rows):
                values[rows] = entry.reduce(operands[:, rows], valid[:, rows])
        return values


# --- integers mod n -------------------------------------------------------------------------------
def integers(n: int, addition: Ints | None = None) -> Algebra:
    """0 … n-1 with MAX, MIN, MED, ADD, PROD and NADD (Σ (-1)^i x_i), the last three mod n.

    The median of an even number of operands is the mean of the middle two, rounded down (as in
    ListOps, Nangia & Bowman 2018). `addition` (n, n) replaces the table of ADD; more than two
    operands are then added from the left.
    """
    operations = {
        "MAX": Operation("+", lambda x, valid: np.where(valid, x, 0).max(0), max),
        "MIN": Operation("-", lambda x, valid: np.where(valid, x, n).min(0), min),
        "MED": Operation("/", partial(_median, n), lambda values: int(statistics.median(values))),
        "ADD": Operation(
            "%", lambda x, valid: np.where(valid, x, 0).sum(0) % n, lambda values: sum(values) % n
        ),
        "PROD": Operation("*", partial(_product, n), lambda values: math.prod(values) % n),
        "NADD": Operation(
            "~", partial(_alternate, n), lambda values: (sum(values[::2]) - sum(values[1::2])) % n
        ),
    }
    if addition is not None:
        operations["ADD"] = folded("%", addition)
    return Algebra(n, operations, named.cyclic(n), suffix=f"_{n}")


def _median(n: int, x: Ints, valid: Mask) -> Ints:
    ordered, count = np.sort(np.where(valid, x, n), axis=0), valid.sum(0)
    columns = np.arange(len(count))
    return (ordered[(count - 1) // 2, columns] + ordered[count // 2, columns]) // 2


def _product(n: int, x: Ints, valid: Mask) -> Ints:
    value = x[0]
    for other, there in zip(x[1:], valid[1:], strict=True):
        value = np.where(there, value * other % n, value)
    return value % n


def _alternate(n: int, x: Ints, valid: Mask) -> Ints:
    signs = 1 - 2 * (np.arange(len(x)) % 2)
    return (np.where(valid, x, 0) * signs[:, None]).sum(0) % n


def folded(symbol: str, table: Ints) -> Operation:
    """The operation whose value is ``table[table[x0, x1], x2]`` and so on, from the left."""

    def reduce(x: Ints, valid: Mask) -> Ints:
        value = x[0]
        for other, there in zip(x[1:], valid[1:], strict=True):
            value = np.where(there, table[value, other], value)
        return value

    def plain(values: list[int]) -> int:
        first, *rest = values
        for other in rest:
            first = int(table[first, other])
        return first

    return Operation(symbol, reduce, plain)


def addition_table(kind: str, n: int, seed: int) -> Ints | None:
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
    group = named.permutation_blocks()
    element = np.arange(36)
    top, bottom = np.divmod(element[:, None], 6)
    tables = {
        "OP": group.table,
        "OP_TOP": group.table // 6 * 6 + bottom,
        "OP_BOTTOM": group.table % 6 + 6 * top,
    }
    return Algebra(
        36,
        {
            name: folded(symbol, table)
            for (name, table), symbol in zip(tables.items(), "*^_", strict=True)
        },
        group,
    )


def random_answers(algebra: Algebra, seed: int) -> Algebra:
    """`algebra` with every answer replaced by a fixed random function of the operation and all its
    operands in order.

    The function is SplitMix64 (Steele, Lea & Flood 2014) chained over seed, index of the operation
    and operands, mod the number of values; one operand is no exception.
    """
    operations = {}
    for index, (name, entry) in enumerate(algebra.operations.items()):
        start = _mix(_mix(seed) ^ index)
        operations[name] = Operation(
            entry.symbol,
            partial(_hash, algebra.size, start),
            partial(_hash_plain, algebra.size, start),
        )
    return Algebra(algebra.size, operations, algebra.group, algebra.suffix)


_WORD = (1 << 64) - 1


def _mix(word: int) -> int:
    """SplitMix64's output for the state `word`."""
    word = (word + 0x9E3779B97F4A7C15) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def _hash_plain(size: int, start: int, values: list[int]) -> int:
    for value in values:
        start = _mix(start ^ value)
    return start % size


def _hash(size: int, start: int, x: Ints, valid: Mask) -> Ints:
    word = np.full(x.shape[1], start, np.uint64)
    for value, there in zip(x.astype(np.uint64), valid, strict=True):
        mixed = (word ^ value) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word = np.where(there, mixed ^ (mixed >> np.uint64(31)), word)
    return (word % np.uint64(size)).astype(np.int64)
