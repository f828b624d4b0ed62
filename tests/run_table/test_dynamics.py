"""When things emerge, which comes first, transitions, on rows made by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechint.errors import DataError, UnknownNameError
from mechint.run_table.dynamics import emergence_times, transition, which_first


def curve(path: str, at: float, steps: range = range(0, 101, 10)) -> list[dict]:
    """A logistic curve that passes one half at step `at`."""
    return [
        {"path": path, "step": step, "x": 1 / (1 + math.exp(-(step - at) / 4))} for step in steps
    ]


@given(st.floats(5, 95))
def test_a_logistic_emerges_where_it_was_put(at: float) -> None:
    (time,) = emergence_times(curve("a", at), "x")
    assert abs(time.step - at) <= 5, "half of the distance between two rows"
    (falling,) = emergence_times(
        [{**r, "x": 1 - r["x"]} for r in curve("a", at)], "x", falling=True
    )
    assert falling.step == pytest.approx(time.step)


def test_what_never_passes_is_censored() -> None:
    times = emergence_times([*curve("a", 40), *curve("b", 400)], "x")
    assert [time.censored for time in times] == [False, True]
    assert times[1].last == 100
    assert emergence_times([{"path": "a", "step": 3, "x": 1.0}], "x")[0].step == 3


def test_a_level_that_is_reached_and_kept_is_passed() -> None:
    rows = [{"path": "a", "step": step, "x": min(step, 2) / 4} for step in range(5)]
    assert emergence_times(rows, "x", 0.5)[0].step == 2
    falls = [row | {"x": -row["x"]} for row in rows]
    assert emergence_times(falls, "x", -0.5, falling=True)[0].step == 2


def test_a_run_that_never_passes_one_of_two_counts_for_the_other() -> None:
    for never, expected in (("y", (1, 0)), ("x", (0, 1))):
        rows = [row | {"y": row["x"]} | {never: 0.0} for row in curve("a", 40)]
        found = which_first(rows, "x", "y")
        assert (found.first, found.second) == expected and found.neither == found.ties == 0


def test_which_first_is_an_exact_sign_test() -> None:
    rows = []
    for seed in range(9):
        early = curve(str(seed), 20 if seed != 3 else 60)
        rows += [row | {"y": late["x"]} for row, late in zip(early, curve("", 40), strict=True)]
    found = which_first(rows, "x", "y")
    assert (found.first, found.second, found.ties, found.neither) == (8, 1, 0, 0)
    brute = sum(math.comb(9, k) for k in range(10) if math.comb(9, k) <= math.comb(9, 8)) / 2**9
    assert found.p_value == pytest.approx(brute)
    falls = [row | {"y": -row["y"]} for row in rows]
    assert which_first(falls, "x", "y", (0.5, -0.5), falling=(False, True)) == found
    never = which_first([row | {"y": 0.0} for row in curve("a", 300)], "x", "y")
    assert never.neither == 1 and never.p_value == 1.0


def test_transition_over_sizes() -> None:
    rows = [{"size": size, "test.accuracy": float(size >= 64)} for size in (8, 16, 32, 64, 128)]
    assert 32 < transition(rows, "size").at(0.5) < 64


def test_unknown_columns_are_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'x'"):
        emergence_times(curve("a", 3), "xx")
    with pytest.raises(DataError, match="no row over steps holds a number"):
        emergence_times([{"path": "a", "x": 1.0}], "x")
