"""Sums of several digits: against integer arithmetic."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

import tasks


def numbers(task, tokens: torch.Tensor) -> list[tuple[int, int, int]]:
    """(a, b, what is written as their sum) of each example."""
    found = []
    for row in tokens:
        question, _, answer = task.text(row).partition("=")
        a, b = question.split("+")
        found.append((int(a), int(b), int(answer[::-1] if task.reversed_answer else answer)))
    return found


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
