"""Modular arithmetic, remainders, groups and hidden order, each against arithmetic written out
another way.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tasks
from mechint.groups import finite


def test_prompts_of_the_three_forms() -> None:
    plain, short, apart = (
        tasks.make("modular-arithmetic", p=5, **form)
        for form in ({}, {"equals": False}, {"separate_vocabulary": True})
    )
    assert plain.inputs()[7].tolist() == [1, 2, 5] and (
        plain.d_vocab,
        plain.n_ctx,
        plain.d_vocab_out,
    ) == (6, 3, 5)
    assert short.inputs()[7].tolist() == [1, 2] and (short.d_vocab, short.n_ctx) == (5, 2)
    assert apart.inputs()[7].tolist() == [1, 7, 10] and apart.d_vocab == 11
    assert all(
        torch.equal(task.examples().targets[:, -1], plain.examples().targets[:, -1])
        for task in (short, apart)
    )


@pytest.mark.parametrize("p", [3, 7, 11, 113])
def test_multiplication_by_a_prime_is_addition_of_logarithms(p: int) -> None:
    task = tasks.make("modular-arithmetic", p=p, operation="multiply")
    tokens = task.symmetry.tokens
    assert sorted(tokens) == list(range(1, p))
    product = np.array(tokens)[:, None] * np.array(tokens) % p
    np.testing.assert_array_equal(product, np.array(tokens)[task.symmetry.group.table])


def test_a_table_of_the_callers_has_the_symmetry_of_its_group_or_none() -> None:
    klein = finite.parse("C2xC2")
    task = tasks.make("modular-arithmetic", p=4, table=tuple(map(tuple, klein.table.tolist())))
    assert task.symmetry.group == klein == task.outputs[0].group
    maximum = tasks.make("modular-arithmetic", p=3, table=((0, 1, 2), (1, 1, 2), (2, 2, 2)))
    answers = maximum.examples().targets[:, -1, 0].view(3, 3).tolist()
    assert maximum.symmetry is None and answers == [[0, 1, 2], [1, 1, 2], [2, 2, 2]]
    assert maximum.chance["answer"].accuracy == pytest.approx(5 / 9)


def test_the_sources_29_remainders() -> None:
    task = tasks.make("remainders")
    assert (
        len(task.outputs) == 29
        and task.outputs[-1].n_classes == 109
        and len(task.examples()) == 12_769
    )
    assert {split: len(index) for split, index in task.split(0).items()} == {
        "train": 3831,
        "validation": 1000,
        "test": 7938,
    }
    x0, x1 = 17, 90
    answers = task.label_inputs(torch.tensor([[x0, x1, 113]]))[0, -1].tolist()
    assert answers == [
        (x0 + 113 * x1) % int(output.name.removeprefix("mod ")) for output in task.outputs
    ]
    # by the Chinese remainder theorem the answers to all primes name the number
    assert len(task.examples().targets[:, -1].unique(dim=0)) == 12_769
