"""Tensors kept in bounded memory, until they or the model they were computed from is edited.

    cache = BoundedCache(memory=1 << 29)
    cache.keep_for(model_version(model))       # forgets everything where the model has changed
    cache.get("logits", compute)               # computed again where the kept tensor was edited

Edits are those that torch counts: not those through ``.data`` or a numpy view. After one of these
to the model `Subject.with_model` gives a subject that has cached nothing; what is handed out is
what is kept, so clone it first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor


def model_version(model: Any) -> tuple[Any, ...]:
    """Version of `model`: another after torch saw an edit of a weight or buffer, and after forward
    hooks were added or removed. Cost: no value is read.

    >>> model = torch.nn.Linear(2, 2)
    >>> before = model_version(model)
    >>> _ = torch.nn.init.zeros_(model.weight)
    >>> model_version(model) == before
    False
    """
    modules = list(model.modules())
    buffers = [buffer for module in modules for buffer in module.buffers(recurse=False)]
    hooks = [(*module._forward_pre_hooks, *module._forward_hooks) for module in modules]
    return (
        *(version(tensor) for tensor in (*model.parameters(), *buffers)),
        *(added for added in hooks if added),  # torch gives every hook a number of its own
    )


def version(tensor: Shaped[Tensor, " ..."]) -> tuple[Any, ...]:
    """Address of the values, and how often torch saw them edited; None where it does not count."""
    where = tensor.data_ptr() if tensor.layout is torch.strided else id(tensor)
    return where, None if tensor.is_inference() else tensor._version


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
        self._versions: dict[Any, tuple[Any, ...]] = {}
        self._source: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors that are kept."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def keep_for(self, source: Any) -> None:
        """Forget everything unless `source`, the version of what the tensors are computed from,
        equals that of the last call.
        """
        if source != self._source:
            self.tensors.clear()
            self._source = source

    def find(self, key: Any) -> Shaped[Tensor, " ..."] | None:
        """Return the tensor kept under `key`; None where there is none, or it was edited since."""
        value = self.tensors.get(key)
        if value is None or version(value) != self._versions[key]:
            return None
        self.tensors.move_to_end(key)
        return value

    def get(self, key: Any, compute: Callable[[], Tensor]) -> Shaped[Tensor, " ..."]:
        """Return the tensor kept under `key`, computed now where `find` gives nothing."""
        value = self.find(key)
        return self.put(key, compute()) if value is None else value

    def put(self, key: Any, value: Shaped[Tensor, "*shape"]) -> Shaped[Tensor, "*shape"]:
        """Keep `value`, where it fits, and return it."""
        if value.nbytes <= self.memory:
            self.tensors[key], self._versions[key] = value, version(value)
            self.tensors.move_to_end(key)
            while self.nbytes > self.memory:
                self.tensors.popitem(last=False)
        return value
