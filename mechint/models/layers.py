"""Layers of a transformer, with parameters of one model or of a stack of models.

`...` in shape comments stands for the leading model axis of a stack.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import ModelConfig, centers, has_bias, has_weight

Parameters = Mapping[str, Tensor]
Rotation = tuple[Tensor, Tensor]
"""Cosines and sines (…, pos, 1, d_head) by which `rotate` turns."""
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
    """Layer norm over d_model (LN, LNPre), or RMS norm (RMS, RMSPre), with weights or without
    (Pre); the identity for None.

    y = (x - mean(x)) / sqrt(var(x) + eps) · w + b, and x / sqrt(mean(x²) + eps) · w
    """
    kind = config.normalization_type
    if kind is None:
        return x
    weight = p[f"{name}.w"] if has_weight(kind) else None
    bias = p.get(f"{name}.b") if has_bias(kind) else None
    if hook is not no_hook:
        y = _hooked_norm(hooked_as, config, x, hook)
    elif not centers(kind):
        y = rms_norm(x, config.eps)
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
    x = x - x.mean(-1, keepdim=True) if centers(config.normalization_type) else x
    scale = (x.square().mean(-1, keepdim=True) + config.eps).sqrt()
    return hook(f"{hooked_as}.hook_normalized", x / hook(f"{hooked_as}.hook_scale", scale))


def rms_norm(x: Float[Tensor, "*rows width"], eps: float) -> Float[Tensor, "*rows width"]:
    """x / sqrt(mean(x²) + eps) over the last axis."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


# --- rotary positions -----------------------------------------------------------------------------
def rotation(config: ModelConfig, positions: Int[Tensor, "*row"]) -> Rotation | None:
    """Cosines and sines (*row, 1, d_head) that turn queries and keys at `positions`; None of a
    model that embeds its positions.
    """
    if config.embeds_positions:
        return None
    index, device = positions.cpu(), positions.device
    n = 1 << int(index.max()).bit_length() if index.numel() else 1
    cosines, sines = _rotations(n, config)
    return cosines[index].unsqueeze(-2).to(device), sines[index].unsqueeze(-2).to(device)


@functools.lru_cache(maxsize=16)
def _rotations(n: int, config: ModelConfig) -> Rotation:
    """Cosines and sines (n, d_head) of p · base^(-2i/d_head), of both halves of a head.

    Scaled rates (Llama 3): waves longer than positions / low are slowed down by the factor, those
    shorter than positions / high are not, and between them linearly in their frequency.
    """
    width = config.d_head or 0
    rates = 1 / config.rotary_base ** (torch.arange(0, width, 2, device="cpu").float() / width)
    if config.rotary_scaling is not None:
        factor, low, high, positions = config.rotary_scaling
        kept = ((positions * rates / (2 * torch.pi) - low) / (high - low)).clamp(0, 1)
        rates = rates * (kept + (1 - kept) / factor)
    angles = torch.outer(torch.arange(n, device="cpu").float(), rates).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(
    x: Float[Tensor, "*rows head d_head"], by: Rotation
) -> Float[Tensor, "*rows head d_head"]:
    """Turn entry i of a head's first half and entry i of its second in their plane, by their
    position's angle (Su et al. 2021, as in Llama).
    """
    cosines, sines = (one.to(x) for one in by)
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat([-second, first], -1) * sines
