"""Everyday expressions of TransformerLens on mechint's model: the values of TransformerLens 3.9."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mechint.config import ModelConfig
from mechint.errors import ParameterError
from mechint.models.transformer import HookedTransformer
from tests.models import everyday

KNOWN = json.loads((Path(__file__).parents[1] / "fixtures" / "everyday.json").read_text())


def model_of(kind: str) -> HookedTransformer:
    config = ModelConfig(**{**everyday.SHARED, "normalization_type": kind})
    model = HookedTransformer(config)
    shapes = ((name, tuple(value.shape)) for name, value in model.named_parameters())
    model.load_state_dict(everyday.written(shapes))
    return model


@pytest.mark.parametrize(
    ("kind", "expression"), [(kind, one) for kind, values in KNOWN.items() for one in values]
)
def test_an_expression_has_the_value_of_transformer_lens(kind: str, expression: str) -> None:
    ours = everyday.summary(eval(expression, everyday.names(model_of(kind))))
    theirs = KNOWN[kind][expression]
    assert _same(ours, theirs), (ours, theirs)


def _same(ours: Any, theirs: Any) -> bool:
    if not isinstance(theirs, dict):
        return ours == theirs
    close = np.allclose(ours["numbers"], theirs["numbers"], rtol=2e-4, atol=2e-5)
    return ours["shape"] == theirs["shape"] and close


# --- norms that keep their weights ----------------------------------------------------------------
@pytest.fixture
def normed() -> dict[str, Any]:
    """A model whose norms have weights and biases far from 1 and 0, with a cache."""
    return everyday.names(model_of("LN"))


def layer_norm(model: Any, owner: str, x: Tensor) -> Tensor:
    norm = model.get_submodule(owner)
    return torch.nn.functional.layer_norm(x, x.shape[-1:], norm.w, norm.b, model.config.eps)


def test_attributions_add_up_to_the_logits(normed: dict[str, Any]) -> None:
    model, cache, right, wrong = (normed[name] for name in ("model", "cache", "right", "wrong"))
    logits = model(normed["tokens"])[:, -1]
    rows = torch.arange(3)
    difference = logits[rows, right] - logits[rows, wrong] - model.b_U[right] + model.b_U[wrong]
    direction = model.tokens_to_residual_directions(right)
    direction = direction - model.tokens_to_residual_directions(wrong)
    whole = cache.apply_ln_to_stack(cache["resid_post", -1][:, -1], layer=-1, pos_slice=-1)
    torch.testing.assert_close((whole * direction).sum(-1), difference, atol=1e-4, rtol=1e-4)
    for neurons in (False, True):
        parts = cache.get_full_resid_decomposition(expand_neurons=neurons, pos_slice=-1)
        attributed = cache.logit_attrs(parts, right, wrong, pos_slice=-1)
        torch.testing.assert_close(attributed.sum(0), difference, atol=1e-4, rtol=1e-4)
        projected = cache.get_full_resid_decomposition(
            expand_neurons=neurons, pos_slice=-1, apply_ln=True, project_output_onto=model.W_U
        )
        ours = (projected.sum(0) + model.b_U).detach()
        torch.testing.assert_close(ours, logits.detach(), atol=1e-4, rtol=1e-4)
    embeds = cache.decompose_resid(layer=-1, pos_slice=-1)
    one = cache.logit_attrs(embeds, right[1], wrong[1], pos_slice=-1, batch_slice=1).sum(0)
    torch.testing.assert_close(one, difference[1], atol=1e-4, rtol=1e-4)


def test_streams_pass_through_the_norm_that_reads_them(normed: dict[str, Any]) -> None:
    model, cache = normed["model"], normed["cache"]
    streams = cache.accumulated_resid(layer=2, apply_ln=True)
    assert torch.allclose(
        streams[-1], layer_norm(model, "blocks.2.ln1", cache["resid_pre", 2]), atol=1e-5
    )
    streams, labels = cache.accumulated_resid(
        layer=1, apply_ln=True, mlp_input=True, pos_slice=-1, return_labels=True
    )
    expected = layer_norm(model, "blocks.1.ln2", cache["resid_mid", 1])[:, -1]
    assert labels[-1] == "1_mid" and torch.allclose(streams[-1], expected, atol=1e-5)
    parts = cache.decompose_resid(layer=1, apply_ln=True, mlp_input=True)
    full = layer_norm(model, "blocks.1.ln2", cache["resid_mid", 1])
    assert torch.allclose(parts.sum(0), full, atol=1e-5)


def test_text_is_written_to_the_end_of_the_context() -> None:
    model = model_of("LNPre")
    tokens = torch.tensor([[1, 4], [0, 9]])
    greedy = model.generate(tokens, 4, do_sample=False)
    by_hand = tokens
    for _ in range(4):
        by_hand = torch.cat([by_hand, model(by_hand)[:, -1:].argmax(-1)], 1)
    assert torch.equal(greedy, by_hand)
    assert torch.equal(model.generate(tokens, 4, top_k=1), greedy)
    end = int(greedy[0, 3])
    ended = model.generate(tokens, 4, do_sample=False, eos_token_id=end)
    assert (ended[0, 3:] == end).all() and torch.equal(ended[:, :3], greedy[:, :3])
    with pytest.raises(ParameterError, match="at most n_ctx=6 together"):
        model.generate(tokens, 5)
    classes = HookedTransformer(ModelConfig(d_model=8, n_heads=2, d_vocab=5, d_vocab_out=4))
    with pytest.raises(ParameterError, match="no class is the next token"):
        classes.generate(tokens, 1)
