"""A forward that computes only what one position per example needs.

    logits, found = forward_at(model, tokens, positions, ["blocks.0.mlp.hook_post"])

    logits = forward_embedded(model, tokens, positions, tables)  # under several embeddings

In the first block every distinct (token, position) pair is one row; in the last block attention
asks, and the MLP and the unembedding run, at the positions alone (`mechint.models.rows`). On all
pairs of a group this is a quarter of the arithmetic of a dense forward.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.foreign.untouched import plain_arithmetic
from mechint.models.forward import Forward
from mechint.models.protocol import has_hooks_attached
from mechint.models.rows import RowLayout, gather_rows

_NAME = re.compile(
    r"blocks\.(\d+)\."
    r"(hook_resid_pre|hook_attn_out|hook_resid_mid|mlp\.hook_pre|mlp\.hook_post|hook_mlp_out|"
    r"hook_resid_post|attn\.hook_pattern)"
)
"""Hooks whose rows are positions; of a pattern, those of the queries."""


class _Found(Exception):
    """Raised in a forward that has computed all that is wanted of it."""


def supports(model: Any, names: Iterable[str] = ()) -> bool:
    """Return whether `forward_at` gives what a forward of `model` with hooks would.

    It does for a HookedTransformer whose outputs all leave after the last block, at activations
    that have one row per position or query, and while nobody else's hooks are on the model.
    """
    config = getattr(model, "config", None)
    if not isinstance(config, ModelConfig) or config.read_layers is not None:
        return False
    known = all(_NAME.fullmatch(name) and name in model.hook_dict for name in names)
    return known and not has_hooks_attached(model)


def forward_at(
    model: Any,
    tokens: Int[Tensor, "example pos"],
    positions: int | Int[Tensor, " example"],
    names: Iterable[str] = (),
    *,
    logits: bool = True,
) -> tuple[Float[Tensor, "example d_vocab_out"] | None, dict[str, Tensor]]:
    """Logits at one position per example, and the activations `names` there.

    Args:
        model: a HookedTransformer that `supports` the names; its hook points do not run.
        positions: the position of each example; one number where all have the same.
        logits: False where they are not wanted: what follows the last of `names` is not computed.

    Returns:
        Logits (example, d_vocab_out), None where they are not wanted, and name → (example, width),
        or (example, head, key).

    >>> from mechint.models import build
    >>> model = build(ModelConfig(d_model=8, n_heads=2, d_vocab=5, d_vocab_out=4))
    >>> tokens = torch.tensor([[1, 2, 4], [0, 2, 4]])
    >>> torch.allclose(forward_at(model, tokens, 2)[0], model(tokens)[:, 2], atol=1e-6)
    True
    """
    model._check(tokens)
    positions = _each(positions, tokens)
    layout = RowLayout.at(model.config, tokens, positions)
    wanted, found = set(names), dict[str, Tensor]()

    def keep(name: str, tensor: Tensor) -> Tensor:
        if name in wanted:
            match = _NAME.fullmatch(name)
            assert match is not None
            if match[2] == "attn.hook_pattern":  # (1, example, head, query, key)
                only = tensor.shape[3] == 1
                query = torch.zeros_like(positions) if only else positions
                found[name] = tensor[0, torch.arange(len(tokens)), :, query]
            else:
                block = int(match[1]) + (match[2] != "hook_resid_pre")  # rows of the one it enters
                last = block == len(layout.entering)
                rows = tensor if last else gather_rows(tensor, layout.entering[block], True)
                found[name] = rows[0]
            if not logits and len(found) == len(wanted):
                raise _Found
        return tensor

    with plain_arithmetic(tokens.device), torch.no_grad(), contextlib.suppress(_Found):
        return Forward(_stacked(model), model.config, keep).logits(layout)[0], found
    return None, found


def forward_embedded(
    model: Any,
    tokens: Int[Tensor, "example pos"],
    positions: int | Int[Tensor, " example"],
    tables: Float[Tensor, "table d_vocab d_model"],
) -> Float[Tensor, "table example d_vocab_out"]:
    """Logits at one position per example with each of `tables` in place of the embedding W_E.

    A token under a table is a token of one larger embedding, so that the first block computes each
    (table, token, position) once, and every table takes part in one forward.

    >>> from mechint.models import build
    >>> model = build(ModelConfig(d_model=8, n_heads=2, d_vocab=5, d_vocab_out=4))
    >>> tokens, own = torch.tensor([[1, 2, 4], [0, 2, 4]]), model.W_E.detach()
    >>> both = forward_embedded(model, tokens, 2, torch.stack([own, 2 * own]))
    >>> torch.allclose(both[0], model(tokens)[:, 2], atol=1e-6), tuple(both.shape)
    (True, (2, 2, 4))
    """
    model._check(tokens)
    count, vocabulary = tables.shape[:2]
    config = dataclasses.replace(model.config, d_vocab=count * vocabulary)
    first = vocabulary * torch.arange(count, device=tokens.device)
    shifted = (tokens + first[:, None, None]).flatten(0, 1)
    layout = RowLayout.at(config, shifted, _each(positions, tokens).repeat(count))
    parameters = {**_stacked(model), "embed.W_E": tables.flatten(0, 1)[None]}
    with plain_arithmetic(tokens.device), torch.no_grad():
        return Forward(parameters, config).logits(layout)[0].unflatten(0, (count, -1))


def _stacked(model: Any) -> dict[str, Tensor]:
    return {name: value.detach()[None] for name, value in model.weights().items()}


def _each(positions: int | Tensor, tokens: Tensor) -> Int[Tensor, " example"]:
    """The position of each example."""
    if isinstance(positions, Tensor):
        return positions
    return torch.full((len(tokens),), positions % tokens.shape[1], device=tokens.device)
