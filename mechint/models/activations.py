"""The nonlinearities of MLPs, and their gradients."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def activation(name: str, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The nonlinearity `name` of x: relu, silu, gelu or gelu_new (by tanh)."""
    if name == "relu":
        return F.relu(x)
    if name == "silu":
        return F.silu(x)
    return F.gelu(x, approximate="tanh" if name == "gelu_new" else "none")


def activation_gradient(
    name: str, grad: Float[Tensor, "*shape"], pre: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """The gradient before the nonlinearity `name`, from `grad` after it and what stood before it;
    of relu, what stood after it does as well.
    """
    if name == "relu":
        return torch.ops.aten.threshold_backward(grad, pre, 0)
    if name == "silu":
        return torch.ops.aten.silu_backward(grad, pre)
    approximate = "tanh" if name == "gelu_new" else "none"
    return torch.ops.aten.gelu_backward(grad, pre, approximate=approximate)
