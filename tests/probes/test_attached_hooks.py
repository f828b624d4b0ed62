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
from mechint.subject.pairs import Pairs
from probes._das._swap import SwapSite
from probes._interference.probe import mean_weights
from probes._llc.sampler import _With
from probes.loss_gradient import loss_gradient
from probes.removal import EmbeddingRemoval

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


def test_interchange_and_removals(hooked: Subject, edited: Subject) -> None:
    tokens, rows = hooked.data.tokens, torch.arange(20)
    reads = torch.full((20,), 2)
    none = torch.zeros(20, 0, dtype=torch.int64)
    pairs = Pairs(tokens[:20], tokens[-20:], reads, reads, none, none, none)
    sites = [SwapSite(one, pairs, "blocks.0.hook_resid_mid", None) for one in (hooked, edited)]
    assert sites[0].start is None and sites[1].start is not None
    found, expected = (site.logits(site.source, rows) for site in sites)
    assert torch.allclose(found, expected, atol=1e-3)
    directions = np.linalg.qr(np.random.default_rng(0).standard_normal((11, 2)))[0].T
    losses = [
        EmbeddingRemoval.of(one, range(11)).loss(directions)  # type: ignore[union-attr]
        for one in (hooked, edited)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_gradients_of_weights_pass_through_the_hooks(whole: Subject, hooked: Subject) -> None:
    _, found = loss_gradient(hooked, hooked.data, mean_weights(hooked.data))
    parts = dict(zip(dict(hooked.model.named_parameters()), found, strict=True))
    for name, axis in (("blocks.0.mlp.W_out", 0), ("blocks.0.mlp.W_in", 1)):
        gradient = parts[name].movedim(axis, 0)
        assert gradient[:CUT].any() and not gradient[CUT:].any()
    own = {"embed.W_E": hooked.model.W_E.detach()}
    tokens = hooked.data.tokens
    assert torch.allclose(_With(hooked.model, own)(tokens), hooked.model(tokens), atol=1e-5)
    assert not torch.allclose(_With(whole.model, own)(tokens), hooked.model(tokens), atol=0.1)
