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

Named = dict[str, Tensor]
Gradient = Callable[[Tensor], tuple[Tensor, Named]]


def norm(p: Named, name: str, config: ModelConfig, x: Tensor) -> tuple[Tensor, Gradient]:
    """x (rows, d_model) through the layer norm `name`, x itself where the model has none."""
    if config.normalization_type is None:
        return x, lambda grad: (grad, {})
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


def picked(x: Tensor, index: Tensor | None) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Rows `index` (n,) of x (rows, d), x itself where None, and the gradient of x from theirs."""
    if index is None:
        return x, lambda grad: grad
    shape = x.shape
    return x.index_select(0, index), lambda grad: grad.new_zeros(shape).index_add_(0, index, grad)


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
        return product(grad, weight.T), outer(x, grad), to_bias

    return y, gradient


def mlp(p: Named, weights: str, act: str, x: Tensor) -> tuple[Tensor, Gradient]:
    """What the MLP gives for normed rows x (rows, d_model)."""
    names = tuple(f"{weights}.{end}" for end in ("W_in", "b_in", "W_out", "b_out"))
    w_in, b_in, w_out, b_out = (p.get(name) for name in names)
    assert w_in is not None and w_out is not None
    if by_onednn(x, w_in.unsqueeze(0)):
        y, pre, post = mlp_by_onednn(act, x, w_in, w_out, b_in, b_out)

        def fast(grad: Tensor) -> tuple[Tensor, Named]:
            to_x, to_in, to_b_in, to_out = mlp_gradients(act, grad, x, w_in, w_out, pre, post)
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


def named(gradients: Mapping[str, Tensor | None]) -> Named:
    """Those of `gradients` that are there."""
    return {name: each for name, each in gradients.items() if each is not None}
