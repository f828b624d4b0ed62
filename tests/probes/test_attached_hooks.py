"""Hooks that the user has put on a model are part of the model that every probe measures.

The same model twice: half of the neurons at zero by a hook, and by zero rows of W_out.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import probes
from mechint import Subject, planted
from mechint.errors import NotApplicableError
from mechint.probe.results import ProbeResult

CUT = 60


def silence(activation: torch.Tensor, hook: Any) -> torch.Tensor:
    return activation.index_fill(-1, torch.arange(CUT, activation.shape[-1]), 0)


@pytest.fixture(scope="module")
def whole() -> Subject:
    return planted.modular_addition(11, (2, 3)).subject


@pytest.fixture(scope="module")
def hooked(whole: Subject) -> Subject:
    model = copy.deepcopy(whole.model)
    model.add_hook("blocks.0.mlp.hook_post", silence)
    return Subject(model, whole.task)


@pytest.fixture(scope="module")
def edited(whole: Subject) -> Subject:
    model = copy.deepcopy(whole.model)
    with torch.no_grad():
        model.get_parameter("blocks.0.mlp.W_out")[CUT:] = 0
    return Subject(model, whole.task)


@pytest.mark.parametrize("name", ["ablation", "attribution"])
def test_causal_probes_measure_the_model_with_its_hooks(
    name: str, whole: Subject, hooked: Subject, edited: Subject
) -> None:
    found, expected, without = (
        effects(getattr(probes, name)(one)) for one in (hooked, edited, whole)
    )
    assert found.keys() == expected.keys()
    for key, values in found.items():
        assert np.allclose(values, expected[key], atol=5e-4, equal_nan=True), key
    shared = found.keys() & without.keys()
    assert any(not np.allclose(found[key], without[key], atol=0.05) for key in shared)


def effects(result: ProbeResult) -> dict[tuple[str, ...], list[float]]:
    """The numbers of the rows of the first table, by what the rows are about; but accuracies, as
    logits that tie where a component is gone are ordered by rounding.
    """
    every = next(iter(result.tables.values())).columns
    columns = {name: column for name, column in every.items() if "accuracy" not in name}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {
        tuple(str(value) for value in row.values() if not isinstance(value, float)): [
            value for value in row.values() if isinstance(value, float)
        ]
        for row in rows
    }


def test_circuits_says_that_it_cannot(hooked: Subject) -> None:
    with pytest.raises(NotApplicableError, match="hooks are on its model") as caught:
        probes.circuits(hooked)
    assert "\n" not in str(caught.value)
