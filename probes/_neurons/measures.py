"""What single neurons compute on pairs of a group's elements: representation, phases, cosets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from mechint.groups.finite import FiniteGroup
from mechint.groups.representations import representations
from probes._fourier.spectra import Array


@dataclass(frozen=True)
class Cosets:
    """The partition of a group into the cosets of one subgroup: which coset each element is in."""

    order: int
    side: str
    index: Int[Array, " n"]

    @cached_property
    def members(self) -> Float[Array, "n coset"]:
        """1 where an element is in a coset."""
        return np.eye(int(self.index.max()) + 1)[self.index]


VARIES = 1e-6
"""Standard deviation of a neuron that varies, relative to its largest value: rounding in single
precision gives a constant about a tenth of it."""
PART = 64
"""Neurons at a time in double precision."""


def standardized(
    values: Float[Array, "n n neuron"],
) -> tuple[Float[Array, "n n neuron"], Bool[Array, " neuron"]]:
    """Each neuron less its mean over all pairs, in its standard deviations, and whether it varies;
    zeros where it does not. In single precision, from sums in double: a large constant, as of a
    neuron that is always on, leaves no rounding behind.

    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> values, varies = standardized(np.stack([x, 1e-13 * x, 0 * x + 0.3], -1))
    >>> varies.tolist(), bool(np.allclose(values[..., 0], values[..., 1]))
    ([True, True, False], True)
    """
    found = np.empty(values.shape, np.float32)
    varies = np.zeros(values.shape[-1], bool)
    for i in range(0, values.shape[-1], PART):  # doubles of all would be twice the memory
        some = slice(i, i + PART)
        part = values[..., some].astype(np.float64)
        largest = np.abs(part).max((0, 1))
        part -= part.mean((0, 1))
        spread = part.std((0, 1))
        varies[some] = spread > VARIES * largest
        found[..., some] = np.where(varies[some], part / np.where(varies[some], spread, 1), 0)
    return found, varies


def block_shares(group: FiniteGroup, x: Float[Array, "n n neuron"]) -> Float[Array, "irrep neuron"]:
    """Share of each neuron's variance over all pairs that is made of the matrix elements of one
    representation, of either operand or both, for all but the trivial one.

    With E[i, j] the energy in representation i of the first operand and j of the second, 0 the
    trivial one: (E[i, i] + E[i, 0] + E[0, i]) / (all but E[0, 0]).
    """
    known = representations(group)
    basis = known.fourier_basis.astype(x.dtype)
    starts = [irrep.rows[0] for irrep in known.irreps]
    first = np.tensordot(basis, x, (1, 0))  # (row, y, neuron)
    energy = np.square(np.einsum("sy,ryn->rsn", basis, first, optimize=True))
    energy = np.add.reduceat(np.add.reduceat(energy, starts, 0), starts, 1)  # (irrep, irrep, n)
    energy[0, 0] = 0
    total = np.maximum(energy.sum((0, 1)), 1e-20)
    own = np.einsum("iin->in", energy)
    return ((own + energy[:, 0] + energy[0]) / total)[1:]


def phases(
    group: FiniteGroup, values: Float[Array, "n column"], frequency: int
) -> Float[Array, " column"]:
    """The φ of A cos(wt + φ), the part of each column at a frequency of a cyclic group, t the
    logarithm of the element; radians, −π … π.

    >>> from mechint.groups.named import cyclic
    >>> wave = np.cos(2 * np.pi * 2 * np.arange(7) / 7 + 0.5)[:, None]
    >>> phases(cyclic(7), wave, 2).round(6).tolist()
    [0.5]
    """
    angles = 2 * np.pi * frequency * group.logarithms / group.order
    return np.arctan2(-(np.sin(angles) @ values), np.cos(angles) @ values)


def phase_alignment(inputs: Float[Array, " neuron"], outputs: Float[Array, " neuron"]) -> float:
    """Mean cosine of what the phases of both operands, φx ± φy, differ from the output's: 1 where
    neurons write what cos w(x ± y − c) needs, 0 where output phases are arbitrary.
    """
    return float(np.cos(inputs - outputs).mean()) if len(inputs) else 0.0


# --- cosets ---------------------------------------------------------------------------------------
def subgroups(group: FiniteGroup) -> list[tuple[int, ...]]:
    """The proper subgroups of at least two elements that two elements generate, sorted.

    >>> from mechint.groups.named import symmetric
    >>> [len(members) for members in subgroups(symmetric(3))]
    [2, 2, 2, 3]
    """
    classes = group.classes
    firsts = [int(np.flatnonzero(classes == c)[0]) for c in range(classes.max() + 1)]
    found: set[tuple[int, ...]] = set()
    for a in firsts:
        for b in range(group.order):
            members = _closure(group, {a, b})
            if 1 < len(members) < group.order:
                found |= {_conjugate(group, members, g) for g in range(group.order)} - found
    return sorted(found, key=lambda members: (len(members), members))


def _closure(group: FiniteGroup, generators: set[int]) -> tuple[int, ...]:
    members, new = {group.identity}, {group.identity}
    while new:
        new = {int(group.table[a, b]) for a in new for b in generators} - members
        members |= new
    return tuple(sorted(members))


def _conjugate(group: FiniteGroup, members: tuple[int, ...], g: int) -> tuple[int, ...]:
    left = group.table[g, list(members)]
    return tuple(sorted(group.table[left, group.inverses[g]].tolist()))


def partitions(group: FiniteGroup) -> list[Cosets]:
    """Left (gH) and right (Hg) cosets of all `subgroups`, each partition once."""
    found: dict[bytes, Cosets] = {}
    for members in subgroups(group):
        chosen = list(members)
        for side, table in (("left", group.table[:, chosen]), ("right", group.table[chosen].T)):
            index = np.unique(table.min(1), return_inverse=True)[1].astype(np.int64)
            found.setdefault(index.tobytes(), Cosets(len(members), side, index))
    return list(found.values())


def coset_shares(
    cosets: list[Cosets], values: Float[Array, "n neuron"]
) -> Float[Array, "partition neuron"]:
    """Share of each column's variance that lies between cosets, corrected for their number
    (adjusted R²): 0 on average where cosets say nothing, 1 where the column is constant on each.
    """
    n = len(values)
    centered = values - values.mean(0)
    total = np.maximum((centered**2).sum(0), 1e-20)
    shares = np.empty((len(cosets), values.shape[1]))
    for row, partition in enumerate(cosets):
        members = partition.members
        counts = members.sum(0)
        between = ((members.T @ centered) ** 2 / counts[:, None]).sum(0) / total
        shares[row] = 1 - (1 - between) * (n - 1) / max(n - len(counts), 1)
    return shares
