"""The pieces of a single model's forward with their gradients written out, for
`mechint.models.single`.

Every function takes one model's parameters by name, without a model axis, and gives its result and
a function from the gradient of the result to that of x and those of the parameters by name. They
call the operations that autograd would call for `mechint.models.pieces`, `products` and
`attention`, in its order, so that the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.activations import activation, activation_gradient
from mechint.models.products import by_onednn, mlp_gradients, outer, product
from mechint.models.products import mlp as mlp_by_onednn
from mechint.models.rows import BlockRows

Named = dict[str, Tensor]
Gradient = Callable[[Tensor], tuple[Tensor, Named]]


def norm(p: Named, name: str, config: ModelConfig, x: Tensor) -> tuple[Tensor, Gradient]:
    """x (rows, d_model) through the layer norm `name`."""
    w, b = p.get(f"{name}.w"), p.get(f"{name}.b")
    shape = x.shape[-1:]
    y, mean, scale = torch.native_layer_norm(x, shape, w, b, config.eps)

    def gradient(grad: Tensor) -> tuple[Tensor, Named]:
        asked = [True, w is not None, b is not None]
        to_x, to_w, to_b = torch.ops.aten.native_layer_norm_backward(
            grad, x, shape, mean, scale, w, b, asked
        )
        return to_x, named({f"{name}.w": to_w, f"{name}.b": to_b})

    return y, gradient


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor | None]]]:
    """x (rows, d_in) @ weight + bias, and the gradients of all three from that of it."""
    fast = by_onednn(x, weight.unsqueeze(0))
    if fast:
        y = product(x, weight, bias)
    else:
        y = x @ weight if bias is None else torch.addmm(bias, x, weight)

    def gradient(grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        to_bias = None if bias is None else grad.sum(0)
        if not fast:
            return grad @ weight.T, x.T @ grad, to_bias
        columns = x.T.contiguous() if x.shape[1] <= weight.shape[1] else x.T
        return product(grad, weight.T), outer(columns, grad), to_bias

    return y, gradient


def mlp(p: Named, weights: str, act: str, x: Tensor) -> tuple[Tensor, Gradient]:
    """What the MLP gives for normed rows x (rows, d_model)."""
    names = tuple(f"{weights}.{end}" for end in ("W_in", "b_in", "W_out", "b_out"))
    w_in, b_in, w_out, b_out = (p.get(name) for name in names)
    assert w_in is not None and w_out is not None
    if by_onednn(x, w_in.unsqueeze(0)):
        y, pre, post = mlp_by_onednn(act, x, w_in, w_out, b_in, b_out)

        def fast(grad: Tensor) -> tuple[Tensor, Named]:
            columns = x.T, grad.T
            if x.shape[1] <= w_in.shape[1]:
                columns = columns[0].contiguous(), columns[1].contiguous()
            to_x, to_in, to_b_in, to_out = mlp_gradients(
                act, grad, *columns, w_in, w_out, pre, post
            )
            found = zip(names, (to_in, to_b_in, to_out, grad.sum(0)), strict=True)
            return to_x, {name: each for name, each in found if name in p}

        return y, fast
    pre, from_in = linear(x, w_in, b_in)
    y, from_out = linear(activation(act, pre), w_out, b_out)

    def gradient(grad: Tensor) -> tuple[Tensor, Named]:
        to_post, to_out, to_b_out = from_out(grad)
        to_x, to_in, to_b_in = from_in(activation_gradient(act, to_post, pre))
        found = zip(names, (to_in, to_b_in, to_out, to_b_out), strict=True)
        return to_x, named(dict(found))

    return y, gradient


def attention(
    p: Named, weights: str, config: ModelConfig, x: Tensor, rows: BlockRows
) -> tuple[Tensor, Gradient]:
    """What attention writes, (N, d_model), for normed rows x (rows, d_model)."""
    n_heads, d_model, d_head = p[f"{weights}.W_Q"].shape
    (_, n_batch, n_queries), n_keys = rows.queries.shape, rows.keys.shape[2]
    key_rows = None if rows.in_order else rows.keys
    if rows.query_is_key:
        (q, k, v), from_all = projected(p, weights, "QKV", x, key_rows, (n_batch, n_keys))
    else:
        asking = x if rows.query_rows is None else x.index_select(0, rows.query_rows[0])
        (q,), from_q = projected(p, weights, "Q", asking, rows.queries, (n_batch, n_queries))
        (k, v), from_kv = projected(p, weights, "KV", x, key_rows, (n_batch, n_keys))
    q = q.transpose(1, 2).reshape(-1, n_queries, d_head)
    k = k.permute(0, 2, 3, 1).reshape(-1, d_head, n_keys)
    v = v.transpose(1, 2).reshape(-1, n_keys, d_head)
    scores = torch.bmm(q, k).view(n_batch, n_heads, n_queries, n_keys)
    if rows.mask is None:
        scores = scores / config.scale
    else:
        mask = rows.mask[0].unsqueeze(1).to(scores.dtype)
        scores = torch.add(mask, scores, alpha=1 / config.scale)
    pattern = scores.softmax(-1).view(-1, n_queries, n_keys)
    z = torch.bmm(pattern, v).view(n_batch, n_heads, n_queries, d_head).transpose(1, 2)
    z = z.reshape(-1, n_heads * d_head)
    out = None if rows.out is None else rows.out[0]
    z = z if out is None else z.index_select(0, out)
    y, from_z = linear(z, p[f"{weights}.W_O"].flatten(0, 1), p.get(f"{weights}.b_O"))

    def gradient(grad: Tensor) -> tuple[Tensor, Named]:
        to_z, to_w_o, to_b_o = from_z(grad)
        if out is not None:
            every = to_z.new_zeros(n_batch * n_queries, to_z.shape[1])
            to_z = every.index_add_(0, out, to_z)
        to_z = to_z.view(n_batch, n_queries, n_heads, d_head).transpose(1, 2)
        to_z = to_z.reshape(-1, n_queries, d_head)
        to_scores = torch.ops.aten._softmax_backward_data(
            torch.bmm(to_z, v.mT), pattern, -1, pattern.dtype
        )
        if rows.mask is None:
            to_scores = to_scores.div_(config.scale)
        else:
            to_scores = to_scores.mul_(1 / config.scale)
        to_q = torch.bmm(to_scores, k.mT).view(n_batch, n_heads, n_queries, d_head).transpose(1, 2)
        to_k = torch.bmm(q.mT, to_scores).view(n_batch, n_heads, d_head, n_keys).permute(0, 3, 1, 2)
        to_v = torch.bmm(pattern.mT, to_z).view(n_batch, n_heads, n_keys, d_head).transpose(1, 2)
        to_w_o = to_w_o.view(n_heads, d_head, d_model)
        to = named({f"{weights}.W_O": to_w_o, f"{weights}.b_O": to_b_o})
        if rows.query_is_key:
            to_x, to_all = from_all(torch.cat([to_q, to_k, to_v], 2))
            return to_x, {**to, **to_all}
        to_x, to_kv = from_kv(torch.cat([to_k, to_v], 2))
        to_asking, to_query = from_q(to_q)
        if rows.query_rows is not None:
            to_asking = torch.zeros_like(x).index_add_(0, rows.query_rows[0], to_asking)
        return to_x.add_(to_asking), {**to, **to_kv, **to_query}

    return y, gradient


def projected(
    p: Named, weights: str, letters: str, x: Tensor, index: Tensor | None, slots: tuple[int, int]
) -> tuple[tuple[Tensor, ...], Gradient]:
    """Queries, keys and values, those in `letters`, of x (rows, d_model) in one product, looked up
    at `index` -> each (*slots, head, d_head); the gradient takes them side by side along head.
    """
    n_heads, d_model, d_head = p[f"{weights}.W_Q"].shape
    weight = torch.cat([p[f"{weights}.W_{letter}"] for letter in letters])
    weight = weight.transpose(0, 1).flatten(1)
    bias = None
    if f"{weights}.b_Q" in p:
        bias = torch.cat([p[f"{weights}.b_{letter}"] for letter in letters]).flatten()
    y, from_product = linear(x, weight, bias)
    if index is not None:
        y = y.index_select(0, index.flatten())

    def gradient(grad: Tensor) -> tuple[Tensor, Named]:
        grad = grad.reshape(-1, weight.shape[1])
        if index is not None:
            grad = grad.new_zeros(len(x), weight.shape[1]).index_add_(0, index.flatten(), grad)
        to_x, to_weight, to_bias = from_product(grad)
        each = to_weight.view(d_model, len(letters), n_heads, d_head).permute(1, 2, 0, 3)
        to = {f"{weights}.W_{letter}": one for letter, one in zip(letters, each, strict=True)}
        if to_bias is not None:
            biases = to_bias.view(len(letters), n_heads, d_head)
            to |= {
                f"{weights}.b_{letter}": one for letter, one in zip(letters, biases, strict=True)
            }
        return to_x, to

    return y.view(*slots, -1, d_head).split(n_heads, 2), gradient


def named(gradients: Mapping[str, Tensor | None]) -> Named:
    """Those of `gradients` that are there."""
    return {name: each for name, each in gradients.items() if each is not None}
