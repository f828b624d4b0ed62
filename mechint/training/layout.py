"""The compact layout: which rows a training forward computes, so that it computes no more than the loss reads.

    first block   each distinct (token, position) row once; scores once for every pair of such rows, where that is less
    in between    every token that is not padding
    last block    queries, attention output, feed-forward and unembedding at read positions only

All of it is index arithmetic on stacked batches; the mathematics stays in `mechint.models.functional`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.functional import Gather, Layout
from mechint.task import IGNORE, Batch


@dataclass(frozen=True)
class Prepared:
    """A stacked batch ready for the fast forward.

    targets (model, reads, output), IGNORE where padded; weights likewise or None; tokens (model, batch, pos).
    """

    layout: Layout
    targets: Tensor
    weights: Tensor | None
    tokens: Tensor

    @property
    def rows(self) -> int:
        """Rows of the residual stream that the widest block computes, for memory estimates."""
        assert self.layout.blocks is not None
        return max(self.layout.tokens.shape[-1], *(gather.residual.shape[-1] for gather in self.layout.blocks if gather.residual is not None), 0)


def stack(batches: Sequence[Batch]) -> Batch:
    """One Batch with a leading model axis; shorter contexts are padded on the right. A lone batch is a view."""
    if all(batch is batches[0] for batch in batches):
        return batches[0]._map(lambda tensor: tensor.unsqueeze(0).expand(len(batches), *tensor.shape))
    if len({batch.tokens.shape[1] for batch in batches}) > 1:
        longest = max(batch.tokens.shape[1] for batch in batches)
        batches = [_pad(batch, longest) for batch in batches]
    first = batches[0]

    def stacked(name: str) -> Tensor | None:
        return None if getattr(first, name) is None else torch.stack([getattr(batch, name) for batch in batches])

    masks = {name: torch.stack([batch.masks[name] for batch in batches]) for name in first.masks}
    return Batch(
        torch.stack([batch.tokens for batch in batches]), torch.stack([batch.targets for batch in batches]), stacked("weights"), stacked("lengths"), masks
    )


def _pad(batch: Batch, length: int) -> Batch:
    extra = length - batch.tokens.shape[1]
    lengths = torch.full((len(batch),), batch.tokens.shape[1]) if batch.lengths is None else batch.lengths

    def pad(tensor: Tensor, value: int) -> Tensor:
        return torch.nn.functional.pad(tensor, [0, 0] * (tensor.dim() - 2) + [0, extra], value=value)

    weights = None if batch.weights is None else pad(batch.weights, 0)
    return Batch(pad(batch.tokens, 0), pad(batch.targets, IGNORE), weights, lengths, {name: pad(mask, 0) for name, mask in batch.masks.items()})


def _selected(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Flat indices (model, n) of the True entries of mask (model, *), and whether each is one (model, n).

    Models with fewer entries are filled up with their first.
    """
    flat = mask.flatten(1)
    counts = flat.sum(1)
    n = int(counts.max())
    if bool((counts == n).all()):
        return flat.nonzero()[:, 1].view(-1, n), torch.ones(flat.shape[0], n, dtype=torch.bool, device=mask.device)
    order = flat.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :n]
    real = torch.arange(n, device=mask.device) < counts.unsqueeze(1)
    return torch.where(real, order, order[:, :1]), real


def _number(mask: Tensor) -> Tensor:
    """For each True entry of mask (model, *) how many stand before it in its model; 0 elsewhere."""
    flat = mask.flatten(1)
    return ((flat.cumsum(1) - 1) * flat).view(mask.shape)


def _distinct(tokens: Tensor, real: Tensor, d_vocab: int) -> tuple[Tensor, Tensor]:
    """Ids position·d_vocab + token of the rows that occur (U,), and each token's place among them (model, batch, pos)."""
    ids = torch.arange(tokens.shape[-1], device=tokens.device) * d_vocab + tokens
    seen = torch.zeros(tokens.shape[-1] * d_vocab, dtype=torch.int64, device=tokens.device)
    seen[ids[real]] = 1
    return seen.nonzero().flatten(), (seen.cumsum(0) - 1)[ids].clamp_min(0)


