"""Irreps as they are named: by what does not depend on how the elements of a group are listed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex
from numpy.typing import NDArray

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
