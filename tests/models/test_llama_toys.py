"""Toys with Llama's blocks: trained alone and together, and served by every probe."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import mechint
from mechint.config import LLAMA
from mechint.models.transformer import HookedTransformer

SMALL: dict[str, Any] = {**LLAMA, "d_model": 16, "n_heads": 2, "d_mlp": 32}


@pytest.mark.full
def test_models_train_together_as_alone() -> None:
    """As many as are asked for in one ensemble, each with the numbers that it has alone."""
    task, steps = mechint.tasks.make("modular-arithmetic", p=7), {"steps": 60, "lr": 5e-3}
    together = mechint.train(task, SMALL, steps, seeds=[0, 1])
    alone = mechint.train(task, SMALL, steps, seeds=[1])
    both = [run.subject() for run in together]
    one = alone[0].subject() if isinstance(alone, list | tuple) else alone.subject()
    assert isinstance(one.model, HookedTransformer)
    assert not hasattr(one.model, "W_pos")
    assert torch.allclose(both[1].logits(), one.logits(), atol=1e-3)
    untrained = one.untrained(1)
    assert one.loss()["answer"] < untrained.loss()["answer"] - 0.1
