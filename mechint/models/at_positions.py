"""A forward that computes only what one position per example needs.

    logits, found = forward_at(model, tokens, positions, ["blocks.0.mlp.hook_post"])

In the first block every distinct (token, position) pair is one row; in the last block attention
asks, and the MLP and the unembedding run, at the positions alone. On all pairs of a group this is
a quarter of the arithmetic of a dense forward, and equal to it up to rounding. The mathematics is
`mechint.models.forward`; here is only which rows it is given.

Memory: the activations of the examples given; the caller chunks them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.forward import Forward
from mechint.models.protocol import has_hooks_attached
from mechint.models.rows import RowLayout, gather_rows
from mechint.models.untouched import plain_arithmetic

BEFORE_ATTENTION = "hook_resid_pre"
AFTER_ATTENTION = (
    "hook_attn_out",
    "hook_resid_mid",
    "mlp.hook_pre",
    "mlp.hook_post",
    "hook_mlp_out",
    "hook_resid_post",
)
"""Hooks of a block whose rows are positions."""

_NAME = re.compile(r"blocks\.(\d+)\.(.+)")


def supports(model: Any, names: Iterable[str] = ()) -> bool:
    """Return whether `forward_at` gives what a forward of `model` with hooks would.

    It does for a HookedTransformer whose outputs all leave after the last block, at activations
    that have one row per position, and while nobody else's hooks are on the model.
    """
    config = getattr(model, "config", None)
    if not isinstance(config, ModelConfig) or config.read_layers is not None:
        return False
    if has_hooks_attached(model):
        return False
    kinds = (BEFORE_ATTENTION, *AFTER_ATTENTION)
    return all(
        (match := _NAME.fullmatch(name)) is not None
        and match[2] in kinds
        and name in model.hook_dict
        for name in names
    )


def forward_at(
    model: Any,
    tokens: Int[Tensor, "example pos"],
    positions: int | Int[Tensor, " example"],
    names: Iterable[str] = (),
    weights: Mapping[str, Tensor] | None = None,
) -> tuple[Float[Tensor, "example d_vocab_out"], dict[str, Tensor]]:
    """Logits at one position per example, and the activations `names` there.

    Args:
        model: a HookedTransformer that `supports` the names; its hook points do not run.
        positions: the position of each example; one number where all have the same.
        weights: parameters to use in place of the model's own, by name; those that it lacks are
            the model's.

    Returns:
        Logits (example, d_vocab_out), and name → (example, width).

    >>> from mechint.models import build
    >>> model = build(ModelConfig(d_model=8, n_heads=2, d_vocab=5, d_vocab_out=4))
    >>> tokens = torch.tensor([[1, 2, 4], [0, 2, 4]])
    >>> torch.allclose(forward_at(model, tokens, 2)[0], model(tokens)[:, 2], atol=1e-6)
    True
    """
    return AtPositions(model, tokens, positions).forward(names, weights)


class AtPositions:
    """`forward_at` for several forwards that differ in their weights: the rows and the model's own
    weights are found once. Memory: a few numbers per token.
    """

    def __init__(
        self,
        model: Any,
        tokens: Int[Tensor, "example pos"],
        positions: int | Int[Tensor, " example"],
    ) -> None:
        model._check(tokens)
        self.config: ModelConfig = model.config
        self.parameters = {name: value.detach()[None] for name, value in model.weights().items()}
        if isinstance(positions, int):
            last = positions % tokens.shape[1]
            positions = torch.full((len(tokens),), last, device=tokens.device)
        self.device, self.layout = tokens.device, RowLayout.at(self.config, tokens, positions)

    def forward(
        self, names: Iterable[str] = (), weights: Mapping[str, Tensor] | None = None
    ) -> tuple[Float[Tensor, "example d_vocab_out"], dict[str, Tensor]]:
        """Return logits and activations, as `forward_at`."""
        wanted, found = set(names), {}

        def keep(name: str, tensor: Tensor) -> Tensor:
            if name in wanted:
                found[name] = self._at_reads(name, tensor)[0]
            return tensor

        own = {name: value[None] for name, value in (weights or {}).items()}
        with plain_arithmetic(self.device), torch.no_grad():
            forward = Forward({**self.parameters, **own}, self.config, keep)
            return forward.logits(self.layout)[0], found

    def _at_reads(self, name: str, tensor: Tensor) -> Tensor:
        """The rows of activation `name` at the positions."""
        match = _NAME.fullmatch(name)
        assert match is not None
        block, entering = int(match[1]), self.layout.entering
        if match[2] == BEFORE_ATTENTION:
            return gather_rows(tensor, entering[block], True)
        last = block == len(entering) - 1
        return tensor if last else gather_rows(tensor, entering[block + 1], True)
