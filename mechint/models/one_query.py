"""Attention of examples that all ask with the same row, as at the "=" of arithmetic, on a CPU.

A key's score then depends on the key's row alone. With w = exp(score), an example's head reads
Σ w v / Σ w over its keys: sums of rows that are looked up, which PyTorch's `embedding_bag` adds up
without a copy of them. Its gradient adds examples up by row in the same way. In shapes: U rows that
blocks are given, B batch.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from mechint.config import ModelConfig
from mechint.models.rows import BlockRows, KeyBags

SPREAD = 60.0
"""Scores of one head that lie further apart would underflow together: exp(-60) is 1e-26."""


def serves(config: ModelConfig, x: Float[Tensor, "*rows d_model"], rows: BlockRows) -> bool:
    """Whether attention of rows x may go this way, if `key_weights` finds it can."""
    return (
        rows.bags is not None
        and config.attention_rate == 1
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
    )


@torch.no_grad()
def key_weights(
    q: Float[Tensor, "*model 1 head d_head"], k: Float[Tensor, "*model U head d_head"], scale: float
) -> Float[Tensor, "*model U head"] | None:
    """exp of every row's score as a key, the largest 1; None where some would be lost beside it.

    >>> key_weights(torch.ones(1, 1, 2), torch.tensor([[[0.0, 0]], [[2, 2]]]), scale=4.0)
    tensor([[0.3679],
            [1.0000]])
    """
    scores = (q * k).sum(-1) / scale
    scores = scores - scores.amax(-2, keepdim=True)
    return scores.exp() if float(scores.min()) > -SPREAD else None


def weighted_means(
    weights: Float[Tensor, "*model U head"], v: Float[Tensor, "*model U head d_head"], bags: KeyBags
) -> tuple[Float[Tensor, "*model B head d_head"], Float[Tensor, "*model B head 1"]]:
    """The mean of every example's values by the weights of its keys, and their total weight."""
    *every, n_heads, d_head = v.shape
    both = torch.cat([(weights.unsqueeze(-1) * v).flatten(-2), weights], -1)
    sums = bags.by_example(both).view(*every[:-1], -1, n_heads * (d_head + 1))
    z, totals = sums.split([n_heads * d_head, n_heads], -1)
    totals = totals.unsqueeze(-1)
    return z.unflatten(-1, (n_heads, d_head)) / totals, totals


def weighted_means_gradients(
    weights: Float[Tensor, "*model U head"],
    v: Float[Tensor, "*model U head d_head"],
    z: Float[Tensor, "*model B head d_head"],
    totals: Float[Tensor, "*model B head 1"],
    grad: Float[Tensor, "*model B head d_head"],
    bags: KeyBags,
) -> tuple[Float[Tensor, "*model U head"], Float[Tensor, "*model U head d_head"]]:
    """The gradients of `weighted_means` for scores and values, from that for its means z."""
    *every, n_heads, d_head = z.shape
    both = grad.new_empty(*every, n_heads * (d_head + 1))
    to_sums, to_totals = both.split([n_heads * d_head, n_heads], -1)
    to_sums = to_sums.unflatten(-1, (n_heads, d_head))
    torch.div(grad, totals, out=to_sums)
    torch.sum(to_sums * z, -1, out=to_totals)
    sums = bags.by_row(both).view(*v.shape[:-2], -1)
    to_weighted, from_totals = sums.split([n_heads * d_head, n_heads], -1)
    to_weighted = to_weighted.unflatten(-1, (n_heads, d_head))
    to_weights = (to_weighted * v).sum(-1) - from_totals
    return weights * to_weights, weights.unsqueeze(-1) * to_weighted


class WeightedMeans(torch.autograd.Function):
    """`weighted_means` as a function of queries and keys, too, whose `key_weights` are given.
    Differentiable once, and not by torch.func, which dense forwards go through.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, weights: Tensor, bags: KeyBags, scale: float
    ) -> Float[Tensor, "*model B head d_head"]:
        z, totals = weighted_means(weights, v, bags)
        ctx.save_for_backward(q, k, v, weights, z, totals)
        ctx.bags, ctx.scale = bags, scale
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, z, totals = ctx.saved_tensors
        to_scores, to_v = weighted_means_gradients(weights, v, z, totals, grad, ctx.bags)
        return *score_gradients(q, k, to_scores, ctx.scale), to_v, None, None, None


def score_gradients(
    q: Float[Tensor, "*model 1 head d_head"],
    k: Float[Tensor, "*model U head d_head"],
    grad: Float[Tensor, "*model U head"],
    scale: float,
) -> tuple[Float[Tensor, "*model 1 head d_head"], Float[Tensor, "*model U head d_head"]]:
    """The gradients of the query and the keys, from those of their scores."""
    grad = (grad / scale).unsqueeze(-1)
    return (grad * k).sum(-3, keepdim=True), grad * q
