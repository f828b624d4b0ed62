"""Sums of several digits: against integer arithmetic."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tasks
from mechint.errors import ParameterError


def numbers(task, tokens: torch.Tensor) -> list[tuple[int, int, int]]:
    """(a, b, what is written as their sum) of each example."""
    found = []
    for row in tokens:
        question, _, answer = task.text(row).partition("=")
        a, b = question.split("+")
        found.append((int(a), int(b), int(answer[::-1] if task.reversed_answer else answer)))
    return found


@settings(max_examples=20)
@given(
    digits=st.integers(2, 8),
    leading=st.integers(1, 9),
    extra=st.booleans(),
    backwards=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_sum_as_written_is_the_sum(
    digits: int, leading: int, extra: bool, backwards: bool, seed: int
) -> None:
    task = tasks.make(
        "digit-sum", digits=digits, leading=leading, extra_digit=extra, reversed_answer=backwards
    )
    batch = task.sample(20, seed)
    assert all(a + b == total for a, b, total in numbers(task, batch.tokens))
    positions, targets = batch.answers.positions, batch.answers.targets[..., 0]
    assert torch.equal(batch.tokens.gather(1, positions + 1), targets)
    assert positions[0].tolist() == list(range(2 * digits + 1, task.n_ctx - 1))


@given(st.integers(0, 3), st.integers(0, 99))
def test_a_carry_set_by_hand_adds_a_power_of_ten(place: int, seed: int) -> None:
    task = tasks.make("digit-sum", digits=5)
    batch = task.sample(30, seed)
    carry = task.variables[f"carry_{place}"]
    own = carry.value_of(batch.tokens)
    for (a, b, total), value in zip(numbers(task, batch.tokens), own.tolist(), strict=True):
        unit = 10 ** (place + 1)
        assert value == (a % unit + b % unit >= unit)
        assert total == a + b
    for wanted in (0, 1):
        labels = carry.label(batch.tokens, torch.full_like(own, wanted))
        digits = labels[:, list(task.answer_positions), 0].tolist()
        for (_, _, total), value, row in zip(
            numbers(task, batch.tokens), own.tolist(), digits, strict=True
        ):
            expected = total + (wanted - value) * 10 ** (place + 1)
            assert int("".join(map(str, row))) == expected % 10**5


def test_parameters_that_make_no_sums_are_refused() -> None:
    with pytest.raises(ParameterError, match="leading=9: expected at most base - 1 = 7"):
        tasks.make("digit-sum", base=8, leading=9)
    with pytest.raises(ParameterError, match="digits=1: expected more"):
        tasks.make("digit-sum", digits=1, leading=1)
