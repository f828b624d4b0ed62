"""Finite groups, from a multiplication table or by name: cyclic, dihedral, symmetric, alternating,
and their direct products.

Everything follows from the table, so a table read off a trained model serves as well as one that is
written down here. Only numpy is needed.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike, NDArray

from mechint.errors import DataError, ParameterError

MAX_POINTS = 6
"""Symmetric and alternating groups act on at most so many points (6! = 720 elements)."""

MAX_ORDER = 1024
"""The largest group that is made from a name."""


@dataclass(frozen=True, eq=False, repr=False)
class FiniteGroup:
    """A finite group: ``table[a, b]`` is the index of the product a·b. Equal groups have equal
    tables.

    Args:
        table: (n, n) integers 0 … n-1.
        names: one name per element, for texts and figures; the indices when none.
        action: (n, points) where each element sends each point, where the group is given as
            permutations. The table alone cannot tell it from its image under an outer automorphism.

    Raises:
        DataError: the table is not closed, has no identity, an element without inverse, or is not
            associative.

    >>> FiniteGroup([[0, 1], [1, 0]])
    FiniteGroup(order=2)
    >>> FiniteGroup([[0, 1], [1, 1]])
    Traceback (most recent call last):
    mechint.errors.DataError: group table: element 1 has no inverse
    """

    table: NDArray[np.int64]
    names: tuple[str, ...]
    action: NDArray[np.int64] | None

    def __init__(self, table: ArrayLike, names: Sequence[str] | None = None) -> None:
        try:
            entries = np.array(table)
        except ValueError:
            raise DataError("group table: rows of different lengths: expected a square") from None
        _check(entries)
        self._fill(entries, names, None)

    def _fill(
        self, table: NDArray, names: Sequence[str] | None, action: NDArray[np.int64] | None
    ) -> None:
        table = np.array(table, dtype=np.int64)
        table.setflags(write=False)
        names = tuple(map(str, range(len(table)))) if names is None else tuple(names)
        if len(set(names)) != len(table):
            raise DataError(
                f"group table: {len(set(names))} different names for {len(table)} elements"
            )
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "action", action)

    @classmethod
    def trusted(
        cls,
        table: Int[np.ndarray, "element element"],
        names: Sequence[str] | None = None,
        action: Int[np.ndarray, "element point"] | None = None,
    ) -> FiniteGroup:
        """A group from a table that is one by construction, not tested in O(n³)."""
        group = object.__new__(cls)
        group._fill(table, names, action)
        return group

    # --- elements ---------------------------------------------------------------------------------
    def __repr__(self) -> str:
        return f"FiniteGroup(order={self.order})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FiniteGroup) and np.array_equal(self.table, other.table)

    @cached_property
    def _hash(self) -> int:
        return hash(self.table.tobytes())

    def __hash__(self) -> int:
        return self._hash

    @property
    def order(self) -> int:
        """Number of elements."""
        return len(self.table)

    @cached_property
    def identity(self) -> int:
        """Index of the neutral element."""
        return int(np.argmax((self.table == np.arange(self.order)).all(1)))

    @cached_property
    def inverses(self) -> Int[np.ndarray, " element"]:
        """(n,) index of the inverse of each element."""
        return np.argmax(self.table == self.identity, axis=1)

    @cached_property
    def is_abelian(self) -> bool:
        """True if every two elements commute."""
        return bool((self.table == self.table.T).all())

    @cached_property
    def is_cyclic(self) -> bool:
        """True if one element generates the group."""
        return bool(self.element_orders.max() == self.order)

    @cached_property
    def element_orders(self) -> Int[np.ndarray, " element"]:
        """(n,) order of each element."""
        orders, power = np.zeros(self.order, np.int64), np.arange(self.order)
        for k in range(1, self.order + 1):
            orders[(power == self.identity) & (orders == 0)] = k
            power = self.table[power, np.arange(self.order)]
        return orders

    @cached_property
    def classes(self) -> Int[np.ndarray, " element"]:
        """(n,) the conjugacy class of each element, numbered in order of first appearance."""
        conjugates = self.table[self.table, self.inverses[:, None]]  # [h, g] = h g h⁻¹
        return np.unique(conjugates.min(0), return_inverse=True)[1]

    @cached_property
    def logarithms(self) -> Int[np.ndarray, " element"]:
        """(n,) discrete logarithm of each element of a cyclic group, to the base of its first
        generator.

        Raises:
            DataError: the group is not cyclic.
        """
        if not self.is_cyclic:
            raise DataError(
                f"group of order {self.order}: it is not cyclic, so it has no logarithms"
            )
        generator = int(np.argmax(self.element_orders == self.order))
        logarithms, element = np.zeros(self.order, np.int64), self.identity
        for k in range(self.order):
            logarithms[element] = k
            element = self.table[element, generator]
        return logarithms


def _check(table: NDArray) -> None:
    """Raise the DataError that says why `table` is not a group's."""
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not len(table):
        raise DataError(f"group table: shape {table.shape}: expected a square")
    n = len(table)
    if not np.issubdtype(table.dtype, np.integer) or table.min() < 0 or table.max() >= n:
        raise DataError(f"group table: not closed: expected integers 0 to {n - 1} only")
    elements = np.arange(n)
    identities = np.flatnonzero((table == elements).all(1) & (table == elements[:, None]).all(0))
    if not len(identities):
        raise DataError("group table: no identity: no element leaves all others as they are")
    invertible = np.logical_and(table == identities[0], table.T == identities[0]).any(1)
    if not invertible.all():
        raise DataError(f"group table: element {np.argmin(invertible)} has no inverse")
    for a in elements:  # one element at a time keeps the memory at n²
        wrong = table[table[a]] != table[a][table]
        if wrong.any():
            b, c = np.argwhere(wrong)[0]
            raise DataError(
                f"group table: not associative: ({a}·{b})·{c} = {table[table[a, b], c]}, "
                f"{a}·({b}·{c}) = {table[a, table[b, c]]}"
            )


