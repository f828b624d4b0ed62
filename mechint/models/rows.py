"""Which rows a forward computes: every position of every example, or each distinct one once.

A row is one (token, position) pair, or one position of one example, on its way through the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class BlockRows:
    """How one block goes from the rows it is given to the rows it hands on. B batch, Q queries, T
    keys, N rows out; `...` stands for the leading model axis of a stack.
    """

    keys: Tensor
    """(..., B, T) the row of each key."""
    queries: Tensor
    """(..., B, Q) which of `query_rows` each query is."""
    query_rows: Tensor | None = None
    """(..., U) the rows that ask; None: all."""
    out: Tensor | None = None
    """(..., N) which of the B·Q queries go on; None: all."""
    residual: Tensor | None = None
    """(..., N) the row whose residual stream each of them continues; None: its own."""
    mask: Tensor | None = None
    """(..., B | 1, Q, T) added to the scores, -inf where a query may not look; None: nothing."""
    table: bool = False
    """Scores are computed once for every pair of rows and looked up."""
    in_order: bool = False
    """The rows are the keys, B after B, and need no look-up."""

    @property
    def query_is_key(self) -> bool:
        """Whether every key asks, so that queries, keys and values take one product."""
        return self.query_rows is None and self.queries is self.keys and not self.table

    def each_of(self, models: int) -> BlockRows:
        """The same rows, of plain parameters so far, for every model of a stack of `models`."""
        stacked = _expanded(self, models)
        if self.queries is self.keys:
            stacked["queries"] = stacked["keys"]
        return replace(self, **stacked)


@dataclass(frozen=True)
class Layout:
    """What a forward computes: the first rows, how blocks pass rows on, and which rows are read.

    tokens, positions (..., rows); blocks: one BlockRows per block, or None for dense (rows are
    (batch, pos)); reads: (..., reads) rows of the last block's output to unembed, None for all;
    repeated: layouts of the same shapes come again and again, so that a kernel compiled for them
    pays.
    """

    tokens: Tensor
    positions: Tensor
    blocks: tuple[BlockRows, ...] | None = None
    reads: Tensor | None = None
    repeated: bool = False

    def each_of(self, models: int) -> Layout:
        """The same layout, of plain parameters so far, for every model of a stack of `models`;
        nothing is copied.
        """
        blocks = None if self.blocks is None else tuple(b.each_of(models) for b in self.blocks)
        return replace(self, **_expanded(self, models), blocks=blocks)


def _expanded(rows: BlockRows | Layout, models: int) -> dict[str, Any]:
    """The tensors of `rows` by field, each (models, *) without a copy."""
    values = {field.name: getattr(rows, field.name) for field in fields(rows)}
    return {
        name: value.expand(models, *value.shape)
        for name, value in values.items()
        if isinstance(value, Tensor)
    }


def dense(tokens: Int[Tensor, "*batch pos"], first_position: int = 0) -> Layout:
    """Every position of `tokens` (..., batch, pos)."""
    positions = torch.arange(
        first_position, first_position + tokens.shape[-1], device=tokens.device
    )
    return Layout(tokens, positions.expand(tokens.shape))


def rows_of(
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
