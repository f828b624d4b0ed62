"""The rows that a forward computes, and how each block passes them on.

A row is one vector of the residual stream. A dense forward has a row for every position of every
example; a `RowLayout` computes no more than what is read of it:

    everywhere    examples of different lengths are packed end to end into sequences of slots, and
                  do not attend to each other
    first block   each distinct (token, position) pair is one row
    last block    queries, attention output, MLP and unembedding at the slots that are read

All of it is index arithmetic; the mathematics is `mechint.models.forward`. Letters of shapes: M
models, B sequences, T slots of a sequence, Q queries of a sequence, R rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.layers import Rotation, rotation


@dataclass(frozen=True, kw_only=True)
class BlockRows:
    """The rows that one block is given, and those that it passes on."""

    keys: Tensor
    """(M, B, T) the row of each key."""
    query_rows: Tensor
    """(M, U) the rows that attend."""
    queries: Tensor
    """(M, B, Q) which of `query_rows` each query is."""
    out: Tensor
    """(M, N) which of the B·Q queries are passed on."""
    residual: Tensor
    """(M, N) the row whose residual stream each of them continues."""
    mask: Tensor | None
    """(M | 1, B | 1, Q, T) added to the scores, -inf where a query must not attend; None: zeros."""
    rotation: Rotation | None = None
    """Cosines and sines (M, R, 1, d_head) of the positions of the rows it is given, where queries
    and keys are turned by them."""


@dataclass(frozen=True)
class RowLayout:
    """The rows of a forward.

    tokens, positions: of the rows that are embedded, (M, R), or (..., batch, pos) when dense.
    blocks: one BlockRows per block; None for dense.
    reads: (M, N) the rows of the last block's output that are unembedded; None for all.
    entering: (M, N) for every block the rows that it is given at the slots that are read.
    """

    tokens: Tensor
    positions: Tensor
    blocks: tuple[BlockRows, ...] | None = None
    reads: Tensor | None = None
    entering: tuple[Tensor, ...] = ()

    @classmethod
    def dense(cls, tokens: Int[Tensor, "*batch pos"]) -> RowLayout:
        """Every position of `tokens`, in TransformerLens's shapes."""
        return cls(tokens, torch.arange(tokens.shape[-1], device=tokens.device).expand_as(tokens))

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        tokens: Int[Tensor, "M example pos"],
        reads: Int[Tensor, "M N"],
        lengths: Int[Tensor, "M example"] | None = None,
        *,
        embedded: bool = False,
    ) -> RowLayout:
        """The layout of a stacked batch.

        Args:
            reads: flat positions ``example * n_pos + position`` whose logits are wanted.
            lengths: of the examples; what follows is padding. None: all are full.
            embedded: the forward begins with the residual stream of every position before some
                block, (M, example · pos, d_model), in place of the embedding.
        """
        grid = Grid.of(tokens, reads, lengths)
        filled = grid.filled
        number, (every, _) = _count_before(filled), select_flat(filled)
        mask, staged = _mask(config, grid), config.read_layers is not None
        first = [each.flatten(1).gather(1, every) for each in (grid.tokens, grid.positions)]
        positions = first[1]
        distinct, shared = False, number
        if not embedded:
            ids = grid.positions * config.d_vocab + grid.tokens
            pairs, shared = _distinct(ids, grid.tokens.shape[-1] * config.d_vocab)
            distinct = 2 * len(pairs) <= every.shape[1]
            if distinct:
                first = [pairs % config.d_vocab, pairs // config.d_vocab]
                first = [each.expand(len(tokens), -1) for each in first]
        blocks, entering = [], []
        for index in range(config.depth):
            once = distinct and index == 0
            keys = shared if once else number
            last = index == config.depth - 1 and not staged
            if index > 1 and not last:
                blocks.append(blocks[-1])
            else:
                rows = _block_rows(keys, once, grid.reads if last else every, mask)
                turned = rotation(config, first[1] if index == 0 else positions)
                blocks.append(replace(rows, rotation=turned))
            entering.append(keys.flatten(1).gather(1, grid.reads))
        read = number.flatten(1).gather(1, grid.reads) if staged else None
        return cls(first[0], first[1], tuple(blocks), read, tuple(entering))

    @classmethod
    def at(
        cls,
        config: ModelConfig,
        tokens: Int[Tensor, "example pos"],
        positions: Int[Tensor, " example"],
        *,
        embedded: bool = False,
    ) -> RowLayout:
        """The layout of one model that is read at one position of each example."""
        first = tokens.shape[1] * torch.arange(len(tokens), device=tokens.device)
        return cls.of(config, tokens[None], (first + positions)[None], embedded=embedded)


def gather_rows(
    x: Shaped[Tensor, " ..."], index: Int[Tensor, " ..."], stacked: bool
) -> Shaped[Tensor, " ..."]:
    """x (..., rows, *) at `index` (..., *) of rows; the gradient is a scatter-add."""
    if not stacked:
        return x.flatten(1).index_select(0, index.flatten()).view(*index.shape, *x.shape[1:])
    models, rows = x.shape[:2]
    if models > 1:
        first = rows * torch.arange(models, device=index.device)
        index = index + first.view(-1, *[1] * (index.dim() - 1))
    flat = x.reshape(models * rows, -1).index_select(0, index.flatten())
    return flat.view(*index.shape, *x.shape[2:])


# --- one block ------------------------------------------------------------------------------------
def _block_rows(
    keys: Int[Tensor, "M B T"],
    distinct: bool,
    out: Int[Tensor, "M N"],
    mask: Float[Tensor, "#M #B T T"] | None,
) -> BlockRows:
    """One block that is given the rows `keys` and passes on the flat slots `out`."""
    attending, rank = _queue(out, keys)
    rows = keys.gather(2, attending)  # (M, B, Q)
    flat_out = (out // keys.shape[2]) * attending.shape[2] + rank
    residual = keys.flatten(1).gather(1, out)
    if distinct:
        used, queries = _distinct(rows, int(keys.max()) + 1 if keys.numel() else 0)
        query_rows = used.expand(len(keys), -1)
    else:
        query_rows = residual
        numbers = torch.arange(out.shape[1], device=out.device).expand_as(out)
        queries = torch.zeros_like(rows).flatten(1).scatter_(1, flat_out, numbers).view_as(rows)
    return BlockRows(
        keys=keys,
        query_rows=query_rows,
        queries=queries,
        out=flat_out,
        residual=residual,
        mask=_mask_of(mask, attending),
    )


def _queue(out: Tensor, keys: Tensor) -> tuple[Int[Tensor, "M B Q"], Int[Tensor, "M N"]]:
    """The slots of each sequence that are among the flat slots `out`, its first again where it has
    fewer than others; and the place of each of `out` among them.
    """
    attends = torch.zeros_like(keys, dtype=torch.bool).flatten(1).scatter_(1, out, True)
    attends = attends.view_as(keys)
    rank = attends.cumsum(2).sub_(1)
    most = int(rank[..., -1].max()) + 1 if keys.numel() else 0
    slots = torch.arange(keys.shape[2], device=keys.device).expand_as(keys)
    queue = torch.zeros(*keys.shape[:2], most + 1, dtype=torch.int64, device=keys.device)
    queue.scatter_(2, torch.where(attends, rank, most), slots)
    return queue[..., :most], rank.flatten(1).gather(1, out)


def _mask_of(mask: Tensor | None, attending: Int[Tensor, "M B Q"]) -> Tensor | None:
    """The rows `attending` of the mask (M | 1, B | 1, T, T); None where they are all zero."""
    if mask is None or not attending.numel():
        return None
    first = attending[0, 0]
    if bool((attending == first).all()):
        part = mask[..., first, :]
        return part if bool(part.any()) else None
    sequences, slots = mask.shape[0] * mask.shape[1], mask.shape[2]
    starts = slots * torch.arange(sequences, device=mask.device).view(*mask.shape[:2], 1)
    return gather_rows(mask.flatten(0, 2), starts + attending, stacked=False)


def _mask(config: ModelConfig, grid: Grid) -> Float[Tensor, "#M #B T T"] | None:
    """(M | 1, B | 1, query, key) -inf where a query must not attend; None for no such place."""
    slots = torch.arange(grid.tokens.shape[-1], device=grid.tokens.device)
    later = slots > slots[:, None]
    mask = torch.zeros(1, 1, *later.shape, device=slots.device)
    causal = config.attention_dir == "causal"
    if causal:
        mask = mask.masked_fill(later, -torch.inf)
    if grid.example is not None and causal:  # nor before the first slot of its example
        starts = slots - grid.positions
        before = torch.zeros(later.shape, device=slots.device).masked_fill(later.mT, -torch.inf)
        mask = before.index_select(0, starts.flatten()).view(*starts.shape, -1).add_(mask)
    elif grid.example is not None:
        same = grid.example[..., None] == grid.example[..., None, :]
        mask = torch.where(same, mask, -torch.inf)
    return mask if bool(mask.any()) else None


# --- packing --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Grid:
    """Slots of sequences, each one example, or several short ones end to end.

    tokens, positions: (M, B, T), positions counted within the example. example: (M, B, T), -1 at
    padding, or None where every sequence is one full example. reads: (M, N) flat slots.
    """

    tokens: Tensor
    positions: Tensor
    example: Tensor | None
    reads: Tensor

    @property
    def filled(self) -> Bool[Tensor, "M B T"]:
        """True for each slot that holds a token."""
        if self.example is None:
            return torch.ones(self.tokens.shape, dtype=torch.bool, device=self.tokens.device)
        return self.example >= 0

    @classmethod
    def of(
        cls,
        tokens: Int[Tensor, "M example pos"],
        reads: Int[Tensor, "M N"],
        lengths: Int[Tensor, "M example"] | None,
    ) -> Grid:
        """Examples packed into sequences as long as the longest; without lengths as they are."""
        positions = torch.arange(tokens.shape[-1], device=tokens.device).expand_as(tokens)
        if lengths is None:
            return cls(tokens, positions, None, reads)
        width = int(lengths.max())
        starts = torch.tensor([pack(own, width) for own in lengths.tolist()], device=tokens.device)
        sequences = int(starts.max()) // width + 1
        slots = starts[..., None] + positions
        real = (positions < lengths[..., None]).flatten().nonzero().flatten()
        example = real // tokens.shape[2]
        taken = slots.flatten()[real] + sequences * width * (example // tokens.shape[1])

        def placed(values: Tensor, empty: int) -> Tensor:
            flat = values.new_full((len(tokens) * sequences * width,), empty)
            return flat.index_copy_(0, taken, values).view(len(tokens), sequences, width)

        return cls(
            placed(tokens.flatten()[real], 0),
            placed(real % tokens.shape[2], 0),
            placed(example % tokens.shape[1], -1),
            slots.flatten(1).gather(1, reads),
        )


def pack(lengths: Sequence[int], width: int) -> list[int]:
    """The first flat slot of each example when they are packed into sequences of `width` slots,
    the longest first, each into the fullest sequence that has room.

    >>> pack([1, 3, 2], width=3)
    [5, 0, 3]
    """
    starts, sequences = [0] * len(lengths), 0
    open_at: list[list[int]] = [[] for _ in range(width + 1)]  # free slots left → first free slots
    rooms = 0  # bit n is set where open_at[n] has any
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        length = lengths[index]
        enough = rooms >> length << length
        if enough:
            room = (enough & -enough).bit_length() - 1
            start = open_at[room].pop()
            if not open_at[room]:
                rooms ^= 1 << room
        else:
            room, start, sequences = width, sequences * width, sequences + 1
        starts[index] = start
        open_at[room - length].append(start + length)
        rooms |= 1 << room - length
    return starts


# --- indices --------------------------------------------------------------------------------------
def select_flat(mask: Bool[Tensor, "M ..."]) -> tuple[Int[Tensor, "M N"], Bool[Tensor, "M N"]]:
    """Flat indices of the True entries of each model's mask, and whether each is one: a model with
    fewer than others has its first repeated.
    """
    flat = mask.flatten(1)
    counts = flat.sum(1)
    real = torch.arange(int(counts.max()), device=mask.device) < counts[:, None]
    order = torch.zeros(real.shape, dtype=torch.int64, device=mask.device)
    order[real] = flat.nonzero()[:, 1]
    return torch.where(real, order, order[:, :1]), real


def _count_before(mask: Bool[Tensor, "M ..."]) -> Int[Tensor, "M ..."]:
    """For each True entry how many precede it in its model; 0 elsewhere."""
    flat = mask.flatten(1)
    return ((flat.cumsum(1) - 1) * flat).view(mask.shape)


def _distinct(ids: Tensor, n: int) -> tuple[Int[Tensor, " U"], Tensor]:
    """The ids below n that occur, ascending, and for each of `ids` its place among them."""
    seen = torch.zeros(n, dtype=torch.int64, device=ids.device)
    seen[ids] = 1
    return seen.nonzero().flatten(), (seen.cumsum(0) - 1)[ids]
