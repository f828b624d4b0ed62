"""The parameters of a transformer before training: names, shapes and initial values.

Apart from the module that has hooks, which training does not need.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from mechint.config import ModelConfig, has_bias, has_weight


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name → shape of every parameter, in TransformerLens's order."""
    d, heads, d_head, d_mlp = config.d_model, config.n_heads, config.d_head, config.d_mlp
    assert d_head is not None and d_mlp is not None  # filled in by ModelConfig
    shapes: dict[str, tuple[int, ...]] = {"embed.W_E": (config.d_vocab, d)}
    if config.embeds_positions:
        shapes["pos_embed.W_pos"] = (config.n_ctx, d)
    qkv_bias = config.use_bias if config.qkv_bias is None else config.qkv_bias
    for layer in range(config.n_layers):
        block: dict[str, tuple[int, ...]] = {
            f"attn.W_{which}": (heads, d, d_head) for which in "QKV"
        }
        block["attn.W_O"] = (heads, d_head, d)
        block |= {f"attn.b_{which}": (heads, d_head) for which in "QKV"} if qkv_bias else {}
        block |= {"attn.b_O": (d,)} if config.use_bias else {}
        if config.use_qk_norm:
            block |= {f"attn.{which}_norm.w": (d_head,) for which in "qk"}
        if not config.attn_only:
            block |= {"mlp.W_gate": (d, d_mlp)} if config.gated_mlp else {}
            block |= {"mlp.W_in": (d, d_mlp), "mlp.W_out": (d_mlp, d)}
            block |= {"mlp.b_in": (d_mlp,), "mlp.b_out": (d,)} if config.use_bias else {}
        for norm in ("ln1", "ln2") if not config.attn_only else ("ln1",):
            block |= _norm_shapes(config, norm)
        shapes |= {f"blocks.{layer}.{name}": shape for name, shape in block.items()}
    shapes |= _norm_shapes(config, "ln_final")
    shapes["unembed.W_U"] = (d, config.d_vocab_out)
    if config.use_bias:
        shapes["unembed.b_U"] = (config.d_vocab_out,)
    return shapes


def _norm_shapes(config: ModelConfig, name: str) -> dict[str, tuple[int, ...]]:
    kind = config.normalization_type
    weight = {f"{name}.w": (config.d_model,)} if has_weight(kind) else {}
    bias = {f"{name}.b": (config.d_model,)} if has_bias(kind) and config.use_bias else {}
    return weight | bias


def initialize(config: ModelConfig, seed: int | None) -> dict[str, Tensor]:
    """Initial parameters, float32 on the CPU; a function of config and seed alone, and of any
    values without a seed, where others are loaded in their place.
    """
    if seed is None:
        return {name: torch.empty(shape) for name, shape in parameter_shapes(config).items()}
    generator = torch.Generator().manual_seed(seed)
    return {
        name: _initial(config, name, shape, generator)
        for name, shape in parameter_shapes(config).items()
    }


def _initial(
    config: ModelConfig, name: str, shape: tuple[int, ...], generator: torch.Generator
) -> Tensor:
    kind = name.rpartition(".")[2]
    value = torch.zeros(shape, dtype=torch.float32, device="cpu")
    if kind == "w" or kind.startswith("b"):
        return value.fill_(kind == "w")
    if config.init_mode == "copy" and kind in ("W_V", "W_O"):
        return _copying(kind, shape)
    embedding = kind in ("W_E", "W_pos")
    fan_in = {"W_O": config.n_heads * (config.d_head or 0), "W_out": config.d_mlp}.get(
        kind, config.d_model
    )
    if embedding and config.embed_std is not None:
        std = config.embed_std
    elif config.initializer_range is not None:
        std = config.initializer_range
    elif config.init_mode == "torch" and not embedding:
        bound = 1 / math.sqrt(fan_in)
        return value.uniform_(-bound, bound, generator=generator)
    elif config.init_mode == "he":
        std = math.sqrt((1 if embedding else 2) / fan_in)
    else:
        std = {
            "gpt2": 0.8 / math.sqrt(config.d_model),
            "copy": 0.8 / math.sqrt(config.d_model),
            "d_model": 1 / math.sqrt(config.d_model),
            "normal": 0.02,
            "torch": 1.0,
        }[config.init_mode]
    return value.normal_(0, std, generator=generator)


def _copying(kind: str, shape: tuple[int, ...]) -> Tensor:
    """W_V or W_O that take each head's own slice of the stream, so that Σ_heads W_V W_O is the
    identity where the heads' widths add up to d_model.
    """
    eye = partial(torch.eye, dtype=torch.float32, device="cpu")
    if kind == "W_O":  # (head, d_head, d_model)
        return eye(shape[0] * shape[1], shape[2]).reshape(shape)
    heads, d_model, d_head = shape
    return eye(d_model, heads * d_head).reshape(d_model, heads, d_head).movedim(1, 0).clone()
