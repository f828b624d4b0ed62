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
from jaxtyping import Complex, Float
from numpy.typing import ArrayLike, NDArray

from mechint.errors import DataError
from mechint.groups.finite import FiniteGroup

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Irrep:
    """One real irreducible representation, with its rows of the group's Fourier basis.

    degree: dimension over the complex numbers; kind: "real", "complex" or "quaternionic"
    (Frobenius–Schur indicator 1, 0, -1). A cyclic group's irreps are named by their frequency, "0",
    "1", …, with respect to its first generator. Elsewhere "trivial" comes first; "sign" is the only
    other irrep of degree one, where there is just one. "standard" is the irrep of a symmetric group
    whose character counts fixed points, less one. Without the group's action on the points it is
    the one faithful irrep of degree m - 1 in which m(m-1)/2 involutions act as reflections (trace
    m - 3); in S6 there are two, which an outer automorphism exchanges, so that the table alone
    names neither. All others are called by degree and letter, "5a", "5b", in the order of their
    values on elements of each order.

    arbitrary: whether no such value tells it from another irrep, so that its letter depends on the
    order in which the elements are listed.
    """

    name: str
    degree: int
    kind: str
    rows: tuple[int, ...]
    arbitrary: bool = False

    @property
    def dimension(self) -> int:
        """Dimension over the real numbers: of the matrices."""
        return self.degree if self.kind == "real" else 2 * self.degree


@dataclass(frozen=True, eq=False)
class Representations:
    """The representations of which functions on a group are made.

    irreps: the real irreducible representations, the trivial one first; `Irrep` says how they are
    named and ordered. fourier_basis (n, n): orthonormal rows, grouped by irrep
    (``irreps[i].rows``); a cyclic group has the constant, then cosine and sine of every frequency,
    and even n ends with the alternating row. characters (n_irreps, n): traces of the real
    irreducible representations, twice the real part where the kind is not real.

    >>> from mechint.groups.finite import symmetric
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

        >>> from mechint.groups.finite import cyclic
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


# --- names of irreps, which do not depend on how the elements of a group are listed ---------------
def order_characters(
    group: FiniteGroup,
    characters: Complex[NDArray[np.complex128], "irrep element"],
    kinds: list[str],
) -> tuple[Complex[NDArray[np.complex128], "irrep element"], list[str], list[bool]]:
    """By degree (the trivial one first), then by the values on elements of each order, and of each
    number of fixed points where the group acts: no matter how elements are listed.

    Returns the characters, their kinds, and whether another one has all these values too.
    """
    fixed = [0] * group.order if group.action is None else _fixed_points(group.action).tolist()

    def invariants(index: int) -> tuple:
        values = np.round(characters[index], 6) + 0.0
        # the real parts alone: which of two conjugates was kept must not matter
        negated, orders = (-values.real).tolist(), group.element_orders.tolist()
        return (
            round(values[group.identity].real),
            not np.allclose(values, 1),
            kinds[index],
            sorted(zip(orders, negated, strict=True)),
            sorted(zip(orders, fixed, negated, strict=True)),
        )

    keys = [invariants(index) for index in range(len(characters))]
    listed = [(-np.round(values, 6).real + 0.0).tolist() for values in characters]
    order = sorted(range(len(characters)), key=lambda index: (keys[index], listed[index]))
    tied = [keys.count(keys[index]) > 1 for index in order]
    return characters[order], [kinds[index] for index in order], tied


def name_characters(
    group: FiniteGroup,
    characters: Complex[NDArray[np.complex128], "irrep element"],
    kinds: list[str],
) -> list[str]:
    """Names of the characters in their order, as `Irrep` explains."""
    real, degrees = characters.real, np.round(characters[:, group.identity].real).astype(int)
    names: dict[int, str] = {0: "trivial"}
    linear = [index for index in range(1, len(degrees)) if degrees[index] == 1]
    if len(linear) == 1 and kinds[linear[0]] == "real":
        names[linear[0]] = "sign"
        candidates = [i for i in range(1, len(degrees)) if _is_standard(group, real[i])]
        if len(candidates) == 1:
            twisted = real[candidates[0]] * real[linear[0]]
            for index in range(1, len(degrees)):
                if np.allclose(real[index], twisted, atol=1e-6):
                    names[index] = "standard⊗sign"
            names[candidates[0]] = "standard"
    for degree in sorted(set(degrees.tolist())):
        for letter, index in enumerate(
            index
            for index in range(len(degrees))
            if degrees[index] == degree and index not in names
        ):
            names[index] = f"{degree}{_letters(letter)}"
    return [names[index] for index in range(len(degrees))]


def _fixed_points(action: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) how many points each element of an action (n, points) leaves where they are."""
    return (action == np.arange(action.shape[1])).sum(1)


def _is_standard(group: FiniteGroup, character: Array) -> bool:
    """Return whether this is the standard character of a symmetric group."""
    points = next(m for m in range(1, 32) if math.factorial(m) >= group.order)
    if group.action is not None and group.action.shape[1] == points:
        return bool(np.allclose(character, _fixed_points(group.action) - 1, atol=1e-6))
    if math.factorial(points) != group.order or round(character[group.identity]) != points - 1:
        return False
    faithful = (np.abs(character - (points - 1)) < 1e-6).sum() == 1
    reflections = (group.element_orders == 2) & (np.abs(character - (points - 3)) < 1e-6)
    return bool(faithful and reflections.sum() == points * (points - 1) // 2)


def _letters(index: int) -> str:
    """a … z, aa, ab, …"""
    return (_letters(index // 26 - 1) if index >= 26 else "") + chr(ord("a") + index % 26)
