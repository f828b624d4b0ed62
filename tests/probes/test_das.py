"""DAS against planted order directions, pyvene's own IntervenableModel, brute-force hooks and its
three baselines.
"""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stdout
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mechint import planted
from mechint.config import ModelConfig
from mechint.counterfactuals import choose_variable, draw
from mechint.errors import DataError, NotApplicableError, ParameterError, UnknownNameError
from mechint.interventions import select_positions
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from probes.das.probe import (
    DAS,
    Site,
    fit,
    interchange,
    interchange_accuracy,
    random_subspace,
    swap,
)

SMALL: dict[str, Any] = {
    "steps": 60,
    "batch_size": 128,
    "pairs": 256,
    "held_out": 128,
    "null_samples": 99,
}

SITES = [
    "hook_embed",
    "blocks.0.hook_resid_mid",
    "blocks.0.attn.hook_z",
    "blocks.0.attn.hook_v",
    "blocks.0.hook_attn_out",
]
SITES += ["blocks.1.mlp.hook_post", "blocks.1.hook_resid_post", "blocks.0.ln1.hook_normalized"]


@pytest.fixture(scope="module")
def plant() -> planted.Planted:
    return planted.comparison(n=20)


@pytest.fixture(scope="module")
def deep() -> Subject:
    """An untrained model of two layers on the comparison task."""
    task = TASKS["comparison"](n=12)
    config = ModelConfig(
        n_layers=2,
        d_model=8,
        n_heads=2,
        n_ctx=task.n_ctx,
        d_vocab=task.d_vocab,
        d_vocab_out=2,
        normalization_type="LN",
        init_mode="d_model",
    )
    return Subject(HookedTransformer(config, seed=3), task)


def test_planted_order_direction_is_found(plant: planted.Planted) -> None:
    result = DAS(**SMALL, hook="hook_embed", variable="rank of a", pos=0).run(plant.subject, seed=0)
    assert result.metrics["found"]
    assert result.metrics["iia"] >= 0.95
    assert result.metrics["iia_random"] <= 0.6
    assert result.metrics["iia_untrained"] <= 0.75
    assert result.metrics["iia_full_swap"] == 1.0
    cosine = abs(
        float(
            result.arrays["subspace"][:, 0]
            @ np.asarray(plant.truth["subspaces"]["hook_embed"])[:, 0]
        )
    )
    assert cosine > 0.95
    assert result.arrays["subspace"].T @ result.arrays["subspace"] == pytest.approx(
        np.eye(1), abs=1e-5
    )


def test_equal_seeds_give_equal_bits(plant: planted.Planted) -> None:
    probe = DAS(**{**SMALL, "steps": 10, "null_samples": 5})
    first, again = (probe.run(plant.subject, seed=4) for _ in range(2))
    assert first.to_json() == again.to_json()
    assert not np.array_equal(
        first.arrays["subspace"], probe.run(plant.subject, seed=5).arrays["subspace"]
    )


def test_untrained_model_holds_nothing(deep: Subject) -> None:
    result = DAS(**SMALL, only_correct=False).run(deep, seed=0)
    assert not result.metrics["found"]


class Wrapped(nn.Module):
    """What pyvene wants of a model."""

    def __init__(self, model: HookedTransformer) -> None:
        super().__init__()
        self.model, self.config = (
            model,
            SimpleNamespace(hidden_size=model.config.d_model, to_dict=dict),
        )

    @property
    def device(self) -> torch.device:
        return self.model.device

    def forward(self, input_ids: torch.Tensor) -> Any:
        return SimpleNamespace(logits=self.model(input_ids))


@pytest.mark.parametrize(
    "hook", ["blocks.0.hook_resid_pre", "blocks.1.hook_resid_pre", "blocks.1.hook_mlp_out"]
)
def test_interchange_equals_pyvenes_own(deep: Subject, hook: str) -> None:
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        import pyvene
    pairs = draw(deep, choose_variable(deep.task, "rank of a"), 64, 0, only_correct=False)
    rotation = pyvene.LowRankRotatedSpaceIntervention(embed_dim=8, low_rank_dimension=2)
    _, block, name = hook.split(".", 2)
    config = pyvene.IntervenableConfig(
        {"component": f"model.blocks[{block}].{name}.output", "intervention": rotation}
    )
    copy = HookedTransformer(deep.model.config)
    copy.load_state_dict(deep.model.state_dict())
    intervenable = pyvene.IntervenableModel(config, Wrapped(copy))
    pos = 1 if "mlp_out" in hook else 0
    with torch.no_grad():
        _, theirs = intervenable(
            {"input_ids": pairs.base}, [{"input_ids": pairs.source}], {"sources->base": pos}
        )
        subspace = rotation.rotate_layer.weight.detach()
    ours = interchange(deep, subspace, pairs.base, pairs.source, hook=hook, pos=pos)
    assert torch.allclose(ours, theirs.logits[:, -1], atol=1e-5)
    iia = float((theirs.logits[:, -1].argmax(-1) == pairs.labels[:, 0]).double().mean())
    assert float(
        interchange_accuracy(deep, Site(deep, pairs, hook, pos), subspace).double().mean()
    ) == pytest.approx(iia)


