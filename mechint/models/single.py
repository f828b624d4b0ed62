"""A single model in training: its forward and its gradient, without autograd.

A step of a small model is some hundred short operations, and autograd's notes on each view, sum and
copy between them cost as much as the arithmetic. Here the forward is the arithmetic alone and its
gradient is written out (`mechint.models.single_pieces`): the operations that autograd would call,
in its order, so the bits are those of `Forward`, against which `tests/models/test_single.py` holds
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.products import repeated_shapes
from mechint.models.rows import BlockRows, Layout
from mechint.models.single_attention import attention
from mechint.models.single_pieces import Gradient, Named, linear, mlp, named, norm, picked


def serves(p: Mapping[str, Tensor], config: ModelConfig, layout: Layout) -> bool:
    """Whether `logits` computes what `Forward.logits` would, to the bit: of a lone model in stacked
    parameters `p` on a CPU. Weights of heads of one dimension lie in memory another way.
    """
    embedding = p["embed.W_E"]
    return (
        layout.repeated
        and layout.blocks is not None
        and layout.reads is None
        and embedding.dim() == 3
        and len(embedding) == 1
        and embedding.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and config.attention_rate == 1
        and (config.d_head or 0) > 1
        and config.read_layers is None
    )


@torch.no_grad()
@repeated_shapes(True)
def logits(
    p: Named, config: ModelConfig, layout: Layout
) -> tuple[Float[Tensor, "row d_vocab_out"], Callable[[Tensor], Named]]:
    """Logits of the rows that `layout` reads, from one model's parameters without a model axis, and
    the function from their gradient to those of all parameters by name, which can be called once.
    """
    x, from_embedding = embed(p, layout)
    ways: list[Gradient] = []
    for index in range(config.depth):
        assert layout.blocks is not None
        weights = f"blocks.{index % config.n_layers}"
        x, way = block(p, weights, config, x, layout.blocks[index])
        ways.append(way)
    x, way = norm(p, "ln_final", config, x)
    ways.append(way)
    y, from_unembedding = linear(x, p["unembed.W_U"], p.get("unembed.b_U"))

    @torch.no_grad()
    def gradient(grad: Tensor) -> Named:
        grad, to_weight, to_bias = from_unembedding(grad)
        to = named({"unembed.W_U": to_weight, "unembed.b_U": to_bias})
        while ways:  # what a block kept is let go of behind it
            grad, found = ways.pop()(grad)
            for name, each in found.items():
                to[name] = to[name] + each if name in to else each
        return {**to, **from_embedding(grad)}

    return y, gradient


def embed(p: Named, layout: Layout) -> tuple[Tensor, Callable[[Tensor], Named]]:
    """The layout's rows (rows, d_model)."""
    tokens, from_tokens = picked(p["embed.W_E"], layout.tokens.flatten())
    positions, from_positions = picked(p["pos_embed.W_pos"], layout.positions.flatten())

    def gradient(grad: Tensor) -> Named:
        return {"embed.W_E": from_tokens(grad), "pos_embed.W_pos": from_positions(grad)}

    return tokens.add_(positions), gradient


def block(
    p: Named, weights: str, config: ModelConfig, x: Tensor, rows: BlockRows
) -> tuple[Tensor, Gradient]:
    """x (rows, d_model) with what attention and MLP add, (N, d_model)."""
    normed, from_norm1 = norm(p, f"{weights}.ln1", config, x)
    y, from_attention = attention(p, f"{weights}.attn", config, normed, rows)
    past, from_past = picked(x, None if rows.residual is None else rows.residual[0])
    y.add_(past)
    if not config.attn_only:
        normed, from_norm2 = norm(p, f"{weights}.ln2", config, y)
        out, from_mlp = mlp(p, f"{weights}.mlp", config.act_fn, normed)
        y = out.add_(y)

    def gradient(grad: Tensor) -> tuple[Tensor, Named]:
        to: Named = {}
        if not config.attn_only:
            to_normed, to_mlp = from_mlp(grad)
            to_middle, to_norm = from_norm2(to_normed)
            grad = to_middle.add_(grad)
            to = {**to_mlp, **to_norm}
        to_past = from_past(grad)
        normed = config.normalization_type is not None
        to_normed, to_attention = from_attention(grad, None if normed else to_past)
        to_x, to_norm = from_norm1(to_normed)
        return to_x.add_(to_past) if normed else to_x, {**to, **to_attention, **to_norm}

    return y, gradient
