"""Weights of all blocks side by side: the values and shapes of TransformerLens."""

from __future__ import annotations

import pytest
import torch

import mechint
from mechint.config import ModelConfig
from mechint.models import build
from mechint.models.parameters import HEAD_WEIGHTS, ov_circuit, qk_circuit
from mechint.models.protocol import Capability, capabilities
from tests.conformance.test_models import kinds, made

SIZES = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 3, "d_vocab": 5, "d_vocab_out": 5}


def test_stacks_are_the_blocks_own_weights() -> None:
    model = build(ModelConfig(**SIZES), seed=1)
    for name in (*HEAD_WEIGHTS, "W_in", "W_out"):
        part = "attn" if name in HEAD_WEIGHTS else "mlp"
        for layer, weight in enumerate(getattr(model, name)):
            assert torch.equal(weight, model.weights()[f"blocks.{layer}.{part}.{name}"])
    assert model.W_O.shape == (2, 2, 3, 8) and model.W_in.shape == (2, 8, 32)


def test_a_block_passed_through_twice_is_there_once_and_attention_alone_has_no_neurons() -> None:
    model = build(ModelConfig(**SIZES, n_loops=3, attn_only=True))
    assert model.W_Q.shape[0] == 2 and len(model.blocks) == 6
    assert not hasattr(model, "W_in") and not hasattr(model, "W_out")


@pytest.mark.parametrize("kind", kinds("native bridge", "gpt2", "llama", "gpt_neox", "olmo"))
def test_circuits_are_those_of_transformer_lens(kind: str) -> None:
    model = made(kind)
    assert torch.allclose(qk_circuit(model).AB, model.QK.AB, atol=1e-6)
    assert torch.allclose(ov_circuit(model).AB, model.OV.AB, atol=1e-6)
    assert torch.allclose(ov_circuit(model).S, model.OV.S, atol=1e-6)


def test_a_wrapped_module_shows_the_heads_it_is_told_of() -> None:
    class Attends(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = torch.nn.Parameter(torch.randn(4, 1, 2, 8, 3))

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.heads.sum() * tokens[..., None]

    module = Attends()
    places = {name: (lambda it, i=i: it.heads[i]) for i, name in enumerate(HEAD_WEIGHTS)}
    whole = mechint.wrap(module, {}, weights=places)
    assert Capability.HEAD_WEIGHTS in capabilities(whole)
    assert torch.equal(whole.W_K, module.heads[1])
    some = mechint.wrap(module, {}, weights={"W_Q": places["W_Q"]})
    assert Capability.HEAD_WEIGHTS not in capabilities(some) and some.W_O is None
