"""Real irreducible representations of a finite group, from its multiplication table alone.

The characters are the common eigenvectors of the class functions under convolution (Burnside); a
random Hermitian class function with a fixed seed separates them. Its projectors split the functions
on the group into isotypic blocks, a pair of complex-conjugate characters giving one real block. A
cyclic group takes the closed form, cosines and sines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mechint.groups.finite import FiniteGroup

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Irrep:
    """One real irreducible representation, with its rows of the group's Fourier basis.

    degree: dimension over the complex numbers; kind: "real", "complex" or "quaternionic"
    (Frobenius–Schur indicator 1, 0, -1). A cyclic group's irreps are named by their frequency, "0",
    "1", …, with respect to its first generator. Elsewhere "trivial" comes first; "sign" is the only
    other irrep of degree one, where there is just one; in a group of m! elements "standard" is the
    faithful irrep of degree m - 1 in which m(m-1)/2 involutions act as reflections (trace m - 3):
    this makes the group the symmetric group and them its transpositions. All others are called by
    degree and letter, "5a", "5b", in the order of their values on elements of each order; only
    those that no such value tells apart depend on the order in which the elements are listed.
    """

    name: str
    degree: int
    kind: str
    rows: tuple[int, ...]

    @property
    def dimension(self) -> int:
        """Dimension over the real numbers: of the matrices."""
        return self.degree if self.kind == "real" else 2 * self.degree


def decompose(group: FiniteGroup) -> tuple[tuple[Irrep, ...], Array, Array]:
    """Irreps, Fourier basis (n, n) and real characters (n_irreps, n) of `group`."""
    if group.is_cyclic:
        return _decompose_cyclic(group)
    irreps: list[Irrep] = []
    blocks, real_characters = [], []
    characters, kinds = _ordered(group, *_paired(group, _characters(group)))
    quotients = group.table[:, group.inverses]  # [x, y] = x y⁻¹
    names = _names(group, characters, kinds)
    start = 0
    for name, character, kind in zip(names, characters, kinds, strict=True):
        degree = round(character[group.identity].real)
        conjugates = 2 if kind == "complex" else 1
        block = _orthonormal(
            (conjugates * degree / group.order) * character.real[quotients], conjugates * degree**2
        )
        irreps.append(Irrep(name, degree, kind, tuple(range(start, start + len(block)))))
        blocks.append(block)
        real_characters.append(character.real * (1 if kind == "real" else 2))
        start += len(block)
    assert start == group.order, f"the irreps fill {start} of {group.order} dimensions"
    return tuple(irreps), np.concatenate(blocks), np.array(real_characters)


def irrep_matrices(group: FiniteGroup, irrep: Irrep) -> Array:
    """(n, d, d) orthogonal matrices of `irrep`.

    Right convolution by a symmetric random function commutes with the left translations; on the
    irrep's block each of its eigenspaces is one copy of the representation.
    """
    weights = np.random.default_rng(0).standard_normal(group.order)
    weights = weights + weights[group.inverses]
    block = group.fourier_basis[list(irrep.rows)]
    operator = block @ weights[group.table[group.inverses]] @ block.T
    copy = block.T @ np.linalg.eigh(operator)[1][:, : irrep.dimension]  # (n, d)
    copy = _orthonormal(copy @ copy.T, irrep.dimension).T
    translated = copy[group.table[group.inverses]]  # [g, x] = copy at g⁻¹x
    return np.einsum("xi,gxj->gij", copy, translated, optimize=True)


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
    """One character of each complex-conjugate pair, and the kind of each by its Frobenius–Schur
    indicator.
    """
    squares = np.diagonal(group.table)
    kept, kinds = [], []
    for character in characters:
        indicator = round(character[squares].mean().real)
        if indicator == 0 and any(
            np.allclose(character.conj(), other, atol=1e-6) for other in kept
        ):
            continue
        kept.append(character)
        kinds.append({1: "real", 0: "complex", -1: "quaternionic"}[indicator])
    return np.array(kept), kinds


def _ordered(
    group: FiniteGroup, characters: NDArray[np.complex128], kinds: list[str]
) -> tuple[NDArray[np.complex128], list[str]]:
    """By degree (the trivial one first), then by the values on elements of each order: no matter
    how elements are listed.
    """

    def key(index: int) -> tuple:
        values = np.round(characters[index], 6) + 0.0
        # the real parts alone: which of two conjugates was kept must not matter
        invariant = sorted(zip(group.element_orders.tolist(), (-values.real).tolist(), strict=True))
        return (
            round(values[group.identity].real),
            not np.allclose(values, 1),
            kinds[index],
            invariant,
            (-values.real).tolist(),
        )

    order = sorted(range(len(characters)), key=key)
    return characters[order], [kinds[index] for index in order]


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


def _names(group: FiniteGroup, characters: NDArray[np.complex128], kinds: list[str]) -> list[str]:
    """Names of the characters in their order, as `Irrep` explains."""
    real, degrees = characters.real, np.round(characters[:, group.identity].real).astype(int)
    names: dict[int, str] = {0: "trivial"}
    linear = [index for index in range(1, len(degrees)) if degrees[index] == 1]
    if len(linear) == 1 and kinds[linear[0]] == "real":
        names[linear[0]] = "sign"
        standard = next(
            (index for index in range(1, len(degrees)) if _is_standard(group, real[index])), None
        )
        if standard is not None:
            twisted = real[standard] * real[linear[0]]
            for index in range(1, len(degrees)):
                if np.allclose(real[index], twisted, atol=1e-6):
                    names[index] = "standard⊗sign"
            names[standard] = "standard"
    for degree in sorted(set(degrees.tolist())):
        for letter, index in enumerate(
            index
            for index in range(len(degrees))
            if degrees[index] == degree and index not in names
        ):
            names[index] = f"{degree}{_letters(letter)}"
    return [names[index] for index in range(len(degrees))]


def _is_standard(group: FiniteGroup, character: Array) -> bool:
    """Whether the group is a symmetric group and this its standard character, fixed points minus
    one.
    """
    points = next(m for m in range(1, 32) if math.factorial(m) >= group.order)
    if math.factorial(points) != group.order or round(character[group.identity]) != points - 1:
        return False
    faithful = (np.abs(character - (points - 1)) < 1e-6).sum() == 1
    reflections = (group.element_orders == 2) & (np.abs(character - (points - 3)) < 1e-6)
    return bool(faithful and reflections.sum() == points * (points - 1) // 2)


def _letters(index: int) -> str:
    """a … z, aa, ab, …"""
    return (_letters(index // 26 - 1) if index >= 26 else "") + chr(ord("a") + index % 26)
