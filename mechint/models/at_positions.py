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
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.forward import Forward
from mechint.models.pieces import no_hook
from mechint.models.protocol import has_hooks_attached
from mechint.models.rows import BlockRows, Layout
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
    """Whether `forward_at` gives what a forward of `model` with hooks at `names` would.

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
        self.parameters = {name: value.detach() for name, value in model.weights().items()}
        if isinstance(positions, int):
            last = positions % tokens.shape[1]
            positions = torch.full((len(tokens),), last, device=tokens.device)
        self.device, self.rows = tokens.device, _Rows.of(self.config, tokens, positions)

    def forward(
        self, names: Iterable[str] = (), weights: Mapping[str, Tensor] | None = None
    ) -> tuple[Float[Tensor, "example d_vocab_out"], dict[str, Tensor]]:
        """What `forward_at` returns."""
        wanted, found = set(names), {}

        def keep(name: str, tensor: Tensor) -> Tensor:
            if name in wanted:
                index = self.rows.selected(name)
                found[name] = tensor if index is None else tensor[index]
            return tensor

        parameters = {**self.parameters, **(weights or {})}
        with plain_arithmetic(self.device), torch.no_grad():
            forward = Forward(parameters, self.config, keep if wanted else no_hook)
            return forward.logits(self.rows.layout), found

    def logits_each(
        self, weights: Mapping[str, Shaped[Tensor, "model ..."]]
    ) -> Float[Tensor, "model example d_vocab_out"]:
        """The logits of several models at once, which have `weights` in place of these parameters,
        one per model, and share all others. Memory: the activations of all of them.
        """
        models = len(next(iter(weights.values())))
        stacked = {
            name: value.expand(models, *value.shape) for name, value in self.parameters.items()
        }
        layout = replace(self.rows.layout.each_of(models), repeated=True)
        with plain_arithmetic(self.device), torch.no_grad():
            return Forward({**stacked, **weights}, self.config).logits(layout)


@dataclass(frozen=True)
class _Rows:
    """Which rows each block has: `first` (example,) and `later` (example,) are the rows of the
    positions before the first block and between blocks.
    """

    layout: Layout
    first: Tensor
    later: Tensor

    @classmethod
    def of(cls, config: ModelConfig, tokens: Tensor, positions: Tensor) -> _Rows:
        n, n_ctx = tokens.shape
        device = tokens.device
        places = torch.arange(n_ctx, device=device)
        distinct, keys = torch.unique(tokens * n_ctx + places, return_inverse=True)
        examples = torch.arange(n, device=device)
        first = keys[examples, positions]  # (example,)
        later = examples * n_ctx + positions  # (example,)
        dense = torch.arange(n * n_ctx, device=device).view(n, n_ctx)
        causal = config.attention_dir == "causal"
        one = _mask(positions, n_ctx) if causal else None
        every = _later(places, n_ctx).transpose(0, 1) if causal else None  # (1, query, key)
        blocks = []
        for index in range(config.depth):
            rows = keys if index == 0 else dense
            if index < config.depth - 1:
                blocks.append(_all_rows(rows, every))
            else:
                asked = _selected_rows(rows, first if index == 0 else later, one)
                blocks.append(asked.with_bags(len(distinct)) if index == 0 else asked)
        layout = Layout(distinct // n_ctx, distinct % n_ctx, tuple(blocks))
        return cls(layout, first, later)

    def selected(self, name: str) -> Tensor | None:
        """The rows of activation `name` that stand at the positions; None where all do."""
        match = _NAME.fullmatch(name)
        assert match is not None and self.layout.blocks is not None
        block, kind = int(match[1]), match[2]
        if kind == BEFORE_ATTENTION:
            return self.first if block == 0 else self.later
        return None if block == len(self.layout.blocks) - 1 else self.later


def _mask(positions: Tensor, n_ctx: int) -> Tensor | None:
    """`_later` of the examples, (1, 1, key) where all are alike; None where no key comes after."""
    if len(positions) and bool((positions == positions[0]).all()):
        positions = positions[:1]
    return _later(positions, n_ctx) if bool((positions < n_ctx - 1).any()) else None


def _later(positions: Tensor, n_ctx: int) -> Tensor:
    """(position, 1, key) -inf where the key comes after the position, 0 elsewhere."""
    later = torch.arange(n_ctx, device=positions.device) > positions[:, None]
    return torch.zeros(later.shape, device=later.device).masked_fill(later, -torch.inf)[:, None]


def _all_rows(rows: Tensor, mask: Tensor | None) -> BlockRows:
    """Every position of every example asks; `rows` (example, key) may be the same for several."""
    return BlockRows(
        keys=rows,
        queries=rows,
        query_rows=None,
        out=None,
        residual=rows.flatten(),
        mask=mask,
        table=False,
    )


def _selected_rows(rows: Tensor, selected: Tensor, mask: Tensor | None) -> BlockRows:
    """The rows `selected` (example,) alone ask."""
    asking, queries = torch.unique(selected, return_inverse=True)
    n_rows = int(rows.max()) + 1 if rows.numel() else 0
    return BlockRows(
        keys=rows,
        queries=queries[:, None],
        query_rows=asking,
        out=None,
        residual=selected,
        mask=mask,
        table=len(asking) * n_rows <= rows.numel(),
    )
