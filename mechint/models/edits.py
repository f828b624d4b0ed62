"""Hooks of a TransformerLens bridge that can be read and not edited.

A bridge runs the modules of another library and shows more than it can change: attention patterns
that the library has used already, and, as ``hook_resid_mid``, the copy of the residual stream that
the MLP is given. An intervention there would have no effect, or another one than it is named after.

Cost, once per model: two forwards and one backward on two tokens; where TransformerLens fails at an
edit, one of each per kind of hook.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mechint.models.bridge import hook_names, two_tokens
from mechint.models.untouched import evaluating, plain_arithmetic

BLOCK = re.compile(r"^blocks\.\d+\.")
ONLY_SHOWN = "TransformerLens can only show it: an edit there does not reach the logits"
BESIDE_THE_STREAM = (
    "an edit there changes what the MLP reads and not the residual stream; edit hook_attn_out of "
    "the same block, which is added to the stream there"
)

_known: WeakKeyDictionary[Any, Mapping[str, str]] = WeakKeyDictionary()


def read_only_hooks(model: Any) -> Mapping[str, str]:
    """Hook of the bridge `model` → why it cannot be edited."""
    if model not in _known:
        _known[model] = _find(model)
    return _known[model]


def _find(model: Any) -> dict[str, str]:
    points, fired = model.hook_dict, hook_names(model)
    names = {id(points[name]): name for name in sorted(fired)}  # one of each point's names
    shown = {id(points[name]) for name in _without_effect(model, names.values())}
    found = {name: ONLY_SHOWN for name in fired if id(points[name]) in shown}
    # of its own it has none: it stands for the input of the norm or of the MLP that reads it
    beside = {
        name: BESIDE_THE_STREAM
        for name in fired
        if name.endswith(".hook_resid_mid") and str(points[name].name).endswith(".hook_in")
    }
    return beside | found


def _without_effect(model: Any, names: Iterable[str]) -> set[str]:
    """Those of the hooks `names` where what a hook returns does not reach the logits."""
    every = set(names)
    try:
        return _unreached(model, every)
    except Exception:  # what TransformerLens cannot put back, e.g. a norm without weights, by kind
        found: set[str] = set()
        for kind in {BLOCK.sub("", name) for name in every}:
            alike = {name for name in every if BLOCK.sub("", name) == kind}
            try:
                found |= _unreached(model, alike)
            except Exception:  # nor by kind: none of these can be edited
                found |= alike
        return found


def _unreached(model: Any, names: set[str]) -> set[str]:
    """Those of `names` to whose edits the logits are not connected by autograd: exact where a small
    effect could be taken for none.
    """
    added: dict[str, list[Tensor]] = {name: [] for name in names}

    def adding_nothing(name: str) -> Callable[..., Tensor | None]:
        def add(activation: Any, hook: Any) -> Tensor | None:
            if not isinstance(activation, Tensor) or not activation.is_floating_point():
                return None
            zeros = torch.zeros_like(activation, requires_grad=True)
            added[name].append(zeros)
            return activation + zeros

        return add

    tokens = two_tokens(model)
    hooks = [(name, adding_nothing(name)) for name in sorted(names)]
    with (
        plain_arithmetic(tokens.device),
        torch.enable_grad(),
        evaluating(model),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # norms are computed in another way, to the same values
        logits = model.run_with_hooks(tokens, fwd_hooks=hooks)
        flat = [(name, zeros) for name, several in added.items() for zeros in several]
        if not flat:
            return set()
        gradients = torch.autograd.grad(
            logits.sum(), [zeros for _, zeros in flat], allow_unused=True
        )
    reached = {
        name for (name, _), gradient in zip(flat, gradients, strict=True) if gradient is not None
    }
    return {name for name, _ in flat} - reached
