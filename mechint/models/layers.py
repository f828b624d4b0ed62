"""Layers of a transformer, with parameters of one model or of a stack of models.

`...` in shape comments stands for the leading model axis of a stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mechint.config import ModelConfig

Parameters = Mapping[str, Tensor]
Hook = Callable[[str, Tensor], Tensor]


def no_hook(name: str, tensor: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the activation as it is: the hook of a plain forward."""
    return tensor


def activation(name: str, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Apply the nonlinearity `name`: relu, silu, gelu or gelu_new (by tanh)."""
    if name == "relu":
        return F.relu(x)
    if name == "silu":
        return F.silu(x)
    return F.gelu(x, approximate="tanh" if name == "gelu_new" else "none")


def linear(
    x: Float[Tensor, "*rows d_in"],
    weight: Float[Tensor, "*model d_in d_out"],
    bias: Float[Tensor, "*model d_out"] | None = None,
) -> Float[Tensor, "*rows d_out"]:
    """x (..., *, d_in) @ weight (..., d_in, d_out) + bias (..., d_out)."""
    if weight.dim() == 2:
        return F.linear(x, weight.T, bias)
    if len(weight) == 1:
        flat, one = x.flatten(0, -2), None if bias is None else bias[0]
        y = flat @ weight[0] if one is None else torch.addmm(one, flat, weight[0])
    else:
        flat = x.flatten(1, -2)
        y = torch.bmm(flat, weight) if bias is None else torch.baddbmm(bias[:, None], flat, weight)
    return y.view(*x.shape[:-1], weight.shape[-1])


def heads(
    x: Float[Tensor, "*rows d_model"],
    weight: Float[Tensor, "*model head d_model d_head"],
    bias: Float[Tensor, "*model head d_head"] | None,
) -> Float[Tensor, "*rows head d_head"]:
    """x (..., *, d_model) through weight (..., head, d_model, d_head) -> (..., *, head, d_head)."""
    n_heads, _, d_head = weight.shape[-3:]
    y = linear(x, weight.transpose(-3, -2).flatten(-2), None if bias is None else bias.flatten(-2))
    return y.unflatten(-1, (n_heads, d_head))


def norm(
    p: Parameters,
    name: str,
    hooked_as: str,
    config: ModelConfig,
    x: Float[Tensor, "*rows d_model"],
    hook: Hook,
) -> Float[Tensor, "*rows d_model"]:
    """Layer norm over d_model: with weights for LN, without for LNPre, the identity for None.

    y = (x - mean(x)) / sqrt(var(x) + eps) · w + b
    """
    if config.normalization_type is None:
        return x
    weight, bias = None, None
    if config.normalization_type == "LN":
        weight, bias = p[f"{name}.w"], p.get(f"{name}.b")
    if hook is not no_hook:
        y = _hooked_norm(hooked_as, config, x, hook)
    elif weight is not None and weight.numel() == x.shape[-1]:  # one model: in one pass
        flat_bias = None if bias is None else bias.flatten()
        return F.layer_norm(x, x.shape[-1:], weight.flatten(), flat_bias, config.eps)
    else:
        y = F.layer_norm(x, x.shape[-1:], eps=config.eps)
    if weight is None:
        return y
    if weight.dim() == 2:
        weight = weight.view(weight.shape[0], *[1] * (y.dim() - 2), -1)
        bias = None if bias is None else bias.view(weight.shape)
    return y * weight if bias is None else torch.addcmul(bias, y, weight)


def _hooked_norm(hooked_as: str, config: ModelConfig, x: Tensor, hook: Hook) -> Tensor:
    x = x - x.mean(-1, keepdim=True)
    scale = (x.square().mean(-1, keepdim=True) + config.eps).sqrt()
    return hook(f"{hooked_as}.hook_normalized", x / hook(f"{hooked_as}.hook_scale", scale))
