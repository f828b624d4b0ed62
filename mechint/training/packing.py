"""Batches of several models as one, and short examples laid end to end in shared rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.task import IGNORE, Batch


def stack(batches: Sequence[Batch]) -> Batch:
    """One Batch with a leading model axis; shorter contexts are padded on the right. A lone batch
    is a view.
    """
    if all(batch is batches[0] for batch in batches):
        return batches[0]._map(
            lambda tensor: tensor.unsqueeze(0).expand(len(batches), *tensor.shape)
        )
    if len({batch.tokens.shape[1] for batch in batches}) > 1:
        longest = max(batch.tokens.shape[1] for batch in batches)
        batches = [_pad(batch, longest) for batch in batches]
    first = batches[0]

    def stacked(name: str) -> Tensor | None:
        return (
            None
            if getattr(first, name) is None
            else torch.stack([getattr(batch, name) for batch in batches])
        )

    masks = {name: torch.stack([batch.masks[name] for batch in batches]) for name in first.masks}
    return Batch(
        torch.stack([batch.tokens for batch in batches]),
        torch.stack([batch.targets for batch in batches]),
        stacked("weights"),
        stacked("lengths"),
        masks,
    )


def stack_on(device: torch.device, batches: Sequence[Batch]) -> Batch:
    """`stack` on `device`; a batch that all models share is moved once and is a view there too."""
    if all(batch is batches[0] for batch in batches):
        batches = [batches[0].to(device)] * len(batches)
    return stack(batches).to(device)


def _pad(batch: Batch, length: int) -> Batch:
    extra = length - batch.tokens.shape[1]
    lengths = (
        torch.full((len(batch),), batch.tokens.shape[1]) if batch.lengths is None else batch.lengths
    )

    def pad(tensor: Tensor, value: int) -> Tensor:
        return torch.nn.functional.pad(
            tensor, [0, 0] * (tensor.dim() - 2) + [0, extra], value=value
        )

    weights = None if batch.weights is None else pad(batch.weights, 0)
    return Batch(
        pad(batch.tokens, 0),
        pad(batch.targets, IGNORE),
        weights,
        lengths,
        {name: pad(mask, 0) for name, mask in batch.masks.items()},
    )


@dataclass(frozen=True)
class Multiples:
    """What the sizes of a layout are rounded up to multiples of: rows of the grid, slots of a row,
    and reads or distinct tokens. Batches of examples of many lengths then have few shapes.
    """

    rows: int = 1
    slots: int = 1
    reads: int = 1


EXACT, FEW_SHAPES = Multiples(), Multiples(rows=2, slots=8, reads=64)


def round_up(number: int, multiple: int) -> int:
    """The first multiple that is not below `number`.

    >>> round_up(61, 8), round_up(64, 8)
    (64, 64)
    """
    return -(-number // multiple) * multiple


@dataclass(frozen=True)
class Grid:
    """Where the tokens of a stacked batch lie: in rows of slots, each row one example, or several
    short ones end to end.

    tokens, positions (model, row, slot), positions counted within the example; example (model, row,
    slot), -1 at padding, or None where every row is one example without any; reads (model, read)
    flat slots that are read, in the batch's order.
    """

    tokens: Tensor
    positions: Tensor
    example: Tensor | None
    reads: Tensor


def lay_out(batch: Batch, reads: Int[Tensor, "model read"], multiples: Multiples = EXACT) -> Grid:
    """The grid of a stacked batch of which the flat tokens `reads` (model, read) are read."""
    tokens = batch.tokens
    positions = torch.arange(tokens.shape[-1], device=tokens.device).expand(tokens.shape)
    if batch.lengths is None:
        return Grid(tokens, positions, None, reads)
    starts, rows, width = _starts(batch.lengths, multiples)
    slots = starts.unsqueeze(-1) + positions
    real = (positions < batch.lengths.unsqueeze(-1)).flatten().nonzero().flatten()
    example = real // tokens.shape[2]
    model = example // tokens.shape[1]
    taken = slots.flatten()[real] + rows * width * model

    def laid(values: Tensor, empty: int) -> Tensor:
        flat = values.new_full((len(tokens) * rows * width,), empty)
        return flat.index_copy_(0, taken, values).view(len(tokens), rows, width)

    return Grid(
        laid(tokens.flatten()[real], 0),
        laid(real % tokens.shape[2], 0),
        laid(example % tokens.shape[1], -1),
        slots.flatten(1).gather(1, reads),
    )


def _starts(lengths: Tensor, multiples: Multiples) -> tuple[Tensor, int, int]:
    """The first flat slot of each example of `lengths` (model, example), how many rows the grid
    has, and how many slots a row.
    """
    width = round_up(int(lengths.max()), multiples.slots)
    packed = [pack(own, width) for own in lengths.tolist()]
    return (
        torch.tensor(packed, device=lengths.device),
        round_up(max(start for own in packed for start in own) // width + 1, multiples.rows),
        width,
    )


def pack(lengths: Sequence[int], width: int) -> list[int]:
    """The first flat slot of each sequence when they are laid into rows of `width` slots, the
    longest first, each where it fits best.

    >>> pack([1, 3, 2], width=3)
    [5, 0, 3]
    """
    starts, rows = [0] * len(lengths), 0
    by_room: list[list[int]] = [[] for _ in range(width + 1)]  # first free slots
    rooms = 0  # bit n is set where by_room[n] has any
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        length = lengths[index]
        enough = rooms >> length << length
        if enough:
            room = (enough & -enough).bit_length() - 1
            start = by_room[room].pop()
            if not by_room[room]:
                rooms ^= 1 << room
        else:
            room, start, rows = width, rows * width, rows + 1
        starts[index] = start
        by_room[room - length].append(start + length)
        rooms |= 1 << room - length
    return starts
