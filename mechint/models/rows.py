"""Which rows a forward computes: every position of every example, or each distinct one once.

A row is one (token, position) pair, or one position of one example, on its way through the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor


@dataclass(frozen=True)
class KeyBags:
    """The keys of examples, for sums over them: keys (..., B, T) are rows, of which each model has
    `n_rows`. Sums are of plain tensors, without a gradient.
    """

    keys: Tensor
    n_rows: int

    @cached_property
    def _rows(self) -> Tensor:
        """(model * B, T) the keys' rows among those of all models."""
        keys = self.keys.reshape(-1, *self.keys.shape[-2:])
        return _of_all_models(keys, len(keys), self.n_rows).flatten(0, 1)

    @cached_property
    def _examples(self) -> tuple[Tensor, Tensor]:
        """(model * B * T,) the examples row by row, once for each key that the row is of them, and
        (model * n_rows,) where those of each row begin.
        """
        rows, order = self._rows.flatten().sort(stable=True)
        every = torch.arange(self.n_rows * self.keys[..., 0, 0].numel(), device=rows.device)
        return order // self.keys.shape[-1], torch.searchsorted(rows, every)

    def by_example(self, x: Float[Tensor, "*model row d"]) -> Float[Tensor, "every_example d"]:
        """The sum of every example's keys' rows of x, of all models' examples."""
        return F.embedding_bag(self._rows, x.reshape(-1, x.shape[-1]), mode="sum")

    def by_row(self, y: Float[Tensor, "*model example d"]) -> Float[Tensor, "every_row d"]:
        """The sum over the keys that every row is of y at their examples, of all models' rows."""
        examples, starts = self._examples
        return F.embedding_bag(examples, y.reshape(-1, y.shape[-1]), starts, mode="sum")


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
    bags: KeyBags | None = None
    """The keys once more, where every example asks once, of all its keys, and with the same row.
    Attention may then go another way, past the hooks within it.
    """

    @property
    def query_is_key(self) -> bool:
        """Whether every key asks, so that queries, keys and values take one product."""
        return self.query_rows is None and self.queries is self.keys and not self.table

    def each_of(self, models: int) -> BlockRows:
        """The same rows, of plain parameters so far, for every model of a stack of `models`."""
        stacked = _expanded(self, models)
        if self.queries is self.keys:
            stacked["queries"] = stacked["keys"]
        bags = self.bags and KeyBags(stacked["keys"], self.bags.n_rows)
        return replace(self, **stacked, bags=bags)

    def with_bags(self, n_rows: int) -> BlockRows:
        """The same, with `bags` where they serve; it is given `n_rows` rows."""
        alike = self.query_rows is not None and self.query_rows.shape[-1] == 1
        if not (self.table and alike and self.queries.shape[-1] == 1):
            return self
        if self.out is not None or self.mask is not None:
            return self
        return replace(self, bags=KeyBags(self.keys, n_rows))


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


def _of_all_models(index: Tensor, models: int, rows: int) -> Tensor:
    """`index` (model, *) of each model's `rows` rows as that among the rows of all `models`."""
    first = rows * torch.arange(models, device=index.device)
    return index + first.view(-1, *[1] * (index.dim() - 1))


def rows_of(
    x: Shaped[Tensor, " ..."], index: Int[Tensor, " ..."], stacked: bool
) -> Shaped[Tensor, " ..."]:
    """x (..., rows, *) at `index` (..., *) of rows; the gradient is a scatter-add."""
    if not stacked:
        return x.flatten(1).index_select(0, index.flatten()).view(*index.shape, *x.shape[1:])
    models, rows = x.shape[:2]
    if models > 1:
        index = _of_all_models(index, models, rows)
    flat = x.reshape(models * rows, -1).index_select(0, index.flatten())
    return flat.view(*index.shape, *x.shape[2:])
