"""Shapes in signatures are checked at run time, by the import hook in mechint's own modules."""

from __future__ import annotations

import pytest
import torch

from mechint.task import Answers, Chance
from tests import shapes


def test_the_contracts_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import hook is at work on mechint's own modules."""
    monkeypatch.setattr(shapes, "EVERY", 1)  # however often other tests have called them
    with pytest.raises(TypeError):
        Chance.of(torch.ones(3))  # classes are integers
    with pytest.raises(TypeError):
        Answers(torch.zeros(2, 1), torch.zeros(3, 1, 1, dtype=torch.int64))
