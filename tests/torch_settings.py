"""Settings of torch that a caller may have made: each a context that leaves torch as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        assert torch.get_default_dtype() == dtype, "it is as it was"
        torch.set_default_dtype(before)


@contextlib.contextmanager
def products(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        assert torch.get_float32_matmul_precision() == precision, "it is as it was"
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def products_of_the_cpu(precision: str) -> Iterator[None]:
    """By torch's newer names, after which it refuses to say its one word for all devices."""
    mkldnn: Any = torch.backends.mkldnn
    backend = mkldnn.matmul
    before = backend.fp32_precision
    backend.fp32_precision = precision
    try:
        yield
    finally:
        assert backend.fp32_precision == precision, "it is as it was"
        backend.fp32_precision = before


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "float64": lambda: default_dtype(torch.float64),
    "float16": lambda: default_dtype(torch.float16),
    "medium": lambda: products("medium"),
    "bf16 products": lambda: products_of_the_cpu("bf16"),
}
