"""Finite groups and their representations against character tables, closed forms and brute
force.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechint.errors import DataError, ParameterError
from mechint.groups import finite
from mechint.groups.finite import FiniteGroup
from mechint.groups.representations import representations

QUATERNIONS = {
    "1": np.eye(2),
    "i": np.array([[1j, 0], [0, -1j]]),
    "j": np.array([[0, 1], [-1, 0]]),
    "k": np.array([[0, 1j], [1j, 0]]),
}


def quaternion_group() -> FiniteGroup:
    """Q8 from 2×2 matrices, as a table of nothing but their products."""
    elements = [sign * matrix for sign in (1, -1) for matrix in QUATERNIONS.values()]
    table = [
        [next(i for i, c in enumerate(elements) if np.allclose(a @ b, c)) for b in elements]
        for a in elements
    ]
    return FiniteGroup(table)


def relabeled(group: FiniteGroup, seed: int) -> FiniteGroup:
    """The same group with its elements listed in another order."""
    new = np.random.default_rng(seed).permutation(group.order)
    table = np.empty_like(group.table)
    table[np.ix_(new, new)] = new[group.table]
    return FiniteGroup(table)


GROUPS = [*("C1", "C2", "C7", "C8", "C12", "D1", "D2", "D4", "D7", "S3", "S4", "A4", "A5", "S5")]
GROUPS += ["S3xC4", "C2xC2xC3", "blocks", "Q8"]


@pytest.mark.parametrize("spec", GROUPS)
def test_irreps_are_orthogonal_homomorphisms_that_fill_the_group(spec: str) -> None:
    group = quaternion_group() if spec == "Q8" else finite.parse(spec)
    known = representations(group)
    basis, irreps = known.fourier_basis, known.irreps
    np.testing.assert_allclose(basis @ basis.T, np.eye(group.order), atol=1e-10)
    assert (
        sum(irrep.degree**2 * (2 if irrep.kind == "complex" else 1) for irrep in irreps)
        == group.order
    )
    assert [row for irrep in irreps for row in irrep.rows] == list(range(group.order))
    for index, irrep in enumerate(irreps):
        rho = known.matrices(irrep.name)
        assert rho.shape == (group.order, irrep.dimension, irrep.dimension)
        np.testing.assert_allclose(
            np.einsum("gij,hjk->ghik", rho, rho), rho[group.table], atol=1e-9
        )
        np.testing.assert_allclose(
            rho @ rho.transpose(0, 2, 1),
            np.broadcast_to(np.eye(irrep.dimension), rho.shape),
            atol=1e-9,
        )
        np.testing.assert_allclose(
            np.trace(rho, axis1=1, axis2=2), known.characters[index], atol=1e-9
        )
        # the matrices' entries, as functions on the group, lie in the irrep's rows and nowhere else
        shares = known.energy(rho.reshape(group.order, -1))
        np.testing.assert_allclose(shares, np.eye(len(irreps))[index], atol=1e-9)


@pytest.mark.parametrize(
    ("spec", "degrees", "kinds"),
    [
        ("S4", [1, 1, 2, 3, 3], {"real"}),
        ("S5", [1, 1, 4, 4, 5, 5, 6], {"real"}),
        ("A4", [1, 1, 3], {"real", "complex"}),
        ("A5", [1, 3, 3, 4, 5], {"real"}),
        ("D7", [1, 1, 2, 2, 2], {"real"}),
        ("Q8", [1, 1, 1, 1, 2], {"real", "quaternionic"}),
    ],
)
def test_degrees_are_those_of_the_character_tables(
    spec: str, degrees: list[int], kinds: set[str]
) -> None:
    group = quaternion_group() if spec == "Q8" else finite.parse(spec)
    assert [irrep.degree for irrep in representations(group).irreps] == degrees
    assert {irrep.kind for irrep in representations(group).irreps} == kinds


@pytest.mark.parametrize("n", [3, 4, 5])
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_sign_and_standard_are_named_from_the_table_alone(n: int, seed: int | None) -> None:
    group = finite.symmetric(n)
    order = (
        np.arange(group.order)
        if seed is None
        else np.random.default_rng(seed).permutation(group.order)
    )
    shown = group if seed is None else relabeled(group, seed)
    permutations = list(itertools.permutations(range(n)))
    fixed = np.array([sum(i == image for i, image in enumerate(p)) for p in permutations]) - 1
    sign = np.array([round(np.linalg.det(np.eye(n)[list(p)])) for p in permutations])
    names = [irrep.name for irrep in representations(shown).irreps]
    expected = {"trivial": np.ones(len(fixed)), "sign": sign, "standard": fixed} | (
        {} if n == 3 else {"standard⊗sign": fixed * sign}
    )
    for name, character in expected.items():
        np.testing.assert_allclose(
            representations(shown).characters[names.index(name)][order], character, atol=1e-8
        )


@pytest.mark.parametrize("spec", ["S4", "A5", "D7", "D4", "S3xC4"])
def test_names_do_not_depend_on_the_order_of_elements(spec: str) -> None:
    group = finite.parse(spec)
    describe = [(irrep.name, irrep.degree, irrep.kind) for irrep in representations(group).irreps]
    assert [
        (irrep.name, irrep.degree, irrep.kind)
        for irrep in representations(relabeled(group, 3)).irreps
    ] == describe


@pytest.mark.full
def test_the_table_of_s6_alone_names_no_standard_irrep() -> None:
    """An outer automorphism exchanges transpositions with products of three of them."""
    group = finite.symmetric(6)
    alone = representations(relabeled(group, 0))
    degrees = sorted(irrep.degree for irrep in alone.irreps)
    assert degrees == [1, 1, 5, 5, 5, 5, 9, 9, 10, 10, 16]
    assert not {"standard", "standard⊗sign"} & set(alone.names)
    assert all(irrep.arbitrary == (irrep.degree in (5, 10)) for irrep in alone.irreps)
    shown = representations(group)
    assert not any(irrep.arbitrary for irrep in shown.irreps)
    fixed = (group.action == np.arange(6)).sum(1)  # type: ignore[operator]
    standard = shown.characters[shown.names.index("standard")]
    np.testing.assert_allclose(standard, fixed - 1, atol=1e-8)


def test_a_letter_that_only_the_listing_decides_says_so() -> None:
    by_name = {irrep.name: irrep for irrep in representations(finite.parse("A5")).irreps}
    assert by_name["3a"].arbitrary and by_name["3b"].arbitrary  # the golden ratio and its conjugate
    assert not by_name["4a"].arbitrary and not by_name["trivial"].arbitrary


@given(st.integers(1, 40))
def test_a_cyclic_group_has_cosines_and_sines_named_by_frequency(n: int) -> None:
    group = finite.cyclic(n)
    t = np.arange(n)
    for irrep in representations(group).irreps:
        wave = np.cos(2 * np.pi * int(irrep.name) * t / n)
        rows = representations(group).fourier_basis[list(irrep.rows)]
        np.testing.assert_allclose(rows[0], wave / np.linalg.norm(wave), atol=1e-12)
        assert len(irrep.rows) == (1 if int(irrep.name) in (0, n / 2) else 2)
    x = np.random.default_rng(n).standard_normal((n, 3))
    power = (np.abs(np.fft.rfft(x, axis=0)) ** 2).sum(1)
    power[1 : (n + 1) // 2] *= 2
    np.testing.assert_allclose(representations(group).energy(x), power / power.sum(), atol=1e-12)


@settings(max_examples=10)
@given(st.sampled_from(["C6", "D5", "S4", "A4"]), st.integers(0, 1000))
def test_elements_follow_from_the_table(spec: str, seed: int) -> None:
    group = relabeled(finite.parse(spec), seed)
    e = group.identity
    assert all(group.table[e, g] == group.table[g, e] == g for g in range(group.order))
    assert all(group.table[g, h] == e for g, h in enumerate(group.inverses))
    for g, order in enumerate(group.element_orders):
        powers = list(itertools.accumulate([g] * order, lambda a, b: int(group.table[a, b])))
        assert powers.index(e) == order - 1
    conjugate = {
        (g, int(group.table[group.table[h, g], group.inverses[h]]))
        for g in range(group.order)
        for h in range(group.order)
    }
    assert all(
        (group.classes[g] == group.classes[h]) == ((g, h) in conjugate)
        for g in range(group.order)
        for h in range(group.order)
    )
    assert group.is_abelian == group.is_cyclic == (spec == "C6")


def test_products_are_compositions() -> None:
    s4 = finite.symmetric(4)
    permutations = list(itertools.permutations(range(4)))
    for a, b in itertools.product(range(24), repeat=2):
        assert permutations[s4.table[a, b]] == tuple(
            permutations[a][permutations[b][x]] for x in range(4)
        )
    blocks = finite.permutation_blocks()
    matrices = [
        np.kron(np.diag([1, 0]), np.eye(3)[list(p)]) + np.kron(np.diag([0, 1]), np.eye(3)[list(q)])
        for p, q in itertools.product(itertools.permutations(range(3)), repeat=2)
    ]
    for a, b in [(1, 7), (8, 35), (20, 13)]:
        # a permutation matrix with rows e_p(x) multiplies in the opposite order of the maps
        np.testing.assert_array_equal(matrices[blocks.table[a, b]], matrices[b] @ matrices[a])


def test_equal_tables_are_equal_groups() -> None:
    assert FiniteGroup([[0, 1], [1, 0]]) == finite.cyclic(2) == finite.symmetric(2)
    assert len({finite.cyclic(3), finite.alternating(3), finite.cyclic(4)}) == 2
    with pytest.raises(ValueError, match="read-only"):
        finite.cyclic(3).table[0, 0] = 1


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ([[0, 1]], "expected a square"),
        ([[0, 1], [1]], "rows of different lengths"),
        ([[0, 1], [1, 2]], "not closed"),
        ([[0.5, 1], [1, 0]], "not closed"),
        ([[1, 1], [1, 1]], "no identity"),
        ([[0, 1], [1, 1]], "element 1 has no inverse"),
        # a loop of order 5: identity and inverses, each row and column a permutation, yet no group
        (
            [[0, 1, 2, 3, 4], [1, 0, 3, 4, 2], [2, 4, 0, 1, 3], [3, 2, 4, 0, 1], [4, 3, 1, 2, 0]],
            "not associative",
        ),
    ],
)
def test_a_table_that_is_no_group_is_refused(table: list[list[float]], said: str) -> None:
    with pytest.raises(DataError, match=said):
        FiniteGroup(table)


@pytest.mark.parametrize("spec", ["Q8", "S9", "C0", "", "S3x", "C1000xC1000", "s5"])
def test_a_name_that_is_no_group_is_refused(spec: str) -> None:
    with pytest.raises(ParameterError):
        finite.parse(spec)
