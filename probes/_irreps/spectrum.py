"""Cosines with the characters and shares of energy by representation, with their nulls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations

import numpy as np
from jaxtyping import Float, Int

from mechint.activations import slices
from mechint.groups.finite import FiniteGroup
from mechint.groups.representations import Representations, representations
from mechint.null import orderings
from mechint.task import rng
from probes._fourier.cosines import TIE, flat_level, higher
from probes._fourier.spectra import Array, Spectrum, step_down


@dataclass(frozen=True)
class IrrepRule:
    """When a representation is called key.

    cosine: least cosine of the logits with its character; factor: times the share that it has of a
    flat spectrum (shares only); alpha: family-wise level against `permutations` permutations of the
    elements, and of standing out of the other representations (`flat_level`; cosines only).
    """

    cosine: float
    factor: float
    alpha: float
    permutations: int


AT_ONCE = 1 << 17
"""Logits that are looked up in another order together: they stay in a core's cache."""


@dataclass(frozen=True)
class IrrepSpectra:
    """Both spectra of one group, over all representations but the trivial one."""

    group: FiniteGroup
    rule: IrrepRule

    @cached_property
    def known(self) -> Representations:
        """The group's irreducible representations."""
        return representations(self.group)

    @property
    def names(self) -> list[str]:
        """(n_irreps - 1,) name of each irrep but the trivial one."""
        return self.known.names[1:]

    def rows(self, keys: Sequence[int]) -> Float[Array, "row n"]:
        """Rows of the Fourier basis of the irreps `keys`, counted from 1."""
        return self.known.fourier_basis[[row for k in keys for row in self.known.irreps[k].rows]]

    @cached_property
    def _starts(self) -> Array:
        """First row of each irrep; they stand in order."""
        return np.array([irrep.rows[0] for irrep in self.known.irreps])

    def _by_irrep(self, of_rows: Array) -> Array:
        """(n_irreps - 1,) sums of (n, …) over the rows of each irrep but the trivial one."""
        return np.add.reduceat(of_rows, self._starts)[1:]

    @cached_property
    def dimensions(self) -> Int[np.ndarray, " irrep"]:
        """(n_irreps - 1,) rows of each irrep."""
        return np.array([len(irrep.rows) for irrep in self.known.irreps[1:]])

    @property
    def memorized(self) -> Float[np.ndarray, " irrep"]:
        """(n_irreps - 1,) cosine of a lookup table's logits with each character."""
        return np.sqrt(self.dimensions / max(self.group.order - 1, 1))

    def logits(self, sums: Float[Array, "n n"], squares: float, seed: int) -> Spectrum:
        """Cosines of the logits, summed by product, with the characters χ(x·y·z⁻¹).

        With D[d] = Σ_c M[d·c, c] the sum Σ M[a, c] χ(a c⁻¹) is Σ χ(d) D[d], so that a permutation
        of the classes, with or without the answers, costs n².
        """
        n, characters = self.group.order, self.known.characters[1:]
        norms = np.sqrt(max(squares, 1e-24) * n * n * (characters**2).sum(1))
        parts = list(slices(n, max(1, AT_ONCE // n)))
        # where class c has its answer d·c, of the classes of each part laid flat
        answers = [self.group.table.T[part] for part in parts]
        places = [each + n * np.arange(len(each))[:, None] for each in answers]

        def summed(part: int, by_class: Array) -> Array:
            """(d,) what the classes of a part, (class, answer), add to D."""
            return by_class.take(places[part]).sum(0)

        values = characters @ sum(summed(i, sums.T[part]) for i, part in enumerate(parts)) / norms
        # levels differ by representation: dividing by them makes one rule of all
        levels = np.maximum(self.rule.cosine, self._flat(values))

        def null_without(keys: list[int]) -> Array:
            taken = self.rows(keys)
            rest = np.ascontiguousarray((sums - (sums @ taken.T) @ taken).T)

            def relabeled(order: Array) -> Array:
                """(2, n) D of the classes in this order, without and with the answers."""
                found = np.zeros((2, n))
                for i, part in enumerate(parts):
                    classes = rest.take(order[part], 0)
                    found += summed(i, classes), summed(i, classes.take(order, 1))
                return found

            generator = rng("irreps relabeling null", seed)
            orders = [generator.permutation(n) for _ in range(self.rule.permutations)]
            all_of = np.array([relabeled(order) for order in orders])
            largest = (all_of @ characters.T / norms).max(-1, initial=0)
            return higher(largest.T + TIE, self.rule.alpha)

        found = step_down(
            np.where(values > levels, values, 0.0), self.rule.cosine, self.rule.alpha, null_without
        )
        return replace(found, values=values, arrangements=element_orders(self.group))

    def levels(self, found: Spectrum) -> Float[np.ndarray, " irrep"]:
        """(n_irreps - 1,) the cosine that each representation has to exceed to be key."""
        return np.maximum(found.threshold, self._flat(found.values))

    def _flat(self, cosines: Array) -> Float[np.ndarray, " irrep"]:
        """(n_irreps - 1,) what the largest of all cosines reaches where none stands out."""
        return flat_level(cosines / self.memorized, self.rule.alpha) * self.memorized

    def shares(self, x: Float[Array, "n d"], seed: int) -> Spectrum:
        """Shares of the centered x, relative to a flat spectrum's."""
        x = x - x.mean(0)
        flat = self.dimensions / max(self.group.order - 1, 1)
        total = max(float((x**2).sum()), 1e-24)
        basis = self.known.fourier_basis

        def excess(values: Array) -> Array:
            return self._by_irrep((values.astype(np.float64) ** 2).sum(1)) / total / flat

        def null_without(keys: list[int]) -> Array:
            taken = self.rows(keys)
            rest = (x - taken.T @ (taken @ x)).astype(np.float32)
            single = basis.astype(np.float32)
            generator = rng("irreps share null", seed)
            orders = (generator.permutation(len(x)) for _ in range(self.rule.permutations))
            return np.array([excess(single @ rest[order]).max(initial=0) for order in orders])

        found = step_down(excess(basis @ x), self.rule.factor, self.rule.alpha, null_without)
        return replace(found, arrangements=element_orders(self.group))


def element_orders(group: FiniteGroup) -> float:
    """In how many ways the elements can stand in order as far as shares of energy by representation
    tell them apart: a translation, an automorphism and the inverse leave these as they are, up to
    the name of the representation. inf from nine elements on, where it is 420 or more.

    >>> from mechint.groups.named import cyclic
    >>> element_orders(cyclic(7))
    120.0
    """
    n, one = group.order, group.identity
    if n > 8:
        return np.inf
    others = [element for element in range(n) if element != one]
    maps = np.array([np.insert(some, one, one) for some in permutations(others)])
    kept = maps[:, group.table] == group.table[maps[:, :, None], maps[:, None, :]]
    automorphisms = int(kept.all((1, 2)).sum())  # the inverse is one where the group is abelian
    return orderings(n, alike=n * automorphisms * (1 if group.is_abelian else 2))
