"""Everyday calls of TransformerLens on a model of ours, with TransformerLens's own functions."""

from __future__ import annotations

import copy

import pytest
import torch
from transformer_lens import patching

import tasks
from mechint.config import ModelConfig
from mechint.errors import DataError, ParameterError
from mechint.models.transformer import HookedTransformer
from mechint.subject import Subject

SIZES = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_mlp": 20, "n_ctx": 5}
TOKENS = torch.tensor([[0, 3, 1, 6, 2], [5, 5, 2, 0, 1]])


def made(**changes: object) -> HookedTransformer:
    config = {**SIZES, "d_vocab": 7, "d_vocab_out": 7, "normalization_type": "LN", **changes}
    return HookedTransformer(ModelConfig.from_dict(config), seed=1).eval()


def test_hooks_with_a_return_type() -> None:
    model = made()
    hook = ("blocks.0.hook_mlp_out", lambda value, hook: torch.zeros_like(value))
    zeroed = model.run_with_hooks(TOKENS, return_type="loss", fwd_hooks=[hook])
    model.add_hook(*hook)
    assert torch.equal(model(TOKENS, return_type="loss"), zeroed)
    model.reset_hooks()
    assert not torch.equal(model(TOKENS, return_type="loss"), zeroed)


def test_return_types_that_there_are_not_are_refused() -> None:
    with pytest.raises(ParameterError, match="return_type='loss_'"):
        made()(TOKENS, return_type="loss_")
    with pytest.raises(ParameterError, match="no class is the next token"):
        made(d_vocab_out=5)(TOKENS, return_type="loss")


def test_what_each_head_writes_is_cached_when_asked_for() -> None:
    model = made()
    assert not model.cfg.use_attn_result and ("result", 0) not in model.run_with_cache(TOKENS)[1]
    assert isinstance(model.run_with_cache(TOKENS, return_cache_object=False)[1], dict)
    model.set_use_attn_result(True)
    _, cache = model.run_with_cache(TOKENS)
    assert model.cfg.use_attn_result and cache["result", 0].shape == (2, 5, 3, 12)
    assert torch.allclose(cache["result", 0].sum(2) + model.b_O[0], cache["attn_out", 0], atol=1e-6)


def test_configuration_weights_and_biases() -> None:
    model, plain = made(), made(use_bias=False)
    cfg = copy.deepcopy(model).cfg
    assert cfg.device == torch.device("cpu") and cfg.n_key_value_heads is None
    assert cfg.attn_scale == 2.0 and cfg.n_params == sum(w.numel() for w in model.parameters())
    shapes = {"b_Q": (2, 3, 4), "b_O": (2, 12), "b_in": (2, 20), "b_out": (2, 12), "b_U": (7,)}
    for name, shape in shapes.items():
        with torch.no_grad():
            model.get_parameter("unembed.b_U").fill_(1.0)
        assert getattr(model, name).shape == shape
        assert not getattr(plain, name).any() and getattr(plain, name).shape == shape
    assert bool(model.b_U.all()) and not hasattr(made(attn_only=True), "b_in")


def test_final_norm_and_unembedding_are_callable() -> None:
    model = made()
    logits, cache = model.run_with_cache(TOKENS)
    assert torch.allclose(model.unembed(model.ln_final(cache["resid_post", 1])), logits, atol=1e-6)
    assert torch.equal(model.embed(TOKENS), cache["hook_embed"])


@pytest.mark.parametrize(
    ("patch", "hook", "shape"),
    [
        (patching.get_act_patch_resid_pre, "blocks.{}.hook_resid_pre", (2, 5)),
        (patching.get_act_patch_mlp_out, "blocks.{}.hook_mlp_out", (2, 5)),
        (patching.get_act_patch_attn_head_out_all_pos, "blocks.{}.attn.hook_z", (2, 3)),
        (patching.get_act_patch_attn_head_pattern_all_pos, "blocks.{}.attn.hook_pattern", (2, 3)),
    ],
)
def test_transformer_lens_patches_activations(patch, hook: str, shape: tuple[int, int]) -> None:
    model = made()
    corrupted = TOKENS.roll(1, 0)
    _, clean = model.run_with_cache(TOKENS)

    def metric(logits: torch.Tensor) -> torch.Tensor:
        return logits[0, -1, 2] - logits[0, -1, 4]

    found = patch(model, corrupted, clean, metric)
    assert found.shape == shape
    layer, unit = 1, 1

    def by_hand(value: torch.Tensor, hook: object) -> torch.Tensor:
        value, name = value.clone(), f"blocks.{layer}." + hook_name
        index = (slice(None), unit) if "pattern" in name else (slice(None), slice(None), unit)
        index = index if "attn" in name else (slice(None), unit)
        value[index] = clean[name][index]
        return value

    hook_name = hook.partition("{}.")[2]
    expected = metric(model.run_with_hooks(corrupted, fwd_hooks=[(hook.format(layer), by_hand)]))
    assert torch.allclose(found[layer, unit], expected, atol=1e-6)


def test_text_where_there_is_a_vocabulary() -> None:
    task = tasks.make("balanced-brackets", length=6)
    model = HookedTransformer(ModelConfig.for_task(task, d_model=8, n_heads=2))
    with pytest.raises(ParameterError, match="has no vocabulary"):
        model.to_tokens("( )")
    subject = Subject(model, task)
    tokens = subject.data.tokens[:2]
    texts = [task.vocabulary.decode(row) for row in tokens]
    assert torch.equal(model.to_tokens(texts), tokens) and model.to_string(tokens) == texts
    assert torch.equal(model(texts), model(tokens))
    words = model.to_str_tokens(texts[0])
    assert [model.to_single_token(word) for word in words] == tokens[0].tolist()
    assert model.to_single_str_token(int(tokens[0, 0])) == words[0]
    with pytest.raises(DataError, match="is not in the vocabulary"):
        model.to_tokens("?")
