"""The compact layout: which rows a training forward computes, so that it computes no more than the
loss reads.

    everywhere    examples shorter than the longest share its row, end to end, and do not see
                  each other (`mechint.training.packing`)
    first block   each distinct (token, position) row once; scores once for every pair of such
                  rows, where that is less
    last block    queries, attention output, MLP and unembedding at read positions only

All of it is index arithmetic on stacked batches; the mathematics stays in `mechint.models.forward`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.rows import BlockRows, Layout, rows_of
from mechint.task import IGNORE, Batch
from mechint.training.packing import EXACT, Grid, Multiples, lay_out, round_up, stack

__all__ = ["Prepared", "compact", "stack"]


@dataclass(frozen=True)
class Prepared:
    """A stacked batch ready for the fast forward.

    targets (model, reads, output), IGNORE where padded; weights likewise or None; tokens (model,
    batch, pos).
    """

    layout: Layout
    targets: Tensor
    weights: Tensor | None
    tokens: Tensor

    @property
    def rows(self) -> int:
        """Rows of the residual stream that the widest block computes, for memory estimates."""
        assert self.layout.blocks is not None
        return max(
            self.layout.tokens.shape[-1],
            *(
                gather.residual.shape[-1]
                for gather in self.layout.blocks
                if gather.residual is not None
            ),
            0,
        )


def _selected(mask: Tensor, multiple: int) -> tuple[Tensor, Tensor]:
    """Flat indices (model, n) of the True entries of mask (model, *), and whether each is one
    (model, n); n is a multiple of `multiple`.

    Models with fewer entries are filled up with their first.
    """
    flat = mask.flatten(1)
    if len(flat) == 1:
        order = flat[0].nonzero().flatten()
        n = len(order)
        more = order[:1].expand(round_up(n, multiple) - n)
        order = torch.cat([order, more]).unsqueeze(0)
        return order, torch.arange(order.shape[1], device=mask.device).unsqueeze(0) < n
    counts = flat.sum(1)
    n = round_up(int(counts.max()), multiple)
    real = torch.arange(n, device=mask.device) < counts.unsqueeze(1)
    order = torch.zeros(real.shape, dtype=torch.int64, device=mask.device)
    order[real] = flat.nonzero()[:, 1]
    return torch.where(real, order, order[:, :1]), real


def _number(mask: Tensor) -> Tensor:
    """For each True entry of mask (model, *) how many stand before it in its model; 0 elsewhere."""
    flat = mask.flatten(1)
    return ((flat.cumsum(1) - 1) * flat).view(mask.shape)


FULL = 0.9
"""From this share of real slots on, padding is computed along: that is less than picking the others
out of the grid and back.
"""


def _distinct(ids: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The ids below n that occur (U,), and for each of `ids` its place among them."""
    seen = torch.zeros(n, dtype=torch.int64, device=ids.device)
    seen[ids] = 1
    return seen.nonzero().flatten(), (seen.cumsum(0) - 1)[ids]


