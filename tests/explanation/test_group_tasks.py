"""Products and quotients of residues, by the waves of planted sums in the order of logarithms, in a
wrapped module; sums over all frequencies.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mechint
from mechint import planted
from mechint.explanation import explain
from mechint.registry import TASKS
from mechint.subject import Subject
from probes.explanations.representations import Setting

P, KEYS = 31, ("3", "7", "13")
POWERS = [pow(3, i, P) for i in range(P - 1)]


class Products(nn.Module):
    """Planted addition mod 30 of logarithms: a product or quotient mod 31; 0 where one is 0."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        keys = [int(key) for key in KEYS]
        self.inner = planted.modular_addition(P - 1, keys, rotation_seed=1).subject.model
        self.logarithm = torch.tensor([POWERS.index(x) if x else 0 for x in range(P)])
        self.sign = -1 if operation == "divide" else 1

    def forward(self, tokens: Tensor) -> Tensor:
        x, y = (self.logarithm[one] for one in tokens[:, :2].T)
        exponents = torch.stack([x, self.sign * y % (P - 1), torch.full_like(x, P - 1)], 1)
        made = self.inner(exponents)[:, :, self.logarithm]
        zero = (tokens[:, :2] == 0).any(1)[:, None]
        return torch.where(
            torch.arange(P) == 0,
            100 * zero[:, :, None].float() - 50,
            made.where(~zero[..., None], 0.0),
        )


def product(operation: str, zero: bool) -> Subject:
    """The module, wrapped, on its task."""
    task: Any = TASKS["modular-arithmetic"](p=P, operation=operation, zero=zero)
    names = ("resid_pre", "resid_post", "attn.hook_pattern")
    hooks = [f"blocks.0.{one if '.' in one else f'hook_{one}'}" for one in names]
    model = mechint.wrap(Products(operation), {hook: f"inner.{hook}" for hook in hooks})
    return Subject(model, task)


@pytest.mark.full
@pytest.mark.parametrize(
    ("operation", "zero", "name"),
    [
        ("multiply", False, "multiplication by frequencies 3, 7, 13"),
        ("divide", False, "division by frequencies 3, 7, 13"),
        ("divide", True, "division by frequencies 3, 7, 13, of operands that are not 0"),
    ],
)
def test_products_of_residues_follow_waves_of_logarithms(
    operation: str, zero: bool, name: str
) -> None:
    subject = product(operation, zero)
    assert subject.accuracy() == {"answer": 1.0}
    best = explain(subject, family="frequencies")[0]
    assert (best.standing, best.explanation.name) == ("stands", name)
    assert abs(best.n - 450) <= 15  # of 900 pairs without 0, whether or not there are others


def test_elements_are_those_of_logarithms() -> None:
    task: Any = TASKS["modular-arithmetic"](p=7, operation="divide", separate_vocabulary=True)
    setting = Setting.of(Subject(planted.lookup_table(task).subject.model, task))
    assert setting is not None and setting.partly
    of = {name: one.tolist() for name, one in setting.elements.items()}
    for x in range(1, 7):
        for y in range(1, 7):
            answer = x * pow(y, -1, 7) % 7
            assert (of["x"][x] + of["y"][y]) % 6 == of["answer"][answer]
    assert of["x"][0] == of["y"][0] == of["answer"][0] == -1
    sums: Any = TASKS["modular-arithmetic"](p=7, operation="x^2+y^2")
    assert Setting.of(Subject(planted.lookup_table(sums).subject.model, sums)) is None


# --- all frequencies ------------------------------------------------------------------------------
@pytest.mark.full
def test_a_sum_over_all_frequencies_stands() -> None:
    """Its logits are the right answer: what tells it from a table is each frequency on its way."""
    subject = planted.modular_addition(23, tuple(range(1, 12)), noise=0.05).subject
    best = explain(subject)[0]
    assert (best.standing, best.explanation.name) == ("stands", "addition by all 11 frequencies")
    assert best.accounted is not None and best.accounted.verb == "explains"
