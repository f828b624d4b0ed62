"""A module called with other tensors in place of its parameters, which are its own again after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


def call_with_weights(module: nn.Module, weights: Mapping[str, Tensor], arguments: Any) -> Any:
    """``module(*arguments)`` with `weights`, by parameter name, in place of its own.

    A parameter that stands at several places (an embedding that is the unembedding) is replaced at
    all of them, unless another name of it is given as well. A module that is reached by two names
    is replaced once: torch would leave the replacement in it.

    >>> import torch
    >>> layer = nn.Linear(1, 1, bias=False)
    >>> both = nn.ModuleDict({"a": layer, "b": layer})
    >>> both.forward = lambda x: both["a"](x)
    >>> call_with_weights(both, {"a.weight": torch.tensor([[3.0]])}, (torch.ones(1),)).item()
    3.0
    >>> layer.weight.is_leaf
    True
    """
    known = dict(module.named_parameters(remove_duplicate=False))
    shared = {
        other: value
        for name, value in weights.items()
        for other, parameter in known.items()
        if parameter is known[name] and other not in weights
    }
    places: dict[tuple[int, str], tuple[str, Tensor]] = {}
    for name, value in {**weights, **shared}.items():
        path, _, attribute = name.rpartition(".")
        places.setdefault((id(module.get_submodule(path)), attribute), (name, value))
    return functional_call(module, dict(places.values()), arguments, tie_weights=False)
