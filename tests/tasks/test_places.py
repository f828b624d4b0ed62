"""Counterfactual inputs of an order's places: the place takes the value, and no other moves."""

from __future__ import annotations

import pytest
import torch

import tasks


@pytest.mark.parametrize("distinct", [False, True])
def test_a_place_of_the_order_takes_a_value_that_fits(distinct: bool) -> None:
    task = tasks.sorted_list(n=7, length=4, distinct=distinct)
    tokens = task.sample(200, 0).tokens
    steps = {step.name: step for step in task.own_program.steps}
    before = task.solve(tokens)
    changed_any = 0
    for place, name in enumerate(task.answer_names):
        for value in range(task.n):
            values = torch.full((len(tokens),), value)
            new = steps[name].change(tokens, values)
            after = task.solve(new)
            others = [i for i in range(task.length) if i != place]
            assert torch.equal(after[:, others], before[:, others])
            for row, old, wanted in zip(
                tokens.tolist(), before.tolist(), after.tolist(), strict=True
            ):
                low = old[place - 1] if place else 0
                high = old[place + 1] if place + 1 < task.length else task.n - 1
                fits = low <= value <= high
                if distinct:
                    fits = fits and value not in row[: task.length]
                assert wanted[place] == (value if fits else old[place])
            changed_any += int((after[:, place] != before[:, place]).sum())
    assert changed_any > 100
