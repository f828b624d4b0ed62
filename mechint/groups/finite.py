"""A finite group from its multiplication table: who its elements are, and the Fourier basis of
functions on it.

Everything follows from the table, so a table read off a trained model serves as well as one written
down here. Only numpy is needed. Representations are computed when first asked for
(``mechint/groups/representations.py``).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechint.errors import DataError, ParameterError
from mechint.groups.representations import Irrep, decompose, irrep_matrices

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
        names: one name an element, for texts and figures; the indices when none.

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

    def __init__(self, table: ArrayLike, names: Sequence[str] | None = None) -> None:
        try:
            entries = np.array(table)
        except ValueError:
            raise DataError("group table: rows of different lengths: expected a square") from None
        _check(entries)
        self._fill(entries, names)

    def _fill(self, table: NDArray, names: Sequence[str] | None) -> None:
        table = np.array(table, dtype=np.int64)
        table.setflags(write=False)
        names = tuple(map(str, range(len(table)))) if names is None else tuple(names)
        if len(set(names)) != len(table):
            raise DataError(
                f"group table: {len(set(names))} different names for {len(table)} elements"
            )
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "names", names)

    @classmethod
    def _known(cls, table: NDArray, names: Sequence[str] | None = None) -> FiniteGroup:
        """A group from a table that is one by construction; spares the O(n³) test of
        associativity.
        """
        group = object.__new__(cls)
        group._fill(table, names)
        return group

    # --- constructors -----------------------------------------------------------------------------
    @staticmethod
    @lru_cache(maxsize=64)
    def cyclic(n: int) -> FiniteGroup:
        """Z/n: element i is the residue i."""
        _require(1 <= n <= MAX_ORDER, f"cyclic group of order {n}: expected 1 to {MAX_ORDER}")
        return FiniteGroup._known(np.add.outer(np.arange(n), np.arange(n)) % n)

    @staticmethod
    def dihedral(n: int) -> FiniteGroup:
        """The 2n symmetries of the n-gon: element i < n is the rotation rⁱ, element n + i the
        reflection rⁱs.
        """
        _require(
            1 <= n <= MAX_ORDER // 2,
            f"dihedral group of the {n}-gon: expected 1 to {MAX_ORDER // 2}",
        )
        flip, turn = np.divmod(np.arange(2 * n), n)
        # r^a s^e · r^b s^f = r^(a ± b) s^(e + f): a reflection turns what follows the other way
        turns = (turn[:, None] + np.where(flip[:, None], -turn, turn)) % n
        return FiniteGroup._known(
            turns + n * (flip[:, None] ^ flip),
            [f"r{i}" for i in range(n)] + [f"r{i}s" for i in range(n)],
        )

    @staticmethod
    def symmetric(n: int) -> FiniteGroup:
        """Permutations of 0 … n-1 in lexicographic order, named by their images; (a·b)(x) =
        a(b(x)), b acts first.
        """
        _require(1 <= n <= MAX_POINTS, f"symmetric group on {n} points: expected 1 to {MAX_POINTS}")
        return _of_permutations(np.array(list(itertools.permutations(range(n)))))

    @staticmethod
    def alternating(n: int) -> FiniteGroup:
        """Even permutations of 0 … n-1, in the order and with the product of `symmetric`."""
        _require(
            1 <= n <= MAX_POINTS, f"alternating group on {n} points: expected 1 to {MAX_POINTS}"
        )
        all_of_them = np.array(list(itertools.permutations(range(n))))
        inversions = sum(
            (all_of_them[:, i] > all_of_them[:, j] for i in range(n) for j in range(i + 1, n)),
            np.zeros(len(all_of_them), int),
        )
        return _of_permutations(all_of_them[inversions % 2 == 0])

    @staticmethod
    def direct_product(a: FiniteGroup, b: FiniteGroup) -> FiniteGroup:
        """a × b: the pair (i, j) is element ``i * b.order + j``, named "i,j"."""
        n = a.order * b.order
        _require(n <= MAX_ORDER, f"direct product of order {n}: expected at most {MAX_ORDER}")
        table = a.table[:, None, :, None] * b.order + b.table[None, :, None, :]
        return FiniteGroup._known(
            table.reshape(n, n), [f"{x},{y}" for x in a.names for y in b.names]
        )

    @staticmethod
    def permutation_blocks() -> FiniteGroup:
        """The 36 block-diagonal 6×6 permutation matrices of two 3×3 blocks: element
        ``6 * top + bottom``, each as in S3.
        """
        block = FiniteGroup.symmetric(3)
        return FiniteGroup.direct_product(block, block)

    @staticmethod
    def parse(spec: str) -> FiniteGroup:
        """The group that `spec` names: C113, D7, S5, A5, blocks, or a direct product of such,
        S3xC4.

        >>> FiniteGroup.parse("S3xC4").order
        24

        Raises:
            ParameterError: `spec` is no such name.
        """
        makers = {
            "C": FiniteGroup.cyclic,
            "D": FiniteGroup.dihedral,
            "S": FiniteGroup.symmetric,
            "A": FiniteGroup.alternating,
        }
        factors = []
        for part in re.split("[x×]", spec):
            match = re.fullmatch(r"([CDSA])(\d{1,4})", part)
            if match is None and part != "blocks":
                raise ParameterError(
                    f"group {spec!r}: {part!r} is none of C<n>, D<n>, S<n>, A<n>, blocks; a "
                    "product is written S3xC4"
                )
            factors.append(
                makers[match[1]](int(match[2])) if match else FiniteGroup.permutation_blocks()
            )
        return reduce(FiniteGroup.direct_product, factors)

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
        return int(np.argmax((self.table == np.arange(self.order)).all(1)))

    @cached_property
    def inverses(self) -> NDArray[np.int64]:
        """(n,) index of the inverse of each element."""
        return np.argmax(self.table == self.identity, axis=1)

    @cached_property
    def is_abelian(self) -> bool:
        return bool((self.table == self.table.T).all())

    @cached_property
    def is_cyclic(self) -> bool:
        return bool(self.element_orders.max() == self.order)

    @cached_property
    def element_orders(self) -> NDArray[np.int64]:
        """(n,) order of each element."""
        orders, power = np.zeros(self.order, np.int64), np.arange(self.order)
        for k in range(1, self.order + 1):
            orders[(power == self.identity) & (orders == 0)] = k
            power = self.table[power, np.arange(self.order)]
        return orders

    @cached_property
    def classes(self) -> NDArray[np.int64]:
        """(n,) the conjugacy class of each element, numbered in order of first appearance."""
        conjugates = self.table[self.table, self.inverses[:, None]]  # [h, g] = h g h⁻¹
        return np.unique(conjugates.min(0), return_inverse=True)[1]

    @cached_property
    def logarithms(self) -> NDArray[np.int64]:
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

    # --- representations --------------------------------------------------------------------------
    @cached_property
    def _decomposition(self) -> tuple[tuple[Irrep, ...], NDArray[np.float64], NDArray[np.float64]]:
        return decompose(self)

    @property
    def irreps(self) -> tuple[Irrep, ...]:
        """The real irreducible representations, the trivial one first; `Irrep` says how they are
        named and ordered.

        >>> [irrep.name for irrep in FiniteGroup.symmetric(4).irreps]
        ['trivial', 'sign', '2a', 'standard', 'standard⊗sign']
        """
        return self._decomposition[0]

    @property
    def fourier_basis(self) -> NDArray[np.float64]:
        """(n, n) orthonormal rows: functions on the group, grouped by irrep (``irreps[i].rows``).

        A cyclic group has the constant, then cosine and sine of every frequency; even n ends with
        the alternating row.
        """
        return self._decomposition[1]

    @property
    def characters(self) -> NDArray[np.float64]:
        """(n_irreps, n) traces of the real irreducible representations: twice the real part where
        the kind is not real.
        """
        return self._decomposition[2]

    def irrep(self, name: str) -> Irrep:
        """The irrep called `name`; DataError names those there are."""
        found = next((irrep for irrep in self.irreps if irrep.name == name), None)
        if found is None:
            raise DataError(
                f"group of order {self.order}: no irrep {name!r} (irreps: "
                f"{', '.join(irrep.name for irrep in self.irreps)})"
            )
        return found

    def matrices(self, name: str) -> NDArray[np.float64]:
        """(n, d, d) orthogonal matrices ρ(g) of the irrep `name`, d its real dimension; ρ(g)ρ(h) =
        ρ(gh).
        """
        return irrep_matrices(self, self.irrep(name))

    def energy(self, x: ArrayLike, axis: int = 0) -> NDArray[np.float64]:
        """Share of the squared norm of `x` in each irrep, (n_irreps,), summed over the other axes;
        zeros for x = 0.

        >>> FiniteGroup.cyclic(4).energy([1.0, -1.0, 1.0, -1.0]).round(12).tolist()
        [0.0, 0.0, 1.0]
        """
        values = np.moveaxis(np.asarray(x, dtype=np.float64), axis, 0).reshape(self.order, -1)
        squares = ((self.fourier_basis @ values) ** 2).sum(1)
        shares = np.array([squares[list(irrep.rows)].sum() for irrep in self.irreps])
        return shares / squares.sum() if squares.any() else shares


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
    return FiniteGroup._known(table, ["".join(map(str, row)) for row in permutations])


def _check(table: NDArray) -> None:
    """Raise the DataError that says why `table` is no group's."""
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
