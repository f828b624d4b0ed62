"""The forward at one position per example: equal to the dense one, and honest about its limits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mechint.config import ModelConfig
from mechint.models.at_positions import AtPositions, forward_at, supports
from mechint.models.transformer import HookedTransformer


def model_of(**changes: object) -> HookedTransformer:
    config = {"d_model": 16, "n_heads": 2, "d_vocab": 9, "d_vocab_out": 8, "n_ctx": 5, **changes}
    return HookedTransformer(ModelConfig.from_dict(config), seed=1).double()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_layers": 2, "normalization_type": "LN"},
        {"n_layers": 3, "attention_dir": "bidirectional", "normalization_type": "LNPre"},
        {"n_layers": 2, "attn_only": True},
        {"n_layers": 1, "n_loops": 2, "attention_rate": 0.3},
    ],
)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 12), shared=st.booleans())
def test_it_equals_the_dense_forward(changes: dict, seed: int, n: int, shared: bool) -> None:
    model = model_of(**changes)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 9, (n, 5), generator=generator)
    positions = torch.randint(0, 5, (n,), generator=generator)
    positions = positions[:1].expand(n) if shared else positions
    names = [name for name in model.hook_dict if supports(model, [name])]
    assert f"blocks.{model.config.depth - 1}.hook_resid_post" in names
    logits, found = forward_at(model, tokens, positions, names)
    expected, cache = model.run_with_cache(tokens)
    examples = torch.arange(n)
    assert torch.allclose(logits, expected[examples, positions].detach(), atol=1e-10)
    for name in names:
        assert torch.allclose(found[name], cache[name][examples, positions].detach(), atol=1e-10)


def test_other_weights_take_the_place_of_the_models() -> None:
    model = model_of()
    tokens = torch.tensor([[1, 2, 3], [3, 2, 1]])
    other = torch.randn_like(model.W_E)
    logits, _ = forward_at(model, tokens, -1, weights={"embed.W_E": other})
    with torch.no_grad():
        model.W_E.copy_(other)
    assert torch.allclose(logits, model(tokens)[:, 2].detach(), atol=1e-10)


@pytest.mark.parametrize("positions", [-1, torch.tensor([2, 0])])
def test_forwards_with_other_weights_are_those_of_models_that_have_them(
    positions: int | torch.Tensor,
) -> None:
    model, name = model_of(n_layers=2, normalization_type="LN"), "blocks.1.hook_resid_post"
    tokens = torch.tensor([[1, 2, 3], [3, 2, 1]])
    several = AtPositions(model, tokens, positions)
    before = several.forward([name])
    for seed in (2, 3):
        other = torch.randn(model.W_E.shape, generator=torch.Generator().manual_seed(seed)).double()
        changed = model_of(n_layers=2, normalization_type="LN")
        with torch.no_grad():
            changed.W_E.copy_(other)
        logits, found = several.forward([name], {"embed.W_E": other})
        expected, theirs = forward_at(changed, tokens, positions, [name])
        assert torch.equal(logits, expected) and torch.equal(found[name], theirs[name])
    again = several.forward([name])
    assert torch.equal(again[0], before[0]) and torch.equal(again[1][name], before[1][name])


@pytest.mark.parametrize("shape", [{"n_layers": 1}, {"n_layers": 2, "normalization_type": "LN"}])
@pytest.mark.parametrize("positions", [-1, torch.tensor([2, 0, 1])])
def test_logits_of_several_models_at_once_are_those_of_each(
    shape: dict[str, object], positions: int | torch.Tensor
) -> None:
    model = model_of(**shape)
    several = AtPositions(model, torch.tensor([[1, 2, 3], [3, 2, 1], [1, 1, 1]]), positions)
    others = torch.randn(4, *model.W_E.shape, generator=torch.Generator().manual_seed(1)).double()
    found = several.logits_each({"embed.W_E": others})
    for other, logits in zip(others, found, strict=True):
        expected, _ = several.forward(weights={"embed.W_E": other})
        assert torch.allclose(logits, expected, atol=1e-12)


def test_it_refuses_what_it_cannot_give() -> None:
    model = model_of()
    assert supports(model, ["blocks.0.mlp.hook_post"])
    assert not supports(model, ["blocks.0.attn.hook_pattern"])  # no row per position
    assert not supports(model, ["blocks.7.hook_resid_post"])
    model.hook_dict["hook_embed"].add_hook(lambda tensor, hook: 2 * tensor)
    assert not supports(model)  # it would pass by the hook
    model.reset_hooks()
    assert supports(model)
    handle = model.register_forward_pre_hook(lambda *_: None)
    assert not supports(model)
    handle.remove()


def test_logits_are_the_same_to_the_bit_whether_activations_are_kept_or_not():
    model = HookedTransformer(ModelConfig(d_model=16, n_heads=2, d_vocab=9, d_vocab_out=8), seed=0)
    pairs = torch.cartesian_prod(torch.arange(8), torch.arange(8))
    at = AtPositions(model, torch.cat([pairs, torch.full((64, 1), 8)], 1), 2)
    names = ["blocks.0.hook_attn_out", "blocks.0.mlp.hook_post"]
    assert at.rows.layout.blocks is not None and at.rows.layout.blocks[0].bags is not None
    assert torch.equal(at.forward()[0], at.forward(names)[0])
