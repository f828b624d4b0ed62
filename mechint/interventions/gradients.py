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

from mechint.interventions.resuming import detached_weights, resumes
from mechint.models.forward import Forward
from mechint.models.protocol import check_edits
from mechint.models.rows import RowLayout


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
    wanted, kept = set(names), {}

    def keep(name: str, tensor: Tensor) -> Tensor:
        if name in wanted:
            if not tensor.requires_grad:
                tensor = tensor.detach().requires_grad_()
            kept[name] = tensor
        return tensor

    with torch.enable_grad():
        if resumes(model):
            layout = RowLayout.dense(tokens)
            forward = Forward(detached_weights(model), model.config, keep)
            x = forward.embed(layout)
            x = x if x.requires_grad else x.requires_grad_()
            logits = forward.read_out(x, layout)
        else:
            check_edits(model, wanted)  # the gradient there is that of an edit
            logits = _hooked(model, tokens, wanted, keep)
        gradients = torch.autograd.grad(score(logits), list(kept.values()), allow_unused=True)
    return {
        name: (value.detach(), torch.zeros_like(value) if gradient is None else gradient)
        for (name, value), gradient in zip(kept.items(), gradients, strict=True)
    }


def _hooked(
    model: Any, tokens: Tensor, wanted: set[str], keep: Callable[[str, Tensor], Tensor]
) -> Tensor:
    def hook_of(name: str) -> Callable[..., Tensor]:
        # a copy, since the module may use the tensor elsewhere than behind the hook, too
        return lambda activation, hook: keep(name, activation.clone())

    hooks: list[tuple[str, Any]] = [(name, hook_of(name)) for name in sorted(wanted)]
    if "hook_embed" not in wanted and "hook_embed" in model.hook_dict:
        hooks.append(("hook_embed", lambda activation, hook: activation.detach().requires_grad_()))
    return model.run_with_hooks(tokens, fwd_hooks=hooks)