def compact(batch: Batch, config: ModelConfig) -> Prepared:
    """The layout of a stacked batch (see `stack`) for a model of `config`."""
    read = (batch.targets != IGNORE).any(-1)
    if batch.lengths is not None:
        longest = int(batch.lengths.max())
        tokens, read = batch.tokens[..., :longest], read[..., :longest]
        real = torch.arange(longest, device=tokens.device) < batch.lengths.unsqueeze(-1)
    else:
        tokens = batch.tokens
        real = torch.ones(tokens.shape, dtype=torch.bool, device=tokens.device)
    models, _, pos = tokens.shape
    positions = torch.arange(pos, device=tokens.device).expand(tokens.shape)

    selected, is_read = _selected(read)
    targets = batch.targets[..., :pos, :].flatten(1, 2).gather(1, selected.unsqueeze(-1).expand(-1, -1, batch.targets.shape[-1]))
    targets = targets.masked_fill(~is_read.unsqueeze(-1), IGNORE)
    weights = None if batch.weights is None else batch.weights[..., :pos, :].flatten(1, 2).gather(1, selected.unsqueeze(-1).expand(targets.shape))

    every, _ = _selected(real)
    rows, place = _distinct(tokens, real, config.d_vocab)
    if 2 * rows.numel() <= every.shape[1]:
        first = (rows % config.d_vocab).expand(models, -1), (rows // config.d_vocab).expand(models, -1)
        keys = place
    else:
        first = tokens.flatten(1).gather(1, every), positions.flatten(1).gather(1, every)
        keys = _number(real)
    staged = config.read_layers is not None
    blocks = []
    for index in range(config.depth):
        last = index == config.depth - 1 and not staged
        blocks.append(_gather(config, keys, real, read if last else real, selected if last else every, distinct=keys is place))
        keys = _number(real)
    reads = _number(real).flatten(1).gather(1, selected) if staged else None
    return Prepared(Layout(*first, tuple(blocks), reads), targets, weights, tokens)


def _gather(config: ModelConfig, keys: Tensor, real: Tensor, asks: Tensor, out: Tensor, distinct: bool) -> Gather:
    """One block: keys (model, batch, pos) are rows; the positions in `asks` query; `out` are their flat indices."""
    models, n_examples, pos = keys.shape
    columns = asks.flatten(0, 1).any(0).nonzero().flatten()  # positions at which anybody asks
    n_queries, n_rows = columns.numel(), int(keys.max()) + 1
    asking = keys if n_queries == pos else keys[..., columns]
    flat_out = (out // pos) * n_queries + torch.searchsorted(columns, out % pos)
    query_rows: Tensor | None
    if distinct:
        present = torch.zeros(n_rows, dtype=torch.int64, device=keys.device)
        present[asking[asks[..., columns]]] = 1
        used = present.nonzero().flatten()
        query_rows, queries = used.expand(models, -1), (present.cumsum(0) - 1)[asking].clamp_min(0)
    else:
        query_rows, queries = keys.flatten(1).gather(1, out), _number(asks[..., columns])
    everything = flat_out.shape[1] == n_examples * n_queries
    mask = _mask(config, columns, pos, real)
    table = distinct and query_rows.shape[1] * n_rows <= n_examples * n_queries * pos
    if query_rows.shape[1] == n_rows:
        query_rows, queries = None, asking
    residual = None if asks is real and not distinct else keys.flatten(1).gather(1, out)
    return Gather(keys, queries, query_rows, None if everything else flat_out, residual, mask, table)


def _mask(config: ModelConfig, columns: Tensor, pos: int, real: Tensor) -> Tensor | None:
    """(model | 1, batch | 1, query, key): False where a query may not look; None where it may look everywhere."""
    mask = torch.ones(1, 1, columns.numel(), pos, dtype=torch.bool, device=columns.device)
    if config.attention_dir == "causal":
        mask = mask & (torch.arange(pos, device=columns.device) <= columns.unsqueeze(-1))
    elif not bool(real.all()):
        mask = mask & real.unsqueeze(-2)  # causal queries never reach the padding, which is on the right
    return None if bool(mask.all()) else mask