def compact(batch: Batch, config: ModelConfig, multiples: Multiples = EXACT) -> Prepared:
    """The layout of a stacked batch (see `stack`) for a model of `config`, its sizes rounded up to
    `multiples` where examples have lengths.
    """
    read = (batch.targets != IGNORE).any(-1)
    if config.attention_rate < 1:  # its constant part would read the slots that fill up a row
        multiples = EXACT
    repeated = batch.lengths is None or multiples != EXACT
    multiples = EXACT if batch.lengths is None else multiples
    selected, is_read = _selected(read, multiples.reads)
    chosen = selected.unsqueeze(-1).expand(-1, -1, batch.targets.shape[-1])
    targets = (
        batch.targets.flatten(1, 2).gather(1, chosen).masked_fill(~is_read.unsqueeze(-1), IGNORE)
    )
    weights = None if batch.weights is None else batch.weights.flatten(1, 2).gather(1, chosen)

    grid = lay_out(batch, selected, multiples)
    tokens, positions = grid.tokens, grid.positions
    models = len(tokens)
    real = (
        torch.ones(tokens.shape, dtype=torch.bool, device=tokens.device)
        if grid.example is None
        else grid.example >= 0
    )
    everywhere = bool(real.float().mean() >= FULL)
    if everywhere:
        place = (
            torch.arange(real[0].numel(), device=tokens.device)
            .view(real[0].shape)
            .expand(real.shape)
        )
        every = place.flatten(1)
    else:
        place, (every, _) = _number(real), _selected(real, multiples.reads)
    rows, shared = _distinct(positions * config.d_vocab + tokens, tokens.shape[-1] * config.d_vocab)
    distinct = 2 * rows.numel() <= every.shape[1]
    if distinct:
        extra = round_up(rows.numel(), multiples.reads) - rows.numel()
        rows = torch.nn.functional.pad(rows, (0, extra))
        first = (
            (rows % config.d_vocab).expand(models, -1),
            (rows // config.d_vocab).expand(models, -1),
        )
    else:
        first = tokens.flatten(1).gather(1, every), positions.flatten(1).gather(1, every)
    staged = config.read_layers is not None
    mask, blocks = _mask(config, grid), []
    for index in range(config.depth):
        keys, once = (shared, True) if distinct and index == 0 else (place, False)
        last = index == config.depth - 1 and not staged
        if once and everywhere and not last:
            blocks.append(_shared_rows(keys, mask))
        else:
            found = _block_rows(keys, once, grid.reads if last else every, last, mask)
            blocks.append(found.with_bags(first[0].shape[-1]) if once else found)
    read_rows = place.flatten(1).gather(1, grid.reads) if staged else None
    return Prepared(
        Layout(*first, tuple(blocks), read_rows, repeated=repeated),
        targets,
        weights,
        batch.tokens,
    )


def _shared_rows(keys: Tensor, mask: Tensor | None) -> BlockRows:
    """`_block_rows` where each row that `keys` (model, row, slot) name is given once, and every
    slot asks and goes on.
    """
    n_given = int(keys.max()) + 1
    return BlockRows(
        keys=keys,
        queries=keys.view(keys.shape),  # not `keys` itself: queries take a product of their own
        residual=keys.flatten(1),
        mask=mask,
        table=n_given * n_given <= keys[0].numel() * keys.shape[2],
    )


def _block_rows(
    keys: Tensor, once: bool, out: Tensor, last: bool, mask: Tensor | None
) -> BlockRows:
    """One block: keys (model, row, slot) are the rows it is given, each `once` for all its equals;
    it hands on the flat slots `out`.
    """
    models, n_rows, slots = keys.shape
    n_given = int(keys.max()) + 1
    in_order = not once and n_given == n_rows * slots
    if in_order and not last:
        return BlockRows(keys=keys, queries=keys, mask=mask, in_order=in_order)
    asked, queue = _queues(out, keys)
    asking = keys.gather(2, asked)
    flat_out = (out // slots) * asked.shape[2] + queue
    query_rows: Tensor | None
    if once:
        used, queries = _distinct(asking, n_given)
        query_rows = used.expand(models, -1)
    else:
        query_rows, numbers = (
            keys.flatten(1).gather(1, out),
            torch.arange(out.shape[1], device=out.device).expand(out.shape),
        )
        queries = (
            torch.zeros_like(asking).flatten(1).scatter_(1, flat_out, numbers).view(asking.shape)
        )
    table = once and query_rows.shape[1] * n_given <= asking[0].numel() * slots
    if query_rows.shape[1] == n_given:
        query_rows, queries = None, asking
    residual = None if not last and not once else keys.flatten(1).gather(1, out)
    everything = flat_out.shape[1] == asking[0].numel() and bool(
        (flat_out[:, 1:] > flat_out[:, :-1]).all()
    )
    return BlockRows(
        keys=keys,
        queries=queries,
        query_rows=query_rows,
        out=None if everything else flat_out,
        residual=residual,
        mask=_mask_rows(mask, asked),
        table=table,
        in_order=in_order,
    )


def _queues(out: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """The slots that ask in each row (model, row, query), the first again where a row has fewer;
    and each of `out`'s place among them.
    """
    asks = (
        torch.zeros_like(keys, dtype=torch.bool).flatten(1).scatter_(1, out, True).view(keys.shape)
    )
    rank = asks.cumsum(2).sub_(1)
    n = int(rank[..., -1].max()) + 1
    slots = torch.arange(keys.shape[2], device=keys.device).expand(keys.shape)
    asked = torch.zeros(*keys.shape[:2], n + 1, dtype=torch.int64, device=keys.device).scatter_(
        2, torch.where(asks, rank, n), slots
    )[..., :n]
    return asked, rank.flatten(1).gather(1, out)


def _mask_rows(mask: Tensor | None, asked: Tensor) -> Tensor | None:
    """The queries `asked` (model, row, query) of the mask (model | 1, row | 1, slot, key); None
    where they may look everywhere.
    """
    if mask is None:
        return None
    first = asked[0, 0]
    if not bool((asked == first).all()):
        n_rows, slots = mask.shape[0] * mask.shape[1], mask.shape[2]
        starts = slots * torch.arange(n_rows, device=mask.device).view(*mask.shape[:2], 1)
        return rows_of(mask.flatten(0, 2), starts + asked, stacked=False)
    if len(first) == mask.shape[2]:
        return mask
    part = mask[..., first, :]
    return part if bool(part.any()) else None


def _mask(config: ModelConfig, grid: Grid) -> Tensor | None:
    """(model | 1, row | 1, query, key) float, -inf where a query may not look; None where it may
    look everywhere.
    """
    slots = torch.arange(grid.tokens.shape[-1], device=grid.tokens.device)
    later = slots > slots.unsqueeze(-1)
    everywhere = torch.zeros(1, 1, *later.shape, device=slots.device)
    causal = config.attention_dir == "causal"
    mask = everywhere.masked_fill(later, -torch.inf) if causal else everywhere
    if grid.example is not None and causal:  # not before its example's first slot either
        starts = slots - grid.positions
        before = everywhere.masked_fill(later.mT, -torch.inf)[0, 0]
        mask = before.index_select(0, starts.flatten()).view(*starts.shape, -1).add_(mask)
    elif grid.example is not None:
        same = grid.example.unsqueeze(-1) == grid.example.unsqueeze(-2)
        mask = torch.where(same, mask, mask.new_tensor(-torch.inf))
    return mask if bool(mask[0, 0].any()) or bool(mask.any()) else None
