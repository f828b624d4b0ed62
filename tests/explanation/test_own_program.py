"""Claims under a rival of the task's program, or under plain functions of one's own."""

from __future__ import annotations

import pytest
import torch

from mechint import planted
from mechint.errors import ParameterError, UnknownNameError
from mechint.explanation import audit, site

P = 13
LAST = site("L0 resid_post @ answer")


def total(tokens: torch.Tensor) -> torch.Tensor:
    return tokens[:, 0] + tokens[:, 1]


def answer(tokens: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    return total % P


def product(tokens: torch.Tensor) -> torch.Tensor:
    return tokens[:, 0] * tokens[:, 1] % P


def test_claims_are_made_under_functions_or_a_rival_by_name() -> None:
    """Whether the sum exceeds the modulus changes no answer."""
    subject = planted.modular_addition(P, (2, 5), rotation_seed=1).subject
    for name, program, standing in (
        ("answer", None, {"stands"}),
        ("answer", [total, answer], {"stands"}),
        ("answer", "lookup", {"stands"}),
        ("total", [total, answer], {"untested", "incomplete", "wrong"}),
        ("product", product, {"wrong"}),
    ):
        assert audit(subject, LAST.holds(name), program=program).standing in standing
    with pytest.raises(UnknownNameError, match="did you mean 'lookup'"):
        audit(subject, LAST.holds("answer"), program="lookups")
    for wrong in (
        [answer],
        lambda tokens: tokens,
        lambda tokens: -tokens[:, 0],
        lambda tokens: tokens[:, 9],
        total,
    ):
        with pytest.raises(ParameterError, match="program: "):
            audit(subject, LAST.holds("answer"), program=wrong)
