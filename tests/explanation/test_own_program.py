"""Claims under a rival of the task's program, or under plain functions of one's own."""

from __future__ import annotations

import pytest
import torch

from mechint import planted
from mechint.errors import ParameterError, UnknownNameError
from mechint.explanation import audit, site
from mechint.subject import Subject

P = 13
LAST = site("L0 resid_post @ answer")


@pytest.fixture(scope="module")
def subject() -> Subject:
    return planted.modular_addition(P, (2, 5), rotation_seed=1).subject


def total(tokens: torch.Tensor) -> torch.Tensor:
    return tokens[:, 0] + tokens[:, 1]


def answer(tokens: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    return total % P


def product(tokens: torch.Tensor) -> torch.Tensor:
    return tokens[:, 0] * tokens[:, 1] % P


def test_functions_are_a_program(subject: Subject) -> None:
    found = audit(subject, LAST.holds("answer"), program=[total, answer])
    assert found.standing == audit(subject, LAST.holds("answer")).standing == "stands"
    finer = audit(subject, LAST.holds("total"), program=[total, answer])
    assert finer.standing != "stands", "whether the sum exceeds the modulus changes no answer"
    assert audit(subject, LAST.holds("product"), program=product).standing == "wrong"


def test_a_rival_is_named(subject: Subject) -> None:
    assert audit(subject, LAST.holds("answer"), program="lookup").standing == "stands"
    with pytest.raises(UnknownNameError, match="did you mean 'lookup'"):
        audit(subject, LAST.holds("answer"), program="lookups")


def test_what_is_no_program_is_refused(subject: Subject) -> None:
    for wrong in ([answer], lambda tokens: tokens, lambda tokens: -tokens[:, 0], total):
        with pytest.raises(ParameterError, match="program: "):
            audit(subject, LAST.holds("answer"), program=wrong)
