"""Matrix products of stacked parameters on a CPU, by the faster of PyTorch's two libraries.

PyTorch multiplies float32 matrices with Intel's MKL, which on AMD processors with AVX-512 reaches
less than half the rate of oneDNN, which PyTorch has for convolutions (`make bench` measures both).
oneDNN compiles a kernel for every shape that it meets, and keeps a thousand of them: it serves
where the same shapes come step after step, which the forward says by `repeated_shapes`. The
gradient of a weight is a sum over all rows, which oneDNN first turns and then hardly shares between
threads: where a core works through 512 bits in two halves (Zen 4), MKL is the faster one there.
Which library multiplies depends on the processor and on the layout alone, and the same product has
the same bits with one thread as with two.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from mechint.models.activations import activation, activation_gradient

_repeated: ContextVar[bool] = ContextVar("repeated", default=False)


@contextlib.contextmanager
def repeated_shapes(repeated: bool) -> Iterator[None]:
    """Whether the products inside come with the same shapes at every step."""
    token = _repeated.set(repeated)
    try:
        yield
    finally:
        _repeated.reset(token)


def has_onednn() -> bool:
    """Whether this PyTorch has oneDNN's product of two float32 matrices."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise")


@functools.cache
def onednn_is_faster() -> bool:
    """Whether this is an AMD processor with 512-bit registers, and PyTorch has oneDNN."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not has_onednn():
        return False
    return "AuthenticAMD" in _cpuinfo()


@functools.cache
def onednn_adds_up_faster() -> bool:
    """Whether oneDNN is the faster one for sums over many rows, too: from Zen 5 on, family 26."""
    family = re.search(r"^cpu family\s*:\s*(\d+)", _cpuinfo(), re.MULTILINE)
    return family is not None and int(family[1]) > 25


def _cpuinfo() -> str:
    """What Linux says of the processor."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""


WORTH = 1 << 23
"""Multiplications of one model's product from which on oneDNN is faster, its call included."""


def by_onednn(x: Float[Tensor, "*rows d_in"], weight: Float[Tensor, "*model d_in d_out"]) -> bool:
    """Whether oneDNN multiplies x by `weight`, and what `StackedLinear` does is worth it."""
    return (
        _repeated.get()
        and weight.dim() == 3
        and x.numel() // len(weight) * weight.shape[-1] >= WORTH
        and _is_for_onednn(x)
    )


ONCE = 1 << 27
"""Multiplications from which on oneDNN is faster though it compiles a kernel for them alone."""


def by_onednn_once(x: Float[Tensor, "*rows d_in"], weight: Float[Tensor, "d_in d_out"]) -> bool:
    """Whether oneDNN multiplies x by one model's `weight`, of which no gradient is asked for."""
    return (
        x.numel() * weight.shape[-1] >= ONCE
        and x.dtype == weight.dtype
        and not torch.is_grad_enabled()
        and _is_for_onednn(x)
    )


def _is_for_onednn(x: Tensor) -> bool:
    """Whether large products of x are oneDNN's: float32 on a CPU where it is faster."""
    return (
        x.dtype == torch.float32
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and onednn_is_faster()
    )


