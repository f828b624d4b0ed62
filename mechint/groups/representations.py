"""Real irreducible representations of a finite group, from its multiplication table alone.

The characters are the common eigenvectors of the class functions under convolution (Burnside); a
random Hermitian class function with a fixed seed separates them. Its projectors split the functions
on the group into isotypic blocks, a pair of complex-conjugate characters giving one real block. A
cyclic group takes the closed form, cosines and sines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from mechint.errors import DataError
from mechint.groups.finite import FiniteGroup
from mechint.groups.irreps import Array, Irrep, name_characters, order_characters


@dataclass(frozen=True, eq=False)
class Representations:
    """The representations of which functions on a group are made.

    irreps: the real irreducible representations, the trivial one first; `Irrep` says how they are
    named and ordered. fourier_basis (n, n): orthonormal rows, grouped by irrep
    (``irreps[i].rows``); a cyclic group has the constant, then cosine and sine of every frequency,
    and even n ends with the alternating row. characters (n_irreps, n): traces of the real
    irreducible representations, twice the real part where the kind is not real.

    >>> from mechint.groups.named import symmetric
    >>> [irrep.name for irrep in representations(symmetric(4)).irreps]
    ['trivial', 'sign', '2a', 'standard', 'standard⊗sign']
    """

    group: FiniteGroup
    irreps: tuple[Irrep, ...]
    fourier_basis: Float[np.ndarray, "n n"]
    characters: Float[np.ndarray, "n_irreps n"]

    @property
    def names(self) -> list[str]:
        """Name of every irrep, the trivial one first."""
        return [irrep.name for irrep in self.irreps]

    def irrep(self, name: str) -> Irrep:
        """The irrep called `name`; DataError names those there are."""
        found = next((irrep for irrep in self.irreps if irrep.name == name), None)
        if found is None:
            raise DataError(
                f"group of order {self.group.order}: no irrep {name!r} (irreps: "
                f"{', '.join(self.names)})"
            )
        return found

    def matrices(self, name: str) -> Float[np.ndarray, "n d d"]:
        """(n, d, d) orthogonal matrices ρ(g) of the irrep `name`, d its real dimension; ρ(g)ρ(h) =
        ρ(gh).

        Right convolution by a symmetric random function commutes with the left translations; on the
        irrep's block each of its eigenspaces is one copy of the representation.
        """
        group, irrep = self.group, self.irrep(name)
        weights = np.random.default_rng(0).standard_normal(group.order)
        weights = weights + weights[group.inverses]
        block = self.fourier_basis[list(irrep.rows)]
        operator = block @ weights[group.table[group.inverses]] @ block.T
        copy = block.T @ np.linalg.eigh(operator)[1][:, : irrep.dimension]  # (n, d)
        copy = _orthonormal(copy @ copy.T, irrep.dimension).T
        translated = copy[group.table[group.inverses]]  # [g, x] = copy at g⁻¹x
        return np.einsum("xi,gxj->gij", copy, translated, optimize=True)

    def energy(self, x: ArrayLike) -> Float[np.ndarray, " n_irreps"]:
        """Share of the squared norm of `x` (element, …) in each irrep, (n_irreps,); zeros for
        x = 0.

        >>> from mechint.groups.named import cyclic
        >>> representations(cyclic(4)).energy([1.0, -1.0, 1.0, -1.0]).round(12).tolist()
        [0.0, 0.0, 1.0]
        """
        values = np.asarray(x, dtype=np.float64).reshape(self.group.order, -1)
        squares = ((self.fourier_basis @ values) ** 2).sum(1)
        shares = np.array([squares[list(irrep.rows)].sum() for irrep in self.irreps])
        return shares / squares.sum() if squares.any() else shares


def representations(group: FiniteGroup) -> Representations:
    """The representations of `group`, computed once per table and action."""
    return _representations(group, None if group.action is None else group.action.tobytes())


@lru_cache(maxsize=64)
def _representations(group: FiniteGroup, action: bytes | None) -> Representations:
    """`action` is part of the key: groups of one table are equal, names can differ."""
    return Representations(group, *decompose(group))


def decompose(
    group: FiniteGroup,
) -> tuple[
    tuple[Irrep, ...], Float[np.ndarray, "element element"], Float[np.ndarray, "irrep element"]
]:
    """Irreps, Fourier basis (n, n) and real characters (n_irreps, n) of `group`."""
    if group.is_cyclic:
        return _decompose_cyclic(group)
    irreps: list[Irrep] = []
    blocks, real_characters = [], []
    characters, kinds, tied = order_characters(group, *_paired(group, _characters(group)))
    quotients = group.table[:, group.inverses]  # [x, y] = x y⁻¹
    names = name_characters(group, characters, kinds)
    start = 0
    for name, character, kind, arbitrary in zip(names, characters, kinds, tied, strict=True):
        degree = round(character[group.identity].real)
        conjugates = 2 if kind == "complex" else 1
        block = _orthonormal(
            (conjugates * degree / group.order) * character.real[quotients], conjugates * degree**2
        )
        rows = tuple(range(start, start + len(block)))
        irreps.append(Irrep(name, degree, kind, rows, arbitrary and name[0].isdigit()))
        blocks.append(block)
        real_characters.append(character.real * (1 if kind == "real" else 2))
        start += len(block)
    assert start == group.order, f"the irreps fill {start} of {group.order} dimensions"
    return tuple(irreps), np.concatenate(blocks), np.array(real_characters)


def _decompose_cyclic(group: FiniteGroup) -> tuple[tuple[Irrep, ...], Array, Array]:
    n = group.order
    angles = 2 * np.pi * group.logarithms / n
    irreps, rows, characters = [], [], []
    for k in range(n // 2 + 1):
        paired = 0 < 2 * k < n
        waves = [np.cos(k * angles), np.sin(k * angles)] if paired else [np.cos(k * angles)]
        irreps.append(
            Irrep(
                str(k),
                1,
                "complex" if paired else "real",
                tuple(range(len(rows), len(rows) + len(waves))),
            )
        )
        rows += [wave * math.sqrt(len(waves) / n) for wave in waves]
        characters.append(len(waves) * waves[0])
    return tuple(irreps), np.array(rows), np.array(characters)


def _characters(group: FiniteGroup) -> NDArray[np.complex128]:
    """(n_classes, n) the irreducible characters over the complex numbers."""
    classes = group.classes
    indicators = np.eye(classes.max() + 1)[classes]  # (n, n_classes)
    indicators /= np.sqrt(indicators.sum(0))
    generator = np.random.default_rng(0)
    weights = generator.standard_normal(indicators.shape[1]) + 1j * generator.standard_normal(
        indicators.shape[1]
    )
    function = weights[classes]
    function = (
        function + function[group.inverses].conj()
    )  # f(g⁻¹) is the conjugate of f(g): a Hermitian operator
    convolution = indicators.T @ function[group.table[:, group.inverses]] @ indicators
    values, vectors = np.linalg.eigh(convolution)
    assert np.diff(values).min() > 1e-9 * np.abs(values).max(), (
        "the random class function does not separate the characters"
    )
    characters = (indicators @ vectors).T
    at_identity = characters[:, [group.identity]]
    return characters * (np.abs(at_identity) / at_identity) * math.sqrt(group.order)


def _paired(
    group: FiniteGroup, characters: NDArray[np.complex128]
) -> tuple[NDArray[np.complex128], list[str]]:
    """One character of each complex-conjugate pair, and its kind (Frobenius–Schur)."""
    squares = np.diagonal(group.table)
    # ⟨χ, ψ*⟩, 1 where ψ is the conjugate of χ: a conjugate is irreducible, so orthogonal to others
    conjugate = np.abs(characters @ characters.T) / group.order > 0.5
    kept, kinds = [], []
    for index, character in enumerate(characters):
        if conjugate[index, :index].any():
            continue
        indicator = round(character[squares].mean().real)
        kept.append(character)
        kinds.append({1: "real", 0: "complex", -1: "quaternionic"}[indicator])
    return np.array(kept), kinds


def _orthonormal(projector: Array, rank: int) -> Array:
    """(rank, n) orthonormal rows spanning the image of `projector`, by pivoted Gram–Schmidt.

    Pivots are chosen on rounded lengths, the first of equals, so that the rows do not depend on the
    linear algebra library.
    """
    residual, rows = projector.copy(), []
    for _ in range(rank):
        pivot = int(np.argmax(np.round(np.diagonal(residual), 9)))
        row = residual[pivot] / math.sqrt(residual[pivot, pivot])
        for earlier in rows:
            row = row - (earlier @ row) * earlier
        rows.append(row / np.linalg.norm(row))
        residual = residual - np.outer(rows[-1], rows[-1])
    return np.array(rows)
