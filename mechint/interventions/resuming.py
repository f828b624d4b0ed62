"""Checks of models whose runs are edited: that their mathematics is held, and that what attention
writes is added to the residual stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import ParameterError
from mechint.models.protocol import (
    Capability,
    capabilities,
    has_hooks_attached,
)
from mechint.task import Batch

if TYPE_CHECKING:
    from mechint.subject import Subject

Parameters = Mapping[str, Tensor]

_added: WeakKeyDictionary[Any, set[int]] = WeakKeyDictionary()
"""Model → blocks in which what attention writes was found to be added to the stream before."""


def resumes(model: Any) -> bool:
    """Return whether forwards of `model` can be computed from a site on: by its mathematics, past
    its hook points, so not while hooks are attached, nor where an output group is read before the
    last block.
    """
    if Capability.RESUME not in capabilities(model) or has_hooks_attached(model):
        return False
    return model.config.read_layers is None


def detached_weights(model: Any) -> dict[str, Tensor]:
    """The parameters of a HookedTransformer by name, outside autograd."""
    return {name: value.detach() for name, value in model.weights().items()}


def asked(
    subject: Subject, data: Batch
) -> tuple[Int[Tensor, " example"], Int[Tensor, "example output"]]:
    """Position and targets of the answer that `subject` is asked about in each example of `data`,
    the last one where it is asked about all; position 0 and IGNORE where an example has none.

    Of all examples, before they are cut into chunks: a chunk may have no such answer.

    Raises:
        ParameterError: no example has the answer.
    """
    answer = -1 if subject.answer == "all" else subject.answer
    positions, targets = data.answers.at(answer)
    return positions.clamp_min(0), targets


def record(
    model: Any, tokens: Int[Tensor, "example pos"], names: Iterable[str]
) -> tuple[Float[Tensor, "example pos _"], dict[str, Tensor]]:
    """The model's output and the activations `names`, by plain hooks."""
    found: dict[str, Tensor] = {}

    def keeper(name: str) -> Any:
        def keep(activation: Tensor, hook: Any) -> None:
            found[name] = activation.detach().clone()

        return keep

    with torch.no_grad():
        hooks = [(name, keeper(name)) for name in names]
        return model.run_with_hooks(tokens, fwd_hooks=hooks), found


def check_adds(model: Any, tokens: Int[Tensor, "example pos"], layer: int) -> None:
    """ParameterError where block `layer` adds what its attention writes to something else than the
    stream before it, as a norm of that: what its MLP reads, where the model shows it, is then not
    the sum of the two. One forward on one example, once for each block that does.
    """
    if Capability.RESUME in capabilities(model) or layer in _added.get(model, ()):
        return
    pre, attention, mid = (
        f"blocks.{layer}.hook_{name}" for name in ("resid_pre", "attn_out", "resid_mid")
    )
    if mid in model.hook_dict:
        _, found = record(model, tokens[:1], [pre, attention, mid])
        if mid in found:  # not in blocks whose MLP stands beside attention
            off = found[mid] - found[pre] - found[attention]
            if not off.abs().max() <= 100 * torch.finfo(off.dtype).eps * found[mid].abs().max():
                kind = type(getattr(model, "original_model", model)).__name__
                raise ParameterError(
                    f"resid_mid {layer}: a {kind} of this configuration does not add what "
                    "attention writes to the residual stream before the block, so that the stream "
                    "there is not their sum; choose a site before or after the block"
                )
    _added.setdefault(model, set()).add(layer)
