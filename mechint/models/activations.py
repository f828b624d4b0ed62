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
    """The gradient before the nonlinearity `name`, written over `grad`, the one after it, from what
    stood before it; of relu, what stood after it does as well.
    """
    aten = torch.ops.aten
    if name == "relu":
        return aten.threshold_backward.grad_input(grad, pre, 0, grad_input=grad)
    if name == "silu":
        return aten.silu_backward.grad_input(grad, pre, grad_input=grad)
    approximate = "tanh" if name == "gelu_new" else "none"
    return aten.gelu_backward.grad_input(grad, pre, approximate=approximate, grad_input=grad)
