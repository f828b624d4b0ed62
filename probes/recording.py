"""Several activations of one forward, in chunks of examples: what `Subject.activation` does for one
hook at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mechint.errors import MechintError
from mechint.subject import Subject


def chunks(
    subject: Subject, hooks: Mapping[str, int | None]
) -> Iterator[tuple[slice, dict[str, Tensor]]]:
    """Which examples, and their activations: (example, …) at a position, (example, pos, …) where it
    is None.

    Cost: one forward a chunk. Memory: the activations of one chunk.

    Args:
        hooks: hook name → position; of attention patterns the query's.

    Raises:
        UnknownNameError: no such hook. MechintError: an activation is not finite.
    """
    tokens = subject.data.tokens
    for start in range(0, len(tokens), subject.chunk):
        part = slice(start, min(start + subject.chunk, len(tokens)))
        yield part, record(subject, tokens[part], hooks)


def record(subject: Subject, tokens: Tensor, hooks: Mapping[str, int | None]) -> dict[str, Tensor]:
    """The activations of one forward on `tokens` (example, pos); see `chunks`."""
    found: dict[str, Tensor] = {}

    def keep(tensor: Tensor, hook: Any) -> None:
        pos = hooks[hook.name]
        axis = 2 if hook.name.endswith(("hook_pattern", "hook_attn_scores")) else 1
        found[hook.name] = tensor.detach() if pos is None else tensor.detach().select(axis, pos)

    with torch.no_grad():
        subject.model.run_with_hooks(
            tokens, fwd_hooks=[(subject.check_hook(name), keep) for name in hooks]
        )
    for name, value in found.items():
        if not bool(torch.isfinite(value).all()):
            raise MechintError(f"activation {name} of {subject.describe()} is not finite")
    return found


def residual_points(subject: Subject) -> dict[str, str]:
    """Name → hook of the residual stream, from the embedding to the end: "embedding", "L0
    attention", "L0 feed-forward", …
    """
    known, points = subject.model.hook_dict, {"embedding": "blocks.0.hook_resid_pre"}
    for layer in range(subject.n_layers):
        if f"blocks.{layer}.hook_resid_mid" in known:
            points[f"L{layer} attention"] = f"blocks.{layer}.hook_resid_mid"
            points[f"L{layer} feed-forward"] = f"blocks.{layer}.hook_resid_post"
        else:
            points[f"L{layer} attention"] = f"blocks.{layer}.hook_resid_post"
    return points


def component_hooks(subject: Subject) -> Sequence[str]:
    """Hooks of everything that adds to the residual stream, heads as their ``hook_z``."""
    names = ["hook_embed", "hook_pos_embed"]
    for layer in range(subject.n_layers):
        names += [f"blocks.{layer}.attn.hook_z", f"blocks.{layer}.hook_mlp_out"]
    return [name for name in names if name in subject.model.hook_dict]
