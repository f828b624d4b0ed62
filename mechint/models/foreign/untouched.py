"""Measure a model and leave it as it was: mode, gradients, hooks and random state, after an error
too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mechint.errors import MechintError

EXACT_ENOUGH = (torch.float32, torch.float64)
"""Types of weights that probes measure in."""


@contextlib.contextmanager
def plain_arithmetic(device: torch.device) -> Iterator[None]:
    """Arithmetic as the weights' type says, whatever the caller's settings of torch: no autocast,
    no products of float32 that are rounded to less, new tensors of float32, and no inference mode,
    whose tensors can not be differentiated later.
    """
    with torch.inference_mode(False), torch.autocast(device.type, enabled=False), _whole_float32():
        yield


@contextlib.contextmanager
def _whole_float32() -> Iterator[None]:
    """Inside: float32 by default, and in products; afterwards as before."""
    dtype, products = torch.get_default_dtype(), _precision_of_products()
    if (dtype, products) == (torch.float32, "highest"):
        yield
        return
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        if isinstance(products, str):
            torch.set_float32_matmul_precision(products)
        else:
            for backend, precision in products.items():
                getattr(torch.backends, backend).matmul.fp32_precision = precision


def _precision_of_products() -> str | dict[str, str]:
    """torch's one word for all devices, or its word for each kind, where these differ."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return {
            name: getattr(torch.backends, name).matmul.fp32_precision for name in ("cuda", "mkldnn")
        }


@contextlib.contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode inside; afterwards the mode of every module as before."""
    training = {module: module.training for module in model.modules()}
    try:
        if any(training.values()):
            model.eval()
        yield
    finally:
        for module, mode in training.items():
            if module.training != mode:
                module.training = mode


@contextlib.contextmanager
def untouched(model: Any) -> Iterator[None]:
    """Inside: evaluation mode, plain arithmetic, gradients enabled, whatever the caller's modes.
    Afterwards: mode, gradients, hooks and torch's random state as before.
    """
    device = next(model.parameters()).device
    grads = {
        parameter: (parameter.requires_grad, parameter.grad) for parameter in model.parameters()
    }
    hooks = {
        point: (list(point.fwd_hooks), list(point.bwd_hooks)) for point in model.hook_dict.values()
    }
    devices = [device] if device.type == "cuda" else []
    try:
        with (
            torch.random.fork_rng(devices=devices),
            plain_arithmetic(device),
            torch.enable_grad(),
            evaluating(model),
        ):
            yield
    finally:
        for parameter, (requires_grad, grad) in grads.items():
            parameter.requires_grad_(requires_grad)
            parameter.grad = grad
        for point, (forward, backward) in hooks.items():
            for handle in point.fwd_hooks + point.bwd_hooks:
                if handle not in forward + backward:
                    handle.hook.remove()
            point.fwd_hooks, point.bwd_hooks = forward, backward


def check_weight_types(model: Any, where: str) -> None:
    """Refuse weights that probes do not compute with.

    Raises:
        MechintError: a weight that is not dense float32 or float64, or has no values (device meta).
    """
    for name, value in model.named_parameters():
        if value.device.type == "meta":
            raise MechintError(f"{where}: weight {name} is on device meta and has no values")
        if value.dtype not in EXACT_ENOUGH or value.layout != torch.strided or value.is_quantized:
            kind = str(value.dtype).removeprefix("torch.")
            raise MechintError(
                f"{where}: weight {name} is {kind}, {str(value.layout).removeprefix('torch.')}; "
                "expected dense float32 or float64: measure model.float()"
            )


def check_finite(model: Any, where: str) -> None:
    """Refuse weights that are not numbers; MechintError says which and how many."""
    for name, value in model.named_parameters():
        if not all_finite(value):
            bad = int((~torch.isfinite(value)).sum())
            raise MechintError(
                f"{where}: weight {name} is not finite in {bad} of {value.numel()} places; "
                "expected a model whose training did not diverge"
            )


def all_finite(values: Tensor) -> bool:
    """Return whether all are finite: they are where their sum is, which is quicker to test.

    >>> large = torch.tensor([3e38, 3e38])  # finite, and its sum is not
    >>> all_finite(large), all_finite(torch.tensor([torch.inf, -torch.inf]))
    (True, False)
    """
    return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())
