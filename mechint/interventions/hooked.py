"""What `RecordedForward` does on a model that only runs from its tokens: plain hooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.activations import select_positions
from mechint.interventions.sites import ResidSite
from mechint.interventions.values import Intervention, hooks_of
from mechint.models.protocol import check_edits


def record(
    model: Any,
    tokens: Int[Tensor, "example pos"],
    names: Iterable[str],
    edits: Sequence[tuple[str, Any]] = (),
) -> tuple[Float[Tensor, "example pos d_vocab_out"], dict[str, Tensor]]:
    """Logits, and the activations `names` as they are after the hooks `edits`."""
    found: dict[str, Tensor] = {}

    def keeper(name: str) -> Any:
        def keep(activation: Tensor, hook: Any) -> None:
            found[name] = activation.detach().clone()

        return keep

    hooks = [*edits, *((name, keeper(name)) for name in names)]
    with torch.no_grad():
        logits = model.run_with_hooks(tokens, fwd_hooks=hooks)
    return logits, found


def residual(
    model: Any, tokens: Int[Tensor, "example pos"], site: ResidSite, depth: int
) -> Float[Tensor, "example pos d_model"]:
    """The residual stream at `site`; between attention and MLP what attention adds to it."""
    names = [site.writer(depth)]
    if site.after_attention:
        names.append(f"blocks.{site.layer}.hook_resid_pre")
    _, found = record(model, tokens, names)
    return torch.stack(list(found.values())).sum(0)


def change(
    model: Any,
    tokens: Int[Tensor, "example pos"],
    answer_positions: Int[Tensor, " example"],
    intervention: Intervention,
    name: str,
) -> Float[Tensor, "example ..."]:
    """What an intervention changes at hook `name`, by the difference of two forwards."""
    check_edits(model, [intervention.site.hook])
    edits = hooks_of([intervention], answer_positions)
    _, before = record(model, tokens, [name])
    _, after = record(model, tokens, [name], edits)
    return after[name] - before[name]


def logits_under_each(
    model: Any,
    tokens: Int[Tensor, "example pos"],
    answer_positions: Int[Tensor, " example"],
    interventions: Sequence[Intervention],
) -> Float[Tensor, "intervention example d_vocab_out"]:
    """Logits at the answers under each intervention alone, on stacked copies of the inputs."""
    check_edits(model, [one.site.hook for one in interventions])
    n = len(tokens)
    hooks: list[tuple[str, Any]] = []
    for index, one in enumerate(interventions):

        def edit(activation: Tensor, hook: Any, index: int = index, one: Any = one) -> Tensor:
            rows = slice(index * n, (index + 1) * n)
            activation = activation.clone()
            activation[rows] = one.apply(activation[rows], answer_positions)
            return activation

        hooks.append((one.site.hook, edit))
    with torch.no_grad():
        logits = model.run_with_hooks(tokens.repeat(len(interventions), 1), fwd_hooks=hooks)
    positions = answer_positions.repeat(len(interventions))
    return torch.unflatten(select_positions(logits, positions), 0, (len(interventions), -1))
