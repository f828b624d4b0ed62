"""A single model's attention layer with its gradient written out, for `mechint.models.single`.

The operations that autograd would call for `mechint.models.attention`, in its order, so that the
bits are the same. In shapes: B batch, Q queries, T keys.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models import one_query
from mechint.models.attention import (
    has_few_pairs,
    heads_are_innermost,
    softmax,
    weighted_sum,
    weighted_sum_gradients,
)
from mechint.models.one_query import (
    key_weights,
    score_gradients,
    weighted_means,
    weighted_means_gradients,
)
from mechint.models.rows import BlockRows
from mechint.models.single_pieces import Gradient, Named, linear, named, picked

Pair = tuple[Tensor, Tensor]


def attention(
    p: Named, weights: str, config: ModelConfig, x: Tensor, rows: BlockRows
) -> tuple[Tensor, Callable[[Tensor, Tensor | None], tuple[Tensor, Named]]]:
    """What attention writes, (N, d_model), for normed rows x (rows, d_model). Its gradient is given
    what x has from elsewhere, too, where autograd would add that first.
    """
    n_heads, _, d_head = p[f"{weights}.W_Q"].shape
    if one_query.serves(config, x, rows):
        found = of_one_query(p, weights, config, x, rows)
        if found is not None:
            return found
    (q, k, v), from_inputs = inputs(p, weights, x, rows)
    scores, from_scores = looked_up(q, k, rows) if rows.table else products(q, k)
    pattern, from_pattern = weighing(config, scores, rows.mask)
    few = has_few_pairs(pattern)
    z, from_z = (weighted if few else mixed)(pattern, v)
    z = z.reshape(-1, n_heads * d_head)
    z, from_out = picked(z, None if rows.out is None else rows.out[0])
    y, from_written = written(p, weights, z)

    def gradient(grad: Tensor, elsewhere: Tensor | None) -> tuple[Tensor, Named]:
        to_z, to_written = from_written(grad)
        to_z = from_out(to_z).view(*v.shape[:-3], -1, n_heads, d_head)
        to_pattern, to_v = from_z(to_z)
        to_q, to_k = from_scores(from_pattern(to_pattern))
        to_x, to = from_inputs((to_q, to_k, to_v), elsewhere)
        return to_x, {**to, **to_written}

    return y, gradient


def of_one_query(
    p: Named, weights: str, config: ModelConfig, x: Tensor, rows: BlockRows
) -> tuple[Tensor, Callable[[Tensor, Tensor | None], tuple[Tensor, Named]]] | None:
    """`attention` of examples that ask with one row; None where `key_weights` are."""
    assert rows.bags is not None
    bags, n_heads = rows.bags, len(p[f"{weights}.W_Q"])
    (q, k, v), from_inputs = inputs_apart(p, weights, x, rows)
    found = key_weights(q, k, config.scale)
    if found is None:
        return None
    z, totals = weighted_means(found, v, bags)
    y, from_written = written(p, weights, z.flatten(1))

    def gradient(grad: Tensor, elsewhere: Tensor | None) -> tuple[Tensor, Named]:
        to_z, to = from_written(grad)
        to_z = to_z.unflatten(-1, (n_heads, -1))
        to_scores, to_v = weighted_means_gradients(found, v, z, totals, to_z, bags)
        to_q, to_k = score_gradients(q, k, to_scores, config.scale)
        to_x, to_inputs = from_inputs((to_q, to_k, to_v), elsewhere)
        return to_x, {**to, **to_inputs}

    return y, gradient


def written(p: Named, weights: str, z: Tensor) -> tuple[Tensor, Gradient]:
    """What heads write, (N, d_model), from z (N, head * d_head)."""
    w_o = p[f"{weights}.W_O"]
    y, from_product = linear(z, w_o.flatten(0, 1), p.get(f"{weights}.b_O"))

    def gradient(grad: Tensor) -> tuple[Tensor, Named]:
        to_z, to_w_o, to_b_o = from_product(grad)
        to = {f"{weights}.W_O": to_w_o.view(w_o.shape), f"{weights}.b_O": to_b_o}
        return to_z, named(to)

    return y, gradient


def inputs(
    p: Named, weights: str, x: Tensor, rows: BlockRows
) -> tuple[tuple[Tensor, ...], Callable[..., tuple[Tensor, Named]]]:
    """Queries (B, Q, head, d_head), keys and values (B, T, head, d_head) of x; queries and keys of
    a table are those of its rows, (U, head, d_head) and (rows, head, d_head).
    """
    (_, n_batch, n_queries), n_keys = rows.queries.shape, rows.keys.shape[2]
    key_rows = None if rows.in_order else rows.keys
    if rows.query_is_key:
        every, from_all = projected(p, weights, "QKV", x, key_rows, (n_batch, n_keys))

        def together(grads: tuple[Tensor, ...], elsewhere: Tensor | None) -> tuple[Tensor, Named]:
            to_x, to = from_all(torch.cat(grads, 2))
            return added(to_x, elsewhere), to

        return every, together
    if not rows.table:
        asked, seen = (rows.queries, (n_batch, n_queries)), (key_rows, (n_batch, n_keys))
        return inputs_apart(p, weights, x, rows, asked, seen)
    (q, k, every_v), from_rows = inputs_apart(p, weights, x, rows)
    flat, from_v = picked(every_v.flatten(1), rows.keys.flatten())

    def with_values(grads: tuple[Tensor, ...], elsewhere: Tensor | None) -> tuple[Tensor, Named]:
        to_q, to_k, to_v = grads
        to_v = from_v(to_v.reshape(flat.shape)).view(every_v.shape)
        return from_rows((to_q, to_k, to_v), elsewhere)

    return (q, k, flat.view(n_batch, n_keys, *every_v.shape[1:])), with_values


Place = tuple[Tensor | None, tuple[int, ...]]
"""Where rows are looked up, everywhere if None, and the shape that they then have."""


def inputs_apart(
    p: Named,
    weights: str,
    x: Tensor,
    rows: BlockRows,
    queries: Place = (None, (-1,)),
    keys: Place = (None, (-1,)),
) -> tuple[tuple[Tensor, ...], Callable[..., tuple[Tensor, Named]]]:
    """Queries of the rows of x that ask, and keys and values of all rows, looked up at their
    places.
    """
    asking, from_asking = picked(x, None if rows.query_rows is None else rows.query_rows[0])
    (q,), from_q = projected(p, weights, "Q", asking, *queries)
    (k, v), from_kv = projected(p, weights, "KV", x, *keys)

    def gradient(grads: tuple[Tensor, ...], elsewhere: Tensor | None) -> tuple[Tensor, Named]:
        to_q, to_k, to_v = grads
        to_x, to_kv = from_kv(torch.cat([to_k, to_v], -2))
        to_asking, to_query = from_q(to_q)
        return added(to_x, elsewhere).add_(from_asking(to_asking)), {**to_kv, **to_query}

    return (q, k, v), gradient


def added(grad: Tensor, elsewhere: Tensor | None) -> Tensor:
    """The sum of two gradients of one tensor, in place of the first."""
    return grad if elsewhere is None else grad.add_(elsewhere)


def projected(
    p: Named, weights: str, letters: str, x: Tensor, index: Tensor | None, shape: tuple[int, ...]
) -> tuple[tuple[Tensor, ...], Gradient]:
    """Queries, keys and values, those in `letters`, of x (rows, d_model) in one product, looked up
    at `index` -> each (*shape, head, d_head); the gradient takes them side by side along head.
    """
    n_heads, d_model, d_head = p[f"{weights}.W_Q"].shape
    weight = torch.cat([p[f"{weights}.W_{letter}"] for letter in letters])
    weight = weight.transpose(0, 1).flatten(1)
    bias = None
    if f"{weights}.b_Q" in p:
        bias = torch.cat([p[f"{weights}.b_{letter}"] for letter in letters]).flatten()
    y, from_product = linear(x, weight, bias)
    y, from_rows = picked(y, None if index is None else index.flatten())

    def gradient(grad: Tensor) -> tuple[Tensor, Named]:
        grad = from_rows(grad.reshape(-1, weight.shape[1]))
        to_x, to_weight, to_bias = from_product(grad)
        each = to_weight.view(d_model, len(letters), n_heads, d_head).permute(1, 2, 0, 3)
        to = {f"{weights}.W_{letter}": one for letter, one in zip(letters, each, strict=True)}
        if to_bias is not None:
            biases = to_bias.view(len(letters), n_heads, d_head)
            to |= {
                f"{weights}.b_{letter}": one for letter, one in zip(letters, biases, strict=True)
            }
        return to_x, to

    return y.view(*shape, len(letters) * n_heads, d_head).split(n_heads, -2), gradient


def products(q: Tensor, k: Tensor) -> tuple[Tensor, Callable[[Tensor], Pair]]:
    """Unscaled scores (B, head, Q, T) of q (B, Q, head, d_head) with k (B, T, head, d_head)."""
    n_batch, n_queries, n_heads, d_head = q.shape
    n_keys = k.shape[1]
    q = q.transpose(1, 2).reshape(-1, n_queries, d_head)
    k = k.permute(0, 2, 3, 1).reshape(-1, d_head, n_keys)

    def gradient(grad: Tensor) -> Pair:
        grad = grad.view(-1, n_queries, n_keys)
        to_q = torch.bmm(grad, k.mT).view(n_batch, n_heads, n_queries, d_head)
        to_k = torch.bmm(q.mT, grad).view(n_batch, n_heads, d_head, n_keys)
        return to_q.transpose(1, 2), to_k.permute(0, 3, 1, 2)

    return torch.bmm(q, k).view(n_batch, n_heads, n_queries, n_keys), gradient


def looked_up(q: Tensor, k: Tensor, rows: BlockRows) -> tuple[Tensor, Callable[[Tensor], Pair]]:
    """Unscaled scores (B, head, Q, T), the products of all pairs of q (U, head, d_head) and k
    (rows, head, d_head) made once and looked up.
    """
    q, k = q.transpose(0, 1), k.permute(1, 2, 0)
    table = torch.bmm(q, k)  # (head, U, rows)
    pairs = rows.queries[0].unsqueeze(-1) * k.shape[2] + rows.keys[0].unsqueeze(-2)  # (B, Q, T)
    which = pairs.flatten()
    found = table.flatten(1).T.contiguous().index_select(0, which)

    def gradient(grad: Tensor) -> Pair:
        grad = grad.permute(0, 2, 3, 1).reshape(found.shape)
        each = grad.new_zeros(table.shape[1] * table.shape[2], len(table))
        to_table = each.index_add_(0, which, grad).T.view(table.shape)
        to_q, to_k = torch.bmm(to_table, k.mT), torch.bmm(q.mT, to_table)
        return to_q.transpose(0, 1), to_k.permute(2, 0, 1)

    return found.view(*pairs.shape, -1).permute(0, 3, 1, 2), gradient


def weighing(
    config: ModelConfig, scores: Tensor, mask: Tensor | None
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The attention pattern of unscaled scores (B, head, Q, T) under a mask (1, B | 1, Q, T)."""
    if mask is None:
        scores = scores / config.scale
    else:
        masked = mask[0].unsqueeze(1).to(scores.dtype)
        scores = torch.add(masked, scores, alpha=1 / config.scale)
    pattern = softmax(scores)
    innermost = heads_are_innermost(scores)

    def gradient(grad: Tensor) -> Tensor:
        if innermost:
            turned = grad.movedim(-3, -1), pattern.movedim(-3, -1)
            to = torch.ops.aten._softmax_backward_data(*turned, -2, grad.dtype).movedim(-1, -3)
        else:
            to = torch.ops.aten._softmax_backward_data(grad, pattern, -1, grad.dtype)
        return to.div_(config.scale) if mask is None else to.mul_(1 / config.scale)

    return pattern, gradient


def mixed(pattern: Tensor, v: Tensor) -> tuple[Tensor, Callable[[Tensor], Pair]]:
    """Values v (B, T, head, d_head) by a pattern (B, head, Q, T) -> z (B, Q, head, d_head)."""
    n_batch, n_heads, n_queries, n_keys = pattern.shape
    d_head = v.shape[-1]
    flat, v = pattern.reshape(-1, n_queries, n_keys), v.transpose(1, 2).reshape(-1, n_keys, d_head)

    def gradient(grad: Tensor) -> Pair:
        grad = grad.transpose(1, 2).reshape(-1, n_queries, d_head)
        to_v = torch.bmm(flat.mT, grad).view(n_batch, n_heads, n_keys, d_head).transpose(1, 2)
        return torch.bmm(grad, v.mT).view(pattern.shape), to_v

    return torch.bmm(flat, v).view(n_batch, n_heads, n_queries, d_head).transpose(1, 2), gradient


def weighted(pattern: Tensor, v: Tensor) -> tuple[Tensor, Callable[[Tensor], Pair]]:
    """`mixed` of few pairs."""
    return weighted_sum(pattern, v), lambda grad: weighted_sum_gradients(pattern, v, grad)