def group_of(table: Int[np.ndarray, "element element"]) -> FiniteGroup | None:
    """The group whose product, or product with the inverse of one operand, a table is; None where
    there is none.

    >>> x, y = np.indices((5, 5))
    >>> group_of((x - y) % 5) == group_of((x + y) % 5), group_of(x * y % 5)
    (True, None)
    """
    unit = table[0, 0]
    for one in (table, table[:, table[unit]], table[table[:, unit]]):
        with contextlib.suppress(DataError):
            return FiniteGroup(one)
    return None


# --- groups by name -------------------------------------------------------------------------------
@lru_cache(maxsize=64)
def cyclic(n: int) -> FiniteGroup:
    """Z/n: element i is the residue i."""
    _require(1 <= n <= MAX_ORDER, f"cyclic group of order {n}: expected 1 to {MAX_ORDER}")
    return FiniteGroup.trusted(np.add.outer(np.arange(n), np.arange(n)) % n)


def dihedral(n: int) -> FiniteGroup:
    """Symmetries of the n-gon: element i < n is the rotation rⁱ, n + i the reflection rⁱs."""
    _require(
        1 <= n <= MAX_ORDER // 2, f"dihedral group of the {n}-gon: expected 1 to {MAX_ORDER // 2}"
    )
    flip, turn = np.divmod(np.arange(2 * n), n)
    # r^a s^e · r^b s^f = r^(a ± b) s^(e + f): a reflection turns what follows the other way
    turns = (turn[:, None] + np.where(flip[:, None], -turn, turn)) % n
    return FiniteGroup.trusted(
        turns + n * (flip[:, None] ^ flip),
        [f"r{i}" for i in range(n)] + [f"r{i}s" for i in range(n)],
    )


def symmetric(n: int) -> FiniteGroup:
    """Permutations of 0 … n-1, lexicographic, named by their images; (a·b)(x) = a(b(x))."""
    _require(1 <= n <= MAX_POINTS, f"symmetric group on {n} points: expected 1 to {MAX_POINTS}")
    return _of_permutations(np.array(list(itertools.permutations(range(n)))))


def alternating(n: int) -> FiniteGroup:
    """Even permutations of 0 … n-1, in the order and with the product of `symmetric`."""
    _require(1 <= n <= MAX_POINTS, f"alternating group on {n} points: expected 1 to {MAX_POINTS}")
    all_of_them = np.array(list(itertools.permutations(range(n))))
    inversions = sum(
        (all_of_them[:, i] > all_of_them[:, j] for i in range(n) for j in range(i + 1, n)),
        np.zeros(len(all_of_them), int),
    )
    return _of_permutations(all_of_them[inversions % 2 == 0])


def direct_product(a: FiniteGroup, b: FiniteGroup) -> FiniteGroup:
    """a × b: the pair (i, j) is element ``i * b.order + j``, named "i,j"."""
    n = a.order * b.order
    _require(n <= MAX_ORDER, f"direct product of order {n}: expected at most {MAX_ORDER}")
    table = a.table[:, None, :, None] * b.order + b.table[None, :, None, :]
    return FiniteGroup.trusted(table.reshape(n, n), [f"{x},{y}" for x in a.names for y in b.names])


def permutation_blocks() -> FiniteGroup:
    """Block-diagonal permutations of two blocks of three: ``6 * top + bottom``, each of S3."""
    block = symmetric(3)
    return direct_product(block, block)


def parse(spec: str) -> FiniteGroup:
    """The group that `spec` names: C113, D7, S5, A5, blocks, or a direct product of such,
    S3xC4.

    >>> parse("S3xC4").order
    24

    Raises:
        ParameterError: `spec` is not such a name.
    """
    makers = {"C": cyclic, "D": dihedral, "S": symmetric, "A": alternating}
    factors = []
    for part in re.split("[x×]", spec):
        match = re.fullmatch(r"([CDSA])(\d{1,4})", part)
        if match is None and part != "blocks":
            raise ParameterError(
                f"group {spec!r}: {part!r} is none of C<n>, D<n>, S<n>, A<n>, blocks; a "
                "product is written S3xC4"
            )
        factors.append(makers[match[1]](int(match[2])) if match else permutation_blocks())
    return reduce(direct_product, factors)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ParameterError(message)


def _of_permutations(permutations: NDArray) -> FiniteGroup:
    """The group of the rows, which must be closed, in their order."""
    n = permutations.shape[1]
    weights = n ** np.arange(n)
    codes = permutations @ weights
    order = np.argsort(codes)
    products = permutations[:, permutations] @ weights  # [a, b] = code of x ↦ a(b(x))
    table = order[np.searchsorted(codes, products, sorter=order)]
    return FiniteGroup.trusted(
        table, ["".join(map(str, row)) for row in permutations], permutations
    )
