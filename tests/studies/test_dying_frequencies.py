"""Claims of frequencies that die on planted rows, and the parts of an embedding at frequencies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from studies.dying_frequencies.measures import fates_of, part_at
from studies.rows import Rows
from tests.studies.planted import check


def plant(n: int = 12, times: float = 2.0, winners: float = math.inf, share: float = 1.5) -> Rows:
    """Models whose training takes `times` as long without the frequencies that die."""
    base = [100.0 + 5 * i for i in range(n)]
    taken = ({"losers": times * b, "winners": winners, "others": b, "share": share} for b in base)
    return Rows([{"arm": "addition", "seed": i, "taken": one} for i, one in enumerate(taken)])


CASES: dict[str, Any] = {
    "a": ({"times": 1.0}, {"winners": 110.0}),
    "b": ({"times": 1.0}, {"winners": 110.0}),
}


@pytest.mark.parametrize("id", CASES)
def test_claims_are_judged_by_what_is_planted(id: str) -> None:
    usual = 2.0 if id == "a" else 0.5

    def planted(times: float = usual, **knobs: Any) -> Rows:
        return plant(times=times, **knobs)

    check("dying-frequencies", id, planted, CASES)


def test_parts_at_frequencies_add_up_and_hold_their_own_waves_alone() -> None:
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(11, 3))
    whole = sum(part_at(rows, [place]) for place in range(5))
    assert np.allclose(whole, rows - rows.mean(0))
    wave = np.cos(2 * np.pi * 3 * np.arange(11) / 11 + 0.4)[:, None]
    assert np.allclose(part_at(wave, [2]), wave) and np.allclose(part_at(wave, [0, 1, 3, 4]), 0)


def test_a_frequency_that_rises_late_does_not_count_as_one_that_dies() -> None:
    energy = np.array([[1.0, 1.0], [1.0, 3.0], [3.0, 1.0], [0.1, 0.1]])
    assert fates_of(energy, 2)["losers"] == [1]
