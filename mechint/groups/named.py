"""Groups by name: cyclic, dihedral, symmetric, alternating, and their direct products."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from mechint.errors import ParameterError
from mechint.groups.finite import FiniteGroup

MAX_POINTS = 6
"""Symmetric and alternating groups act on at most so many points (6! = 720 elements)."""

MAX_ORDER = 1024
"""The largest group that is made from a name."""


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
