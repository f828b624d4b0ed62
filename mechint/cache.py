"""Tensors kept in bounded memory, until they or the model they were computed from is edited.

    cache = BoundedCache(memory=1 << 29)
    cache.keep_for(model_fingerprint(model))   # forgets everything where the model has changed
    cache.get("logits", compute)               # computed again where the kept tensor was edited

What is handed out is what is kept, and weights can be edited in place: both are compared with how
they were. Torch counts the edits it sees; checksums show those made through ``.data`` or a numpy
view. Cost: a look reads every weight once, as a forward of one token does, and the tensor asked
for.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from mechint.models.untouched import plain_arithmetic


def fingerprint(tensor: Shaped[Tensor, ...]) -> tuple[Any, ...]:
    """Where the values of a dense `tensor` are, how often torch saw them edited, and a checksum.

    >>> weight = torch.ones(3)
    >>> before = fingerprint(weight)
    >>> weight.data[0] = 0.0  # which torch does not count
    >>> fingerprint(weight) == before
    False
    """
    return tensor.data_ptr(), _edits(tensor), _checksum(tensor)


def model_fingerprint(model: Any) -> tuple[Any, ...]:
    """What differs between two looks at `model` if weights, buffers or forward hooks do.

    >>> model = torch.nn.Linear(2, 2)
    >>> before = model_fingerprint(model)
    >>> _ = torch.nn.init.zeros_(model.weight)
    >>> model_fingerprint(model) == before
    False
    """
    modules = list(model.modules())
    buffers = [buffer for module in modules for buffer in module.buffers(recurse=False)]
    hooks = [(*module._forward_pre_hooks, *module._forward_hooks) for module in modules]
    return (
        *(fingerprint(weight) for weight in model.parameters()),
        *(_buffer(buffer) for buffer in buffers),
        *(added for added in hooks if added),  # torch gives every hook a number of its own
    )


def _buffer(buffer: Shaped[Tensor, ...]) -> tuple[Any, ...]:
    """As `fingerprint`, where `buffer` holds dense numbers; masks can be as large as a context
    squared, and no one edits them behind torch's back.
    """
    if buffer.is_floating_point() and buffer.layout is torch.strided:
        return fingerprint(buffer)
    return id(buffer), _edits(buffer)


def _edits(tensor: Tensor) -> int | None:
    """How often torch saw `tensor` edited in place; None where it does not count."""
    return None if tensor.is_inference() else tensor._version


def _checksum(tensor: Tensor) -> float | None:
    """The values of `tensor` summed with a weight for every row and column, so that values that
    change signs or places change it, too; None where the sum is not finite.
    """
    with plain_arithmetic(tensor.device), torch.no_grad():
        rows = torch.atleast_2d(tensor).flatten(0, -2)
        rows = rows if rows.is_floating_point() else rows.double()
        by_row, by_column = (_cosines(n, rows.dtype, rows.device) for n in rows.shape)
        total = float(by_row @ (rows @ by_column))
    return total if math.isfinite(total) else None


KEPT = 1 << 20
"""Up to so many weights of a checksum are computed once; more would only take up memory."""


def _cosines(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(n,) cos 0, cos 1, …: what a checksum weights its rows and columns by."""
    if n <= KEPT:
        return _kept_cosines(1 << n.bit_length(), dtype, device)[:n]
    return torch.arange(n, dtype=dtype, device=device).cos()


@functools.lru_cache(maxsize=64)
def _kept_cosines(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.arange(n, dtype=dtype, device=device).cos()


class BoundedCache:
    """Tensors by key, at most `memory` bytes of them; the least recently used go first.

    >>> cache = BoundedCache(memory=8)
    >>> cache.get("a", lambda: torch.zeros(2)).nbytes, cache.get("b", lambda: torch.ones(1)).nbytes
    (8, 4)
    >>> list(cache.tensors)
    ['b']
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.tensors: OrderedDict[Any, Tensor] = OrderedDict()
        self._fingerprints: dict[Any, tuple[Any, ...]] = {}
        self._source: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors that are kept."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def keep_for(self, source: Any) -> None:
        """Forget everything unless `source`, the fingerprint of what the tensors are computed
        from, equals that of the last call.
        """
        if source != self._source:
            self.tensors.clear()
            self._fingerprints.clear()
            self._source = source

    def find(self, key: Any) -> Shaped[Tensor, " ..."] | None:
        """What is kept under `key`; None where nothing is, or where it was edited since."""
        value = self.tensors.get(key)
        if value is None or fingerprint(value) != self._fingerprints[key]:
            return None
        self.tensors.move_to_end(key)
        return value

    def get(self, key: Any, compute: Callable[[], Tensor]) -> Shaped[Tensor, " ..."]:
        """What is kept under `key`, computed now where `find` gives nothing."""
        value = self.find(key)
        return self.put(key, compute()) if value is None else value

    def put(self, key: Any, value: Shaped[Tensor, "*shape"]) -> Shaped[Tensor, "*shape"]:
        """Keep `value`, where it fits, and return it."""
        if value.nbytes <= self.memory:
            self.tensors[key], self._fingerprints[key] = value, fingerprint(value)
            self.tensors.move_to_end(key)
            while self.nbytes > self.memory:
                dropped, _ = self.tensors.popitem(last=False)
                del self._fingerprints[dropped]
        return value
