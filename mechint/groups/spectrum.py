"""Spectra on a finite group: functions of its elements, split by irreducible representation.

With U_ρ the orthonormal rows of a representation ρ and χ_ρ its character, over all ρ but the
trivial one:

    energy of x (n, d)        ‖U_ρ x‖²
    correlation of M (n, n)   Σ_{a,c} M[a, c] χ_ρ(a c⁻¹)

The frequencies of a cyclic group are its representations, so that one object serves addition mod
113 and products in S5. Only numpy is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from mechint.decide.null import orderings
from mechint.groups.finite import FiniteGroup
from mechint.groups.representations import Representations, representations

Array = NDArray[np.float64]
IN_CACHE = 1 << 15
"""Elements of a matrix that are permuted at once."""
Label = int | str
"""A frequency, 1 … n//2, of a cyclic group; the name of a representation elsewhere."""


@dataclass(frozen=True)
class Harmonics:
    """The components of functions on `group`, the constant left out.

    >>> from mechint.groups.finite import cyclic
    >>> alternating = np.array([1.0, -1.0, 1.0, -1.0])
    >>> Harmonics(cyclic(4)).labels, Harmonics(cyclic(4)).energies(alternating).round(9).tolist()
    ([1, 2], [0.0, 4.0])
    """

    group: FiniteGroup

    @cached_property
    def known(self) -> Representations:
        """The group's irreducible representations."""
        return representations(self.group)

    @cached_property
    def labels(self) -> list[Label]:
        """(h,) frequencies of a cyclic group, names of representations elsewhere."""
        names = self.known.names[1:]
        return [int(name) for name in names] if self.group.is_cyclic else [*names]

    @cached_property
    def sizes(self) -> Int[np.ndarray, " h"]:
        """(h,) dimensions of each component; two of every frequency, of Nyquist's too."""
        if self.group.is_cyclic:
            return np.full(len(self.labels), 2)
        return np.array([len(irrep.rows) for irrep in self.known.irreps[1:]])

    @property
    def flat(self) -> Float[np.ndarray, " h"]:
        """(h,) share of the energy that each component has of a flat spectrum."""
        return self.sizes / max(self.group.order - 1, 1)

    @property
    def characters(self) -> Float[np.ndarray, "h n"]:
        """(h, n) χ of every component."""
        return self.known.characters[1:]

    @cached_property
    def _starts(self) -> list[int]:
        return [irrep.rows[0] for irrep in self.known.irreps]

    @cached_property
    def _scale(self) -> Float[np.ndarray, " h"]:
        """(h,) c with c χ(a b⁻¹) the projector on each component."""
        rows = np.array([len(irrep.rows) for irrep in self.known.irreps[1:]])
        return rows / (self.group.order * self.characters[:, self.group.identity])

    def rows(self, labels: Iterable[Label]) -> Float[np.ndarray, "row n"]:
        """Orthonormal rows that span these components."""
        irreps = dict(zip(self.labels, self.known.irreps[1:], strict=True))
        return self.known.fourier_basis[[row for k in labels for row in irreps[k].rows]]

    def without(self, x: Float[np.ndarray, "n ..."], labels: Iterable[Label]) -> Array:
        """x (n, …) with the components projected out."""
        rows = self.rows(labels)
        return x - np.tensordot(rows.T, np.tensordot(rows, x, 1), 1)

    def energies(self, x: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, " h"]:
        """(h,) energy of x (n, …) in each component; they sum to that of the centered x."""
        squares = ((self.known.fourier_basis @ x.reshape(len(x), -1)) ** 2).sum(1)
        return np.add.reduceat(squares, self._starts)[1:]

    def correlate(
        self, matrix: Float[np.ndarray, "n n"], columns: Int[np.ndarray, "*sample n"] | None = None
    ) -> Float[np.ndarray, "*sample h"]:
        """(..., h) Σ_{a,c} M[a, c] χ(a c⁻¹), M with its columns in these orders. Cost: n² of each
        component, and n of each order.
        """
        standing = np.arange(self.group.order)
        columns = standing if columns is None else columns
        found = np.empty((*columns.shape[:-1], len(self.labels)))
        for i, label in enumerate(self.labels):
            rows = self.rows([label])
            summed = (matrix.T @ rows.T) @ rows / self._scale[i]  # over a, for every c and column
            found[..., i] = summed[columns, standing].sum(-1)
        return found

    def correlate_permuted(
        self, matrix: Float[np.ndarray, "n n"], order: Int[np.ndarray, "*sample n"]
    ) -> Float[np.ndarray, "*sample h"]:
        """(..., h) `correlate` of M with rows and columns in these orders. Cost: n² of each order,
        read in the order of memory.
        """
        matrix, n = np.ascontiguousarray(matrix), self.group.order
        kinds, first = self._kinds
        height = max(1, IN_CACHE // n)
        blocks = [slice(at, at + height) for at in range(0, n, height)]
        sums = np.zeros((order.size // n, len(first)))
        for own, one in zip(sums, order.reshape(-1, n), strict=True):
            for block in blocks:
                some = matrix.take(one[block], 0).take(one, 1)
                own += np.bincount(kinds[block].ravel(), some.ravel(), len(first))
        return (sums @ self.characters[:, first].T).reshape(*order.shape[:-1], -1)

    @cached_property
    def _kinds(self) -> tuple[Int[np.ndarray, "n n"], Int[np.ndarray, " kind"]]:
        """For every a and c the kind of a c⁻¹, elements of which have the same characters, and an
        element of each kind.
        """
        _, first, kind = np.unique(
            self.characters.round(9), axis=1, return_index=True, return_inverse=True
        )
        kinds = kind.reshape(-1)[self.group.table[:, self.group.inverses]]
        return np.ascontiguousarray(kinds), first

    def permuted_energies(
        self, gram: Float[np.ndarray, "n n"], order: Int[np.ndarray, "*sample n"]
    ) -> Float[np.ndarray, "*sample h"]:
        """(..., h) `energies` of x with its elements in these orders, from gram = x xᵀ."""
        return self._scale * self.correlate_permuted(gram, order)

    def grid_energies(
        self, x: Float[np.ndarray, "n n m"]
    ) -> tuple[Float[np.ndarray, "h m"], Float[np.ndarray, " m"]]:
        """(h, m) energy of functions x of two elements, (n, n, m), in each component of either
        element or of both, and (m,) in all; the constant left out (Nanda et al. 2023, Sec. 4.2).

        >>> from mechint.groups.finite import cyclic
        >>> sums = np.add.outer(np.arange(5), np.arange(5))
        >>> wave = np.cos(2 * np.pi * sums / 5)[..., None]
        >>> blocks, total = Harmonics(cyclic(5)).grid_energies(wave)
        >>> (blocks / total).round(9).ravel().tolist()
        [1.0, 0.0]
        """
        basis = self.known.fourier_basis.astype(x.dtype)
        second = np.einsum("sy,rym->rsm", basis, np.tensordot(basis, x, 1), optimize=True)
        energy = np.add.reduceat(np.square(second), self._starts, 0)
        energy = np.add.reduceat(energy, self._starts, 1)  # (irrep, irrep, m)
        energy[0, 0] = 0
        both = np.einsum("iim->im", energy)
        return (both + energy[0] + energy[:, 0])[1:], energy.sum((0, 1))

    def arrangements(self, label: Label) -> float:
        """In how many ways the elements can be arranged as far as this component shows it.

        A component that is constant on cosets of a subgroup, as the Nyquist frequency is on even
        and odd numbers, shows only which elements share a coset.

        >>> from mechint.groups.finite import cyclic
        >>> [round(Harmonics(cyclic(12)).arrangements(k)) for k in (3, 4, 6)]
        [46200, 5775, 462]
        """
        character = self.characters[self.labels.index(label)]
        kernel = np.flatnonzero(np.isclose(character, character[self.group.identity]))
        n, size = self.group.order, len(kernel)
        if size == 1:
            return element_orders(self.group)
        coset = np.unique(self.group.table[:, kernel].min(1), return_inverse=True)[1]
        first = np.unique(coset, return_index=True)[1]
        quotient = FiniteGroup.trusted(coset[self.group.table[np.ix_(first, first)]])
        m = quotient.order
        log = math.lgamma(n + 1) - m * math.lgamma(size + 1) - math.lgamma(m + 1)
        return math.exp(log) * element_orders(quotient) if log < 700 else math.inf


def element_orders(group: FiniteGroup) -> float:
    """In how many ways the elements can be ordered as far as energies by component show it.

    Translations, automorphisms and the inverse leave these as they are, up to the component's name.
    inf from 21 elements on; where the group is not cyclic, from nine on, where it is 420 or more.

    >>> from mechint.groups.finite import cyclic
    >>> element_orders(cyclic(7))
    120.0
    """
    n, one = group.order, group.identity
    if group.is_cyclic:
        return orderings(n, alike=n * sum(math.gcd(k, n) == 1 for k in range(n)) if n > 1 else 1)
    if n > 8:
        return math.inf
    others = [element for element in range(n) if element != one]
    maps = np.array([np.insert(some, one, one) for some in permutations(others)])
    kept = maps[:, group.table] == group.table[maps[:, :, None], maps[:, None, :]]
    automorphisms = int(kept.all((1, 2)).sum())  # the inverse is one where the group is abelian
    return orderings(n, alike=n * automorphisms * (1 if group.is_abelian else 2))