@pytest.mark.parametrize("hook", SITES)
@pytest.mark.parametrize("pos", [0, 1, None])
def test_every_site_equals_a_hooked_forward(deep: Subject, hook: str, pos: int | None) -> None:
    pairs = draw(deep, choose_variable(deep.task, "rank of b"), 16, 1, only_correct=False)
    site = Site(deep, pairs, hook, pos)
    subspace = random_subspace(site.width, 3, torch.Generator().manual_seed(0)).float()
    with torch.no_grad():
        ours = site.logits(swap(subspace, site.base, site.source), torch.arange(16))
    _, cache = deep.model.run_with_cache(pairs.source)
    at_pos = 1 if pos is None else pos

    def replace(value: torch.Tensor, hook: Any) -> torch.Tensor:
        value = value.clone()
        flat, source = value[:, at_pos].flatten(1), cache[hook.name][:, at_pos].flatten(1)
        value[:, at_pos] = (flat + (source - flat) @ subspace @ subspace.T).view_as(
            value[:, at_pos]
        )
        return value

    with torch.no_grad():
        expected = select_positions(
            deep.model.run_with_hooks(pairs.base, fwd_hooks=[(hook, replace)]), pairs.reads
        )
    assert torch.allclose(ours, expected, atol=1e-5)


def test_whole_width_is_the_full_swap(deep: Subject) -> None:
    assert deep.task is not None
    pairs = draw(deep, choose_variable(deep.task, "rank of a"), 32, 0, only_correct=False)
    site = Site(deep, pairs, "blocks.0.hook_resid_pre", 0)
    subspace, losses = fit(site, deep.task, 8, steps=2, batch_size=8, lr=0.01, seed=0)
    assert len(losses) == 2
    full = interchange_accuracy(deep, site, None)
    assert torch.equal(interchange_accuracy(deep, site, subspace), full)
    # the embedding of the operand is all that tells it: the model then answers as it answers the
    # spliced input
    spliced = pairs.base.clone()
    spliced[:, 0] = pairs.source[:, 0]
    assert torch.equal(full[:, 0] == 1, deep.model(spliced)[:, -1].argmax(-1) == pairs.labels[:, 0])


def test_pairs_are_different_correct_and_balanced(plant: planted.Planted) -> None:
    subject = plant.subject
    pairs = draw(subject, choose_variable(subject.task, "rank of a"), 200, 0)
    keys = {tuple(row) for row in torch.cat((pairs.base, pairs.source), 1).tolist()}
    assert len(keys) == 200
    assert pairs.changed.any(-1).double().mean() >= 0.5
    for base, source, label in zip(
        pairs.base.tolist(), pairs.source.tolist(), pairs.labels.tolist(), strict=True
    ):
        assert label == subject.task.brute_force([source[0], *base[1:]])[-1]


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        (
            {"hook": "blocks.0.hook_resid_pree"},
            UnknownNameError,
            "did you mean 'blocks.0.hook_resid_pre'",
        ),
        ({"hook": "hook_resid_prex"}, UnknownNameError, "did you mean 'blocks.0.hook_resid_pre'"),
        ({"variable": "rank of c"}, UnknownNameError, "did you mean 'rank of"),
        (
            {"dimensions": (9,)},
            ParameterError,
            "dimension 9 is above the width 8 of blocks.0.hook_resid_pre",
        ),
        ({"pos": 7}, ParameterError, "pos=7: the inputs have positions 0 to 1"),
        ({"hook": "blocks.0.attn.hook_pattern"}, ParameterError, "expected an activation vector"),
    ],
)
def test_bad_input_is_one_clear_line(
    deep: Subject, settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        DAS(**{**SMALL, "only_correct": False, "steps": 2, **settings}).run(deep)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_few_pairs_are_counted() -> None:
    task = TASKS["comparison"](n=3)
    model = HookedTransformer(ModelConfig(d_model=8, n_heads=2, n_ctx=2, d_vocab=3, d_vocab_out=2))
    with pytest.raises(
        DataError, match=r"of 206 pairs for the variable rank of a .* of 8240 drawn 8240 have"
    ):
        DAS(pairs=200, held_out=6, only_correct=False).run(Subject(model, task))


def test_other_models_are_declined(deep: Subject) -> None:
    class Foreign(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks, self.hook_dict, self.weight = (), {}, nn.Parameter(torch.zeros(1))

    with pytest.raises(NotApplicableError, match="cannot resume"):
        DAS().run(Subject(Foreign(), deep.task))


def test_model_and_random_state_are_left_as_they_were(deep: Subject) -> None:
    before, state = (
        {name: value.clone() for name, value in deep.model.state_dict().items()},
        torch.random.get_rng_state(),
    )
    deep.model.train()
    DAS(**{**SMALL, "steps": 2, "only_correct": False, "null_samples": 2}).run(deep)
    assert deep.model.training
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(
        torch.equal(before[name], value) and value.grad is None
        for name, value in deep.model.state_dict().items()
    )
    assert all(parameter.requires_grad for parameter in deep.model.parameters())
    assert not any(module._forward_hooks for module in deep.model.modules())
