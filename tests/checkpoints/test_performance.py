"""How well a model answers, where its outputs are not asked equally often."""

from __future__ import annotations

import math

import pytest

from mechint.checkpoints.performance import STANDARD_ERRORS, Performance, measure
from mechint.planted.trained import small_transformer
from mechint.subject import Subject
from tests.conformance.three_operands import ThreeOperands


def test_every_output_is_shown_with_the_answers_of_its_own() -> None:
    """Of 96 answers 60 are sums and 36, those of an even b, the other; shares of these counts."""
    task = ThreeOperands()
    even = sum(b % 2 == 0 for b in range(task.n_b))
    subject = Subject(small_transformer(task, 0, 8, 16), task)
    found = measure(subject, None)
    assert found is not None
    assert found.n == {"sum": 3 * 5 * 4, "more": 3 * even * 4} == {"sum": 60, "more": 36}
    for name, accuracy in found.accuracy.items():
        assert accuracy * found.n[name] == pytest.approx(round(accuracy * found.n[name]))
    parts = str(found).split("; ")
    assert parts[0].startswith("sum: ") and parts[0].endswith(", 60 answers")
    assert "more: " in parts[1] and ", 36 answers, over all 2 answers" in parts[1]
    split = str(measure(subject, task.split(0)))
    assert "on all 60 answers accuracy" in split and "on all 36 answers accuracy" in split


def test_an_output_of_few_answers_has_the_wider_error() -> None:
    """An accuracy between four standard errors of 36 and of 960 answers is at chance for 36."""
    level, few, many = 0.5, 36, 960
    errors = [STANDARD_ERRORS * math.sqrt(level * (1 - level) / n) for n in (few, many)]
    accuracy = level + sum(errors) / 2
    both = ("more", "sum")
    found = Performance(
        dict.fromkeys(both, accuracy),
        dict.fromkeys(both, 0.1),
        {name: {"accuracy": level, "loss": 0.7} for name in both},
        {"more": few, "sum": many},
        {},
    )
    assert found.at_chance == ["more"]
