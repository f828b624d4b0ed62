"""Models and data on which a right number once gave a wrong answer."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import probes
import tasks
from mechint import planted
from mechint.config import ModelConfig
from mechint.decide.evidence import AT_CHANCE
from mechint.models.transformer import HookedTransformer
from mechint.subject import Subject


def test_a_model_that_ends_every_text_answers_nothing() -> None:
    """Its next character is always the end: right behind the digit, and never the digit."""
    task: Any = tasks.make("listops", depth=2, operations=["MAX", "MED"], chain_of_thought=False)
    model = HookedTransformer(ModelConfig.for_task(task, d_model=8, n_heads=1), seed=0)
    with torch.no_grad():
        model.unembed.b_U[task.notation.end_token] = 50.0
    subject = Subject(model, task, n_examples=64)
    lens = probes.lens(subject)
    assert lens.metrics["lens.final_accuracy"] == 0
    ablation = probes.ablation(subject)
    assert ablation.metrics["accuracy"] == 0
    for result in (lens, ablation):
        reasons = [one.reason for one in result.findings]
        assert result.verdict == "unclear" and any(AT_CHANCE in str(one) for one in reasons)


def test_parts_are_named_only_where_the_split_is_known() -> None:
    plant = planted.modular_addition(11, (2, 5), noise=0.1).subject
    split, none = Subject(plant.model, plant.task), Subject(plant.model, plant.task, split=None)
    named = [probes.progress(one, samples=9).metrics for one in (split, none)]
    assert {"loss.train", "loss.test", "loss.all"} <= set(named[0])
    assert not [name for name in named[1] if name.endswith((".train", ".test"))]
    assert named[1]["loss.all"] == pytest.approx(named[0]["loss.all"])

    part, whole, every = (
        probes.gradients(one, **settings).metrics["gradients.total"]
        for one, settings in ((split, {}), (none, {}), (split, {"split": "all"}))
    )
    assert whole == every != part
