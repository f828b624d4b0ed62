"""Weights of the progress-measures and the pizza code, which stand to the left of what they act on,
transposed into TransformerLens's shapes.

embed.W_E (d_model, d_vocab), W_Q, W_K, W_V (head, d_head, d_model), W_O (d_model, head · d_head),
W_in (d_mlp, d_model), W_out (d_model, d_mlp); the unembedding stands on the right already. Neither
project has biases in attention and unembedding, or layer norm. Layers are ``blocks.{l}``, or
``attn_blocks.{l}`` in models of attention alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from mechint.checkpoints.reader import StateDict, layer_count, matrix
from mechint.config import ModelConfig
from mechint.errors import CheckpointError

ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}
PREFIXES = ("blocks.", "attn_blocks.")


def is_transposed(state: StateDict | None) -> bool:
    """Whether a state dict is of this kind; its mark is an output matrix of attention that is not
    split into heads.
    """
    return (
        state is not None
        and {"embed.W_E", "unembed.W_U"} <= set(state)
        and any(state.get(f"{prefix}0.attn.W_O", torch.empty(0)).dim() == 2 for prefix in PREFIXES)
    )


def transpose_weights(
    path: Path, state: StateDict, activation: str, **settings: Any
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
    prefix = next(prefix for prefix in PREFIXES if f"{prefix}0.attn.W_O" in state)
    attn_only = f"{prefix}0.mlp.W_in" not in state
    try:
        shape = _shape(state, prefix, attn_only)
        weights = {
            "embed.W_E": matrix(state, "embed.W_E").T,
            "pos_embed.W_pos": state["pos_embed.W_pos"],
            "unembed.W_U": state["unembed.W_U"],
            "unembed.b_U": state["unembed.W_U"].new_zeros(shape["d_vocab_out"]),
        }
        used = {"embed.W_E", "unembed.W_U", "pos_embed.W_pos"}
        for layer in range(shape["n_layers"]):
            block, names = _block(state, f"{prefix}{layer}.", attn_only)
            weights |= {f"blocks.{layer}.{name}": value for name, value in block.items()}
            used |= names
    except (KeyError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"{path}: transposed weights, but damaged or incomplete: {error}"
        ) from error
    if set(state) - used:
        raise CheckpointError(
            f"{path}: transposed weights with {', '.join(sorted(set(state) - used)[:4])}, "
            "which no model of that family here has"
        )
    given = {**shape, "act_fn": ACTIVATIONS[activation.lower()], **settings}
    return ModelConfig(**given), weights


def _shape(state: StateDict, prefix: str, attn_only: bool) -> dict[str, Any]:
    (d_model, d_vocab), (n_ctx, _) = state["embed.W_E"].shape, state["pos_embed.W_pos"].shape
    n_heads, d_head, _ = state[f"{prefix}0.attn.W_K"].shape
    return {
        "n_layers": layer_count(state, prefix),
        "d_model": d_model,
        "n_heads": n_heads,
        "d_head": d_head,
        "d_mlp": None if attn_only else state[f"{prefix}0.mlp.W_in"].shape[0],
        "n_ctx": n_ctx,
        "d_vocab": d_vocab,
        "d_vocab_out": state["unembed.W_U"].shape[1],
        "attn_only": attn_only,
    }


def _block(state: StateDict, block: str, attn_only: bool) -> tuple[dict[str, Tensor], set[str]]:
    """One layer's weights by mechint's names, and the names in the file that they came from."""
    n_heads, d_head, d_model = state[f"{block}attn.W_K"].shape
    zeros = state[f"{block}attn.W_K"].new_zeros
    weights = {
        f"attn.W_{which}": rearrange(
            state[f"{block}attn.W_{which}"], "head d_head d_model -> head d_model d_head"
        )
        for which in "QKV"
    }
    weights["attn.W_O"] = rearrange(
        matrix(state, f"{block}attn.W_O"),
        "d_model (head d_head) -> head d_head d_model",
        head=n_heads,
        d_head=d_head,
        d_model=d_model,
    )
    weights |= {f"attn.b_{which}": zeros(n_heads, d_head) for which in "QKV"}
    weights["attn.b_O"] = zeros(d_model)
    names = {f"{block}attn.{name}" for name in ("W_Q", "W_K", "W_V", "W_O", "mask")}
    if not attn_only:
        weights |= {
            f"mlp.{name}": matrix(state, f"{block}mlp.{name}").T for name in ("W_in", "W_out")
        }
        weights |= {f"mlp.{name}": state[f"{block}mlp.{name}"] for name in ("b_in", "b_out")}
        names |= {f"{block}mlp.{name}" for name in ("W_in", "W_out", "b_in", "b_out")}
    return weights, names


def activation_of(given: Mapping[str, Any], name: str) -> str:
    """The activation function that a configuration names; ReLU, both projects' own, otherwise."""
    value = given.get(name)
    return value if isinstance(value, str) else "relu"
