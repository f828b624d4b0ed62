"""The attention layer, one path per function: plain, hooked, and on selected rows.

`...` in shape comments stands for the model axis of stacked parameters; B batch, Q queries, T keys.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from mechint.config import ModelConfig
from mechint.models import one_query
from mechint.models.one_query import WeightedMeans, key_weights
from mechint.models.pieces import Hook, Parameters, heads, linear, no_hook
from mechint.models.rows import BlockRows, rows_of

FEW = 4
"""Up to so many (query, key) pairs per head, sums of products beat a batch of tiny matrix
products.
"""


def attend_dense(
    p: Parameters, weights: str, config: ModelConfig, x: Float[Tensor, "*batch pos d_model"]
) -> Float[Tensor, "*batch pos d_model"]:
    """Attention of every position, without a hook on its way: x (..., batch, pos, d_model),
    normed.
    """
    q, k, v = _project(p, weights, "QKV", x).split(p[f"{weights}.W_Q"].shape[-3], -2)
    pattern = _pattern(config, "", _scores(q, k), _causal_mask(config, x), no_hook)
    return _write(p, weights, _mix(pattern, v).flatten(-2))


def attend_hooked(
    p: Parameters,
    name: str,
    weights: str,
    config: ModelConfig,
    x: Float[Tensor, "*batch pos d_model"],
    hook: Hook,
) -> Float[Tensor, "*batch pos d_model"]:
    """Attention of every position, each step through the hook of `name`; the heads' results apart
    where the hook wants them.
    """
    q, k, v = (
        hook(f"{name}.hook_{letter.lower()}", _project(p, weights, letter, x)) for letter in "QKV"
    )
    pattern = _pattern(config, name, _scores(q, k), _causal_mask(config, x), hook)
    z = hook(f"{name}.hook_z", _mix(pattern, v))
    if not getattr(hook, "wants_result", False):
        return _write(p, weights, z.flatten(-2))
    each = torch.einsum("bqhd,hdm->bqhm", z, p[f"{weights}.W_O"])
    out = hook(f"{name}.hook_result", each).sum(-2)
    bias = p.get(f"{weights}.b_O")
    return out if bias is None else out + bias


def attend_rows(
    p: Parameters,
    name: str,
    weights: str,
    config: ModelConfig,
    x: Float[Tensor, "*rows d_model"],
    rows: BlockRows,
    hook: Hook,
) -> Float[Tensor, "*out d_model"]:
    """Attention of the rows that `rows` selects: x (..., rows, d_model) -> (..., N, d_model)."""
    stacked = p[f"{weights}.W_Q"].dim() == 4
    if one_query.serves(config, x, rows):
        z = _of_one_query(p, weights, config, x, rows, stacked)
        if z is not None:
            return _write(p, weights, z.flatten(-2))
    q, k, v = project_qkv(p, weights, x, rows, stacked)
    scores = _looked_up_scores(q, k, rows, stacked) if rows.table else _scores(q, k)
    mask = None if rows.mask is None else rows.mask.unsqueeze(-3)
    pattern = _pattern(config, name, scores, mask, hook)
    z = WeightedSum.apply(pattern, v) if has_few_pairs(pattern) else _mix(pattern, v)
    z = hook(f"{name}.hook_z", z).flatten(-2).flatten(-3, -2)
    return _write(p, weights, z if rows.out is None else rows_of(z, rows.out, stacked))


def _of_one_query(
    p: Parameters, weights: str, config: ModelConfig, x: Tensor, rows: BlockRows, stacked: bool
) -> Float[Tensor, "*batch head d_head"] | None:
    """z (..., B, head, d_head) of examples that ask with one row; None where `key_weights` are."""
    assert rows.bags is not None
    q, both = _project_apart(p, weights, x, rows, stacked)
    k, v = both.split(q.shape[-2], -2)
    found = key_weights(q, k, config.scale)
    if found is None:
        return None
    return WeightedMeans.apply(q, k, v, found, rows.bags, config.scale)


def attend_apart(
    p: Parameters,
    weights: str,
    config: ModelConfig,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
) -> Tensor:
    """What every head writes, (..., head, B, Q, d_model), when each head's q, k and v have inputs
    of their own, normed: queries (..., head, B, Q, d_model), keys and values (..., head, B, T,
    d_model); mask (B | 1, Q, T) is added to the scores. For plain parameters; without b_O.
    """

    def projected(x: Tensor, letter: str) -> Tensor:
        n_batch, n_rows = x.shape[-3:-1]
        y = torch.matmul(x.flatten(-3, -2), p[f"{weights}.W_{letter}"])
        bias = p.get(f"{weights}.b_{letter}")
        y = y if bias is None else y + bias.unsqueeze(-2)
        return y.unflatten(-2, (n_batch, n_rows))

    scores = torch.matmul(projected(queries, "Q"), projected(keys, "K").transpose(-2, -1))
    z = torch.matmul(_pattern(config, "", scores, mask, no_hook), projected(values, "V"))
    out = torch.matmul(z.flatten(-3, -2), p[f"{weights}.W_O"])
    return out.unflatten(-2, z.shape[-3:-1])


def project_qkv(
    p: Parameters, weights: str, x: Float[Tensor, "*rows d_model"], rows: BlockRows, stacked: bool
) -> list[Float[Tensor, "... head d_head"]]:
    """q, k and v of rows x as `_scores` and `_mix` take them: one product and one look-up for all
    that share their rows.
    """

    def as_keys(x: Tensor) -> Tensor:
        if rows.in_order:
            return x.view(*rows.keys.shape, *x.shape[-2:])
        return rows_of(x, rows.keys, stacked)

    n_heads = p[f"{weights}.W_Q"].shape[-3]
    if rows.query_is_key:
        return list(as_keys(_project(p, weights, "QKV", x)).split(n_heads, -2))
    q, both = _project_apart(p, weights, x, rows, stacked)
    if rows.table:
        k, v = both.split(n_heads, -2)
        return [q, k, as_keys(v)]
    return [rows_of(q, rows.queries, stacked), *as_keys(both).split(n_heads, -2)]


def _project_apart(
    p: Parameters, weights: str, x: Tensor, rows: BlockRows, stacked: bool
) -> tuple[Tensor, Tensor]:
    """Queries of the rows of x that ask, and keys and values of all rows side by side."""
    asking = x if rows.query_rows is None else rows_of(x, rows.query_rows, stacked)
    return _project(p, weights, "Q", asking), _project(p, weights, "KV", x)


def _project(p: Parameters, weights: str, names: str, x: Tensor) -> Tensor:
    """Queries, keys and values, those in `names`, of x (..., *, d_model) in one product -> (..., *,
    len(names) * head, d_head).
    """
    weight = torch.cat([p[f"{weights}.W_{name}"] for name in names], -3)
    bias = None
    if f"{weights}.b_Q" in p:
        bias = torch.cat([p[f"{weights}.b_{name}"] for name in names], -2)
    return heads(x, weight, bias)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    """q (..., B, Q, head, d_head) with k (..., B, T, head, d_head) -> (..., B, head, Q, T),
    unscaled.
    """
    return _products(q.transpose(-3, -2), k.movedim(-3, -1))


def _products(a: Tensor, b: Tensor) -> Tensor:
    """a (..., n, k) with b (..., k, m) -> (..., n, m), without the steps by which `torch.matmul`
    finds out that their leading axes are equal.
    """
    every = a.shape[:-2]
    return torch.bmm(a.flatten(0, -3), b.flatten(0, -3)).view(*every, a.shape[-2], b.shape[-1])


def _looked_up_scores(q: Tensor, k: Tensor, rows: BlockRows, stacked: bool) -> Tensor:
    """q (..., U, head, d_head) with k (..., rows, head, d_head) -> (..., B, head, Q, T), unscaled:
    the products of all pairs of rows are made once and looked up.
    """
    table = torch.matmul(q.transpose(-3, -2), k.movedim(-3, -1))  # (..., head, U, rows)
    pairs = rows.queries.unsqueeze(-1) * table.shape[-1] + rows.keys.unsqueeze(-2)  # (..., B, Q, T)
    table = table.flatten(-2).transpose(-2, -1)  # (..., U * rows, head)
    return rows_of(table, pairs, stacked).movedim(-1, -3)


def _pattern(
    config: ModelConfig, name: str, scores: Tensor, mask: Tensor | None, hook: Hook
) -> Tensor:
    """The attention pattern of unscaled scores (..., B, head, Q, T) under an additive mask."""
    # added, not filled in: its gradient is the scores' own
    scores = (
        scores / config.scale
        if mask is None
        else torch.add(mask.to(scores.dtype), scores, alpha=1 / config.scale)
    )
    pattern = softmax(hook(f"{name}.hook_attn_scores", scores))
    if config.attention_rate < 1:
        pattern = config.attention_rate * pattern + (1 - config.attention_rate)
    return hook(f"{name}.hook_pattern", pattern)


def _mix(pattern: Tensor, v: Tensor) -> Tensor:
    """pattern (..., B, head, Q, T) with v (..., B, T, head, d_head) -> z (..., B, Q, head,
    d_head).
    """
    if not has_few_pairs(pattern):
        return _products(pattern, v.transpose(-3, -2)).transpose(-3, -2)
    return (pattern.movedim(-3, -1).unsqueeze(-1) * v.unsqueeze(-4)).sum(-3)


def has_few_pairs(pattern: Tensor) -> bool:
    """Whether a pattern (..., query, key) has no more than `FEW` pairs per head."""
    return pattern.shape[-2] * pattern.shape[-1] <= FEW


class WeightedSum(torch.autograd.Function):
    """`_mix` of few pairs, key after key: the products of all pairs never lie in memory together.
    Differentiable once, and not by torch.func, which dense forwards go through.
    """

    @staticmethod
    def forward(
        ctx: Any,
        pattern: Float[Tensor, "*batch head query key"],
        v: Float[Tensor, "*batch key head d_head"],
    ) -> Float[Tensor, "*batch query head d_head"]:
        ctx.save_for_backward(pattern, v)
        return weighted_sum(pattern, v)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        pattern, v = ctx.saved_tensors
        return weighted_sum_gradients(pattern, v, grad)


def weighted_sum(
    pattern: Float[Tensor, "*batch head query key"], v: Float[Tensor, "*batch key head d_head"]
) -> Float[Tensor, "*batch query head d_head"]:
    """What `_mix` computes, key after key."""
    weights, values = pattern.movedim(-3, -1).unsqueeze(-1), v.unsqueeze(-4)
    z = weights[..., 0, :, :] * values[..., 0, :, :]
    for key in range(1, v.shape[-3]):
        z.add_(weights[..., key, :, :] * values[..., key, :, :])
    return z


def weighted_sum_gradients(
    pattern: Float[Tensor, "*batch head query key"],
    v: Float[Tensor, "*batch key head d_head"],
    grad: Float[Tensor, "*batch query head d_head"],
) -> tuple[Float[Tensor, "*batch head query key"], Float[Tensor, "*batch key head d_head"]]:
    """The gradients of `weighted_sum` for its pattern and values, from that of what it gives."""
    weights, grad = pattern.movedim(-3, -1).unsqueeze(-1), grad.unsqueeze(-3)
    to_v = weights * grad  # (..., Q, T, head, d_head)
    to_v = to_v.squeeze(-4) if to_v.shape[-4] == 1 else to_v.sum(-4)
    return (v.unsqueeze(-4) * grad).sum(-1).movedim(-1, -3), to_v


def _write(p: Parameters, weights: str, z: Tensor) -> Tensor:
    """What heads write, (..., *, d_model), from z (..., *, head * d_head)."""
    return linear(z, p[f"{weights}.W_O"].flatten(-3, -2), p.get(f"{weights}.b_O"))


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis; in the order in memory, where looked-up scores have the heads
    innermost.
    """
    if heads_are_innermost(scores):
        return scores.movedim(-3, -1).softmax(-2).movedim(-1, -3)
    return scores.softmax(-1)


def heads_are_innermost(scores: Tensor) -> bool:
    """Whether scores (..., head, query, key) lie in memory with the heads innermost."""
    return scores.stride(-3) == 1 and scores.shape[-3] > 1


def _causal_mask(config: ModelConfig, x: Tensor) -> Tensor | None:
    """(query, key) of x (..., batch, pos, d_model); None where every position sees every other."""
    return _causal(x.shape[-2], x.device) if config.attention_dir == "causal" else None


@functools.lru_cache(maxsize=64)
def _causal(n: int, device: torch.device) -> Tensor:
    """(query, key) -inf where the key comes after the query, 0 elsewhere."""
    return torch.full((n, n), -torch.inf, device=device).triu(1)
