"""Weights that stand to the left of what they act on, as in the progress-measures and the pizza
code, turned round.

embed.W_E (d_model, d_vocab), W_Q, W_K, W_V (head, d_head, d_model), W_O (d_model, head · d_head),
W_in (d_mlp, d_model), W_out (d_model, d_mlp); the unembedding stands on the right already. Neither
project has biases in attention and unembedding, or layer norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mechint.config import ModelConfig
from mechint.errors import CheckpointError

ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}


def is_left_facing(state: Mapping[str, Tensor] | None) -> bool:
    """Whether a state dict is of this kind; its mark is an output matrix of attention that is not
    split into heads.
    """
    return (
        state is not None
        and {"embed.W_E", "unembed.W_U"} <= set(state)
        and state.get("blocks.0.attn.W_O", torch.empty(0)).dim() == 2
    )


def turn_round(
    path: Path, state: Mapping[str, Tensor], activation: str, **settings: Any
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Configuration and weights in mechint's shapes; `settings` are fields of ModelConfig that the
    weights do not show.

    Raises:
        CheckpointError: a parameter is missing or not known, or the activation function is not
            served.
    """
    if activation.lower() not in ACTIVATIONS:
        raise CheckpointError(
            f"{path}: activation function {activation!r}: expected {' or '.join(ACTIVATIONS)}"
        )
    n_layers = len({name.split(".")[1] for name in state if name.startswith("blocks.")})
    weights = {"embed.W_E": state["embed.W_E"].T, "unembed.W_U": state["unembed.W_U"]}
    zeros = state["embed.W_E"].new_zeros
    used = {"embed.W_E", "unembed.W_U", "pos_embed.W_pos"}
    try:
        weights["pos_embed.W_pos"] = state["pos_embed.W_pos"]
        (d_model, d_vocab), (n_ctx, _) = state["embed.W_E"].shape, state["pos_embed.W_pos"].shape
        n_heads, d_head, _ = state["blocks.0.attn.W_K"].shape
        d_mlp, d_vocab_out = state["blocks.0.mlp.W_in"].shape[0], state["unembed.W_U"].shape[1]
        for layer in range(n_layers):
            block = f"blocks.{layer}."
            weights |= {
                f"{block}attn.W_{which}": state[f"{block}attn.W_{which}"].transpose(1, 2)
                for which in "QKV"
            }
            weights[f"{block}attn.W_O"] = state[f"{block}attn.W_O"].T.reshape(
                n_heads, d_head, d_model
            )
            weights |= {
                f"{block}mlp.{name}": state[f"{block}mlp.{name}"].T for name in ("W_in", "W_out")
            }
            weights |= {
                f"{block}mlp.{name}": state[f"{block}mlp.{name}"] for name in ("b_in", "b_out")
            }
            weights |= {f"{block}attn.b_{which}": zeros(n_heads, d_head) for which in "QKV"} | {
                f"{block}attn.b_O": zeros(d_model)
            }
            used |= {f"{block}attn.{name}" for name in ("W_Q", "W_K", "W_V", "W_O", "mask")}
            used |= {f"{block}mlp.{name}" for name in ("W_in", "W_out", "b_in", "b_out")}
    except (KeyError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"{path}: left-facing weights, but damaged or incomplete: {error}"
        ) from error
    if set(state) - used:
        raise CheckpointError(
            f"{path}: left-facing weights with {', '.join(sorted(set(state) - used)[:4])}, "
            "which no model of that family here has"
        )
    weights["unembed.b_U"] = zeros(d_vocab_out)
    shape = {
        "n_layers": n_layers,
        "d_model": d_model,
        "n_heads": n_heads,
        "d_head": d_head,
        "d_mlp": d_mlp,
        "n_ctx": n_ctx,
    }
    config = ModelConfig(
        **shape,
        d_vocab=d_vocab,
        d_vocab_out=d_vocab_out,
        act_fn=ACTIVATIONS[activation.lower()],
        **settings,
    )
    return config, weights
