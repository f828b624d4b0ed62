"""Algebras: values worked by hand, and tables that are what their names say."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from tasks._listops.algebra import (
    ADDITIONS,
    addition_table,
    integers,
    permutation_blocks,
    random_answers,
)


def test_operations_on_numbers_worked_by_hand():
    ten = integers(10).operations
    assert [
        ten[name].compute([7, 4, 9]) for name in ("MAX", "MIN", "MED", "ADD", "PROD", "NADD")
    ] == [9, 4, 7, 0, 2, 2]
    assert [ten[name].compute([3, 8]) for name in ("MED", "NADD")] == [5, 5]


@pytest.mark.parametrize("n", [2, 7, 10, 26])
def test_shuffled_addition_is_symmetric_and_keeps_every_frequency(n):
    table = addition_table("shuffled", n, 1)
    true = np.add.outer(np.arange(n), np.arange(n)) % n
    assert (table == table.T).all()
    assert Counter(table.diagonal()) == Counter(true.diagonal())
    upper = np.triu_indices(n, 1)
    assert Counter(table[upper]) == Counter(true[upper])
    assert Counter(table.ravel()) == dict.fromkeys(range(n), n)


def test_random_additions():
    uniform, skewed = (addition_table(kind, 20, 0) for kind in ("random-uniform", "random-skewed"))
    assert Counter(uniform.ravel()) == dict.fromkeys(range(20), 20) and (uniform != uniform.T).any()
    share = 1 / np.arange(1, 21) / (1 / np.arange(1, 21)).sum()
    assert (
        np.abs(np.bincount(skewed.ravel(), minlength=20) / 400 - share).max() < 0.075
    )  # three standard errors
    for kind in ADDITIONS[1:]:
        assert (addition_table(kind, 10, 0) == addition_table(kind, 10, 0)).all() and (
            addition_table(kind, 10, 0) != addition_table(kind, 10, 1)
        ).any()


def test_permutation_blocks_multiply_as_matrices():
    permutations = list(itertools.permutations(range(3)))

    def matrix(value: int) -> np.ndarray:
        blocks = np.zeros((6, 6), int)
        for corner, permutation in ((0, permutations[value // 6]), (3, permutations[value % 6])):
            for point, image in enumerate(permutation):
                blocks[corner + image, corner + point] = 1
        return blocks

    algebra = permutation_blocks()
    for a, b in itertools.product(range(36), repeat=2):
        top, bottom = matrix(b), matrix(b)
        top[3:, 3:], bottom[:3, :3] = np.eye(3), np.eye(3)
        for name, factor in (("OP", matrix(b)), ("OP_TOP", top), ("OP_BOTTOM", bottom)):
            assert (matrix(algebra.operations[name].compute([a, b])) == matrix(a) @ factor).all()


def test_random_answers_depend_on_everything_and_are_uniform():
    hashed = random_answers(integers(10), 0)
    add = [
        hashed.operations["ADD"].compute(list(triplet))
        for triplet in itertools.product(range(10), repeat=3)
    ]
    count = np.bincount(add, minlength=10)
    assert ((count - 100) ** 2 / 100).sum() < 27.9  # chi-squared, 9 degrees of freedom, p = 0.001
    for other in (hashed.operations["MAX"], random_answers(integers(10), 1).operations["ADD"]):
        again = [other.compute(list(triplet)) for triplet in itertools.product(range(10), repeat=3)]
        assert 0.05 < np.mean(np.equal(add, again)) < 0.15
