"""A forward resumed from a site of the residual stream, of a model whose mathematics is held.

It is computed from the site on, after the last attention only where an answer is read, and equals a
hooked forward from the tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import ModelConfig
from mechint.errors import ParameterError
from mechint.interventions.sites import ResidSite
from mechint.models.forward import Forward
from mechint.models.protocol import (
    Capability,
    capabilities,
    has_hooks_attached,
)
from mechint.models.rows import RowLayout
from mechint.subject.activations import select_positions
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
    model: Any, tokens: Int[Tensor, "example pos"], names: Iterable[str], **options: Any
) -> tuple[Float[Tensor, "example pos _"], dict[str, Tensor]]:
    """The model's output and the activations `names`, by plain hooks; options: of its forward."""
    found: dict[str, Tensor] = {}

    def keeper(name: str) -> Any:
        def keep(activation: Tensor, hook: Any) -> None:
            found[name] = activation.detach().clone()

        return keep

    with torch.no_grad():
        hooks = [(name, keeper(name)) for name in names]
        return model.run_with_hooks(tokens, fwd_hooks=hooks, **options), found


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


def resume(
    p: Parameters,
    config: ModelConfig,
    x: Float[Tensor, "example pos d_model"],
    site: ResidSite,
    answer_positions: Int[Tensor, " example"],
) -> Float[Tensor, "example d_vocab_out"]:
    """Logits at the answers when the residual stream at `site` is x; differentiable in x.

    p: the parameters by name, as of `detached_weights`.
    """
    site = site.at_depth(config.depth)
    if site > ResidSite.pre(config.depth - 1):
        rows, forward = select_positions(x, answer_positions), Forward(p, config)
        return forward.unembed(
            forward.feed_forward(site.layer, rows) if site.after_attention else rows
        )
    forward = Forward({name: value[None] for name, value in p.items()}, config)
    no_tokens = torch.zeros(x.shape[:2], dtype=torch.int64, device=x.device)
    layout = RowLayout.at(config, no_tokens, answer_positions, embedded=True)
    rows = x.flatten(0, 1)[None]
    if site.after_attention:
        rows, site = forward.feed_forward(site.layer, rows), ResidSite.pre(site.layer + 1)
    return forward.read_out(rows, layout, start=site.layer)[0]
