"""Components that do the same are named together, whatever rounding says of them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import probes
from mechint import planted
from mechint.subject import Subject
from probes.ties import TIE, tied


@pytest.fixture(scope="module")
def addition() -> Subject:
    """Of x, L0H0 and then the MLP carry all; without either of both heads, nothing is right."""
    return planted.modular_addition(11, (2, 3)).subject


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=12), st.integers(0, 99))
def test_groups_are_those_of_the_numbers_without_their_noise(whole: list[int], seed: int) -> None:
    values = np.array(whole, float)
    noise = np.random.default_rng(seed).uniform(-0.4, 0.4, len(whole)) * TIE * np.abs(values).max()
    by_hand = [
        [index for index, one in enumerate(whole) if one == value]
        for value in sorted(set(whole), reverse=True)
    ]
    assert tied(values + noise) == by_hand


def test_what_is_not_a_number_comes_last_and_alone() -> None:
    assert tied(np.array([np.nan, 1.0, np.nan, 1.0, -np.inf])) == [[1, 3], [4], [0], [2]]
    assert tied(np.zeros(0)) == []


@pytest.mark.full
def test_patching_names_the_first_of_those_that_recover_the_same(addition: Subject) -> None:
    precise = Subject(copy.deepcopy(addition.model).double(), addition.task)
    results = [
        probes.patching(one, variable="x", pairs=64)
        for one in (addition, precise, addition.with_limits(chunk=7))
    ]
    for result in results:
        table = result.tables["components"].columns
        assert sum(share > 1 - 1e-5 for share in table["recovered"]) == 3  # x itself, at position 0
        assert result.metrics["component"] == "L0H0 @ 2"
        assert result.verdict == "yes" and not result.metrics["tied"]  # L0 MLP holds the answer
        assert result.metrics["above_wrong_source"] == pytest.approx(
            results[0].metrics["above_wrong_source"], abs=1e-5
        )
