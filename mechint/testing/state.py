"""Checks that a probe changes no weights, gradients, hooks, modes or global random states."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mechint.subject import Subject


def _state(subject: Subject) -> dict[str, Any]:
    model = subject.model
    return {
        "weights": {name: value.detach().clone() for name, value in model.state_dict().items()},
        "gradients": {
            name: (value.requires_grad, value.grad) for name, value in model.named_parameters()
        },
        "hooks": {
            name: (len(point.fwd_hooks), len(point.bwd_hooks), len(point._forward_hooks))
            for name, point in model.hook_dict.items()
        },
        "training mode": [module.training for module in model.modules()],
        "use_attn_result": getattr(model, "use_attn_result", None),
        "torch's random state": torch.get_rng_state(),
        "numpy's random state": np.random.get_bit_generator().state["state"],  # pyright: ignore[reportAttributeAccessIssue]
        "python's random state": random.getstate(),
    }


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


@contextlib.contextmanager
def unchanged(subject: Subject) -> Iterator[None]:
    """Assert that what runs inside leaves the model and the program as they were."""
    before = _state(subject)
    yield
    after = _state(subject)
    changed = [name for name in before if not _equal(before[name], after[name])]
    assert not changed, (
        f"the probe changes the model's or the program's state: {', '.join(changed)}"
    )


class LargestTensor(TorchDispatchMode):
    """Remembers the size in bytes of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, list | tuple) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return result