class StackedLinear(torch.autograd.Function):
    """x (model, rows, d_in) @ weight (model, d_in, d_out) + bias (model, d_out) or None, float32 on
    the CPU, model after model by oneDNN -> (model, rows, d_out). Differentiable once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "model rows d_in"],
        weight: Float[Tensor, "model d_in d_out"],
        bias: Float[Tensor, "model d_out"] | None,
    ) -> Float[Tensor, "model rows d_out"]:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        return _stack([product(*one) for one in zip(x, weight, _each(bias, len(x)), strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        to_x = None
        if ctx.needs_input_grad[0]:
            to_x = _stack([product(g, w.T) for g, w in zip(grad, weight, strict=True)])
        to_weight = _stack([outer(*one) for one in zip(x, grad, strict=True)])
        return to_x, to_weight, grad.sum(1) if ctx.biased else None


class StackedMLP(torch.autograd.Function):
    """The MLP of every model of a stack as `StackedLinear` would compute it, one model's neurons
    after the other's, so that they stay in the cache; x (model, rows, d_model), `act` its
    nonlinearity. Differentiable once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "model rows d_model"],
        w_in: Float[Tensor, "model d_model d_mlp"],
        b_in: Float[Tensor, "model d_mlp"] | None,
        w_out: Float[Tensor, "model d_mlp d_model"],
        b_out: Float[Tensor, "model d_model"] | None,
        act: str,
    ) -> Float[Tensor, "model rows d_model"]:
        ctx.act, ctx.biased = act, b_in is not None
        biases = _each(b_in, len(x)), _each(b_out, len(x))
        found = [mlp(act, *one) for one in zip(x, w_in, w_out, *biases, strict=True)]
        y, pre, post = zip(*found, strict=True)
        ctx.save_for_backward(x, w_in, w_out, *pre, *post)
        return _stack(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w_in, w_out, *kept = ctx.saved_tensors
        pre, post = kept[: len(x)], kept[len(x) :]
        found = [
            mlp_gradients(ctx.act, *one)
            for one in zip(grad, x, w_in, w_out, pre, post, strict=True)
        ]
        to_x, to_in, to_b_in, to_out = map(_stack, zip(*found, strict=True))
        if not ctx.biased:
            return to_x, to_in, None, to_out, None, None
        return to_x, to_in, to_b_in, to_out, grad.sum(1), None


def mlp(
    act: str, x: Tensor, w_in: Tensor, w_out: Tensor, b_in: Tensor | None, b_out: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """What one model's MLP gives, and its neurons before and after `act`; of relu twice those
    after it, which say where those before it were above 0.
    """
    if act == "relu":
        pre = post = product(x, w_in, b_in, then="relu")
    else:
        pre = product(x, w_in, b_in)
        post = activation(act, pre)
    return product(post, w_out, b_out), pre, post


def mlp_gradients(
    act: str,
    grad: Tensor,
    x: Tensor,
    w_in: Tensor,
    w_out: Tensor,
    pre: Tensor,
    post: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of one model, from the gradient of what its MLP gives: for x, W_in, b_in and W_out."""
    to_pre = activation_gradient(act, product(grad, w_out.T), pre)
    return product(to_pre, w_in.T), outer(x, to_pre), to_pre.sum(0), outer(post, grad)


def product(
    a: Float[Tensor, "n k"],
    b: Float[Tensor, "k m"],
    bias: Float[Tensor, " m"] | None = None,
    then: str = "none",
) -> Float[Tensor, "n m"]:
    """a @ b + bias by oneDNN, and `then` its "relu".

    >>> product(torch.ones(2, 3), torch.eye(3), torch.tensor([-2.0, 0, 0]), then="relu")[0]
    tensor([0., 1., 1.])
    """
    return torch.ops.mkldnn._linear_pointwise(a, b.T, bias, then, [], "")


def outer(a: Float[Tensor, "n k"], b: Float[Tensor, "n m"]) -> Float[Tensor, "k m"]:
    """The sum over rows of their outer products, aᵀ b.

    >>> outer(torch.tensor([[1.0, 2], [0, 1]]), torch.tensor([[3.0], [1]]))
    tensor([[3.],
            [7.]])
    """
    if a.shape[1] > b.shape[1]:  # both libraries turn the left factor: the one with fewer columns
        return outer(b, a).T
    return product(a.T.contiguous(), b) if onednn_adds_up_faster() else a.T @ b


def _each(bias: Tensor | None, models: int) -> Sequence[Tensor | None]:
    return [None] * models if bias is None else bias.unbind()


def _stack(each: Sequence[Tensor]) -> Tensor:
    """(model, ...) of one tensor a model; a lone one is not copied."""
    return each[0].unsqueeze(0) if len(each) == 1 else torch.stack(list(each))
