"""Verdicts of the study of clock and pizza on planted outcomes, and its measures on planted models:
a pizza, which reads nothing but a sum, and a lookup table, which reads pairs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from mechint.planted import library
from mechint.studies.one_family import measures
from mechint.studies.one_family.claims import CONSTANT, FALLING, UNIFORM
from mechint.studies.one_family.figures import draw
from mechint.studies.one_family.plan import plan
from mechint.subject import Subject
from studies.rows import Rows
from tests.studies.planted import Cases, verdicts


def plant(
    n: int = 16,
    constant: float = 0.98,
    rest: float = 0.97,
    falling: float = 0.3,
    uniform: float = 1.0,
    permuted: float = 0.1,
    key_at: float = 150.0,
    key_at_first: bool = False,
) -> Rows:
    """Models of each arm whose answers survive to so large a share."""
    key = {"keys": [1, 5], "key_at": key_at, "key_at_first": key_at_first, "solved_at": 300.0}
    kept = {CONSTANT: (constant, rest), FALLING: (falling, 0.1), UNIFORM: (uniform, uniform)}
    return Rows(
        [
            {"arm": arm, "seed": i, "accuracy": 1.0, "sum": of, "rest": other, **key}
            | {"permuted": permuted}
            for arm, (of, other) in kept.items()
            for i in range(n)
        ]
    )


CASES: Cases = {
    "a": ({"constant": 0.5}, {"uniform": 0.5}),
    "b": ({"falling": 0.95}, {"permuted": 0.8}),
    "c": ({"rest": 0.5}, {"permuted": 0.8}),
    "d": ({"key_at": 450.0}, {"key_at_first": True}),
}
test_verdicts = verdicts("one-family", plant, CASES)


def test_models_that_answer_no_sums_are_not_counted() -> None:
    rows = Rows([{**row, "accuracy": 0.9} for row in plant()])
    assert not draw(rows) and len(draw(plant())) == 1


def lookup(seed: int) -> Subject:
    (build,) = library.lookup("modular-arithmetic", p=11).values()
    return build(seed)


@pytest.mark.parametrize(
    ("subject", "least", "most"),
    [
        pytest.param(lambda: library.pizza(0.0, 0).subject, 1.0, 1.0, id="pizza"),
        pytest.param(lambda: lookup(0), 0.0, 0.9, id="lookup table"),
    ],
)
def test_a_sum_keeps_what_reads_a_sum(
    subject: Callable[[], Subject], least: float, most: float
) -> None:
    found = measures.sum_alone(subject(), 0)
    assert least <= found["sum"] <= most and least <= found["rest"] <= most
    assert found["permuted"] <= 0.5


def test_the_best_sum_is_that_of_least_squares_on_both_orders() -> None:
    """Against a fit of the symmetric part by conjugate equations, solved another way."""
    draw_ = np.random.default_rng(0)
    x, y = np.indices((7, 7)).reshape(2, -1)
    read = draw_.normal(size=(49, 3))
    found = measures.best_sum(torch.tensor(read), x, y, np.arange(49)).numpy()
    grid = read.reshape(7, 7, 3)
    means = (grid.mean(0) + grid.mean(1)) / 2
    wanted = means[x] + means[y] - read.mean(0)
    assert found == pytest.approx(wanted, abs=1e-9)


def test_every_arm_is_trained_on_seeds_that_suggested_nothing() -> None:
    planned = plan("laptop")
    assert {one.labels["arm"] for one in planned} == {CONSTANT, FALLING, UNIFORM}
    assert min(one.labels["seed"] for one in planned) >= 4000
