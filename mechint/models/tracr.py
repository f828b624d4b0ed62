"""Compiled programs of Tracr as HookedTransformers, through TransformerLens's loader."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mechint.config import ModelConfig


def from_tracr(model: Any) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Configuration and weights of a compiled program.

    model: Tracr's AssembledTransformerModel (of ``compile_rasp_to_model``), with a categorical
    output; anything with its `params`, `model_config`, `residual_labels` and `output_encoder` will
    do. Neither Tracr nor JAX is imported. The logits are 1 for the answer and 0 for other classes.
    """
    from transformer_lens.utilities import tracr

    shape = tracr.make_tracr_transformer_bridge_config(model)
    state = tracr.make_tracr_transformer_bridge_state_dict(model)
    config = ModelConfig(
        n_layers=shape.n_layers,
        d_model=shape.d_model,
        n_heads=shape.n_heads,
        d_head=shape.d_head,
        d_mlp=shape.d_mlp,
        n_ctx=shape.n_ctx,
        d_vocab=shape.d_vocab,
        d_vocab_out=shape.d_vocab_out,
        act_fn="relu",
        attention_dir=shape.attention_dir,
        normalization_type=None,
    )
    return config, _renamed(state, config)


def _renamed(state: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Native names, as torch's Linear keeps weights → HookedTransformer's."""
    heads = config.n_heads
    weights = {
        "embed.W_E": state["tok_embed.weight"],
        "pos_embed.W_pos": state["pos.weight"],
        "unembed.W_U": state["head.weight"].T,
        "unembed.b_U": state["head.weight"].new_zeros(config.d_vocab_out),
    }
    for layer in range(config.n_layers):
        at, to = f"layers.{layer}", f"blocks.{layer}"
        for letter in "qkv":
            weight = state[f"{at}.attn.{letter}.weight"].T.unflatten(1, (heads, -1))
            weights[f"{to}.attn.W_{letter.upper()}"] = weight.transpose(0, 1)
            bias = state[f"{at}.attn.{letter}.bias"]
            weights[f"{to}.attn.b_{letter.upper()}"] = bias.unflatten(0, (heads, -1))
        weights[f"{to}.attn.W_O"] = state[f"{at}.attn.o.weight"].T.unflatten(0, (heads, -1))
        weights[f"{to}.attn.b_O"] = state[f"{at}.attn.o.bias"]
        for part in ("in", "out"):
            weights[f"{to}.mlp.W_{part}"] = state[f"{at}.mlp.fc_{part}.weight"].T
            weights[f"{to}.mlp.b_{part}"] = state[f"{at}.mlp.fc_{part}.bias"]
    return weights
