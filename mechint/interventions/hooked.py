"""Plain hooks, for `RecordedForward` on a model that only runs from its tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.activations import select_positions
from mechint.errors import ParameterError
from mechint.interventions.sites import ResidSite
from mechint.interventions.values import Intervention
from mechint.models.protocol import Capability, capabilities, check_edits
from mechint.progress import counting_within

_added: WeakKeyDictionary[Any, set[int]] = WeakKeyDictionary()
"""Model → blocks in which what attention writes was found to be added to the stream before."""


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
    """The residual stream at `site`; between attention and MLP what attention adds to it.

    Raises:
        ParameterError: as `check_adds`.
    """
    names = [site.writer(depth)]
    if site.after_attention:
        check_adds(model, tokens, site.layer)
        names.append(f"blocks.{site.layer}.hook_resid_pre")
    _, found = record(model, tokens, names)
    return torch.stack(list(found.values())).sum(0)


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
                    f"{ResidSite.mid(layer)}: a {kind} of this configuration does not add what "
                    "attention writes to the residual stream before the block, so that the stream "
                    "there is not their sum; choose a site before or after the block"
                )
    _added.setdefault(model, set()).add(layer)


def logits_under_each(
    model: Any,
    tokens: Int[Tensor, "example pos"],
    answer_positions: Int[Tensor, " example"],
    base: Float[Tensor, "example d_vocab_out"],
    activations: Mapping[str, Tensor],
    interventions: Sequence[Intervention],
    at_once: int,
) -> Float[Tensor, "intervention example d_vocab_out"]:
    """Logits at the answers under each intervention alone, `at_once` of them on stacked copies of
    the inputs. One that changes nothing of the `activations` recorded has the logits `base`.
    """
    check_edits(model, [one.site.hook for one in interventions])
    result = torch.stack([base] * len(interventions))
    changing = [
        index
        for index, one in enumerate(interventions)
        if _changes(activations, one, answer_positions)
    ]
    with counting_within("interventions") as count:
        for start in range(0, len(changing), at_once):
            count(start, len(changing))
            part = changing[start : start + at_once]
            hooks = [
                (
                    interventions[index].site.hook,
                    _edit_of(row, interventions[index], answer_positions),
                )
                for row, index in enumerate(part)
            ]
            with torch.no_grad():
                logits = model.run_with_hooks(tokens.repeat(len(part), 1), fwd_hooks=hooks)
            logits = select_positions(logits, answer_positions.repeat(len(part)))
            result[part] = logits.unflatten(0, (len(part), -1))
    return result


def _changes(activations: Mapping[str, Tensor], one: Intervention, positions: Tensor) -> bool:
    """Return whether an intervention changes the activation, where that was recorded."""
    before = activations.get(one.site.hook)
    return before is None or not torch.equal(one.apply(before, positions), before)


def _edit_of(row: int, one: Intervention, answer_positions: Tensor) -> Any:
    """A hook that applies an intervention to copy `row` of the inputs alone."""

    def edit(activation: Tensor, hook: Any) -> Tensor:
        n = len(answer_positions)
        rows, activation = slice(row * n, (row + 1) * n), activation.clone()
        activation[rows] = one.apply(activation[rows], answer_positions)
        return activation

    return edit
