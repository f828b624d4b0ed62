"""Activations of a forward with the gradient of a score at them, for first-order estimates."""

# hooks and torch.func are untyped
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnnecessaryComparison=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.models.protocol import check_edits


def activation_gradients(
    model: Any,
    tokens: Int[Tensor, "example pos"],
    names: Iterable[str],
    score: Callable[[Tensor], Tensor],
) -> dict[str, tuple[Float[Tensor, "example ..."], Float[Tensor, "example ..."]]]:
    """Hook → its activation and the gradient of ``score(logits)`` there, from one backward.

    Args:
        score: of the logits (example, pos, d_vocab_out), a scalar.

    Raises:
        ParameterError: a hook that the model can only show.
    """
    names, kept = sorted(set(names)), dict[str, Tensor]()
    check_edits(model, names)  # the gradient there is that of an edit

    def keeper(name: str) -> Callable[..., Tensor]:
        def keep(activation: Tensor, hook: Any) -> Tensor:
            # a copy, since the module may use the tensor elsewhere than behind the hook, too
            kept[name] = activation.clone() if activation.requires_grad else _leaf(activation)
            return kept[name]

        return keep

    hooks: list[tuple[str, Any]] = [(name, keeper(name)) for name in names]
    if "hook_embed" not in names and "hook_embed" in model.hook_dict:
        hooks.append(("hook_embed", lambda activation, hook: _leaf(activation)))
    with torch.enable_grad():
        logits = model.run_with_hooks(tokens, fwd_hooks=hooks)
        gradients = torch.autograd.grad(score(logits), list(kept.values()), allow_unused=True)
    return {
        name: (value.detach(), torch.zeros_like(value) if gradient is None else gradient)
        for (name, value), gradient in zip(kept.items(), gradients, strict=True)
    }


def _leaf(activation: Tensor) -> Tensor:
    return activation.detach().clone().requires_grad_()
