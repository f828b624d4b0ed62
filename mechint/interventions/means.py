"""Means over examples, position by position, in which padding is no data."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor


class ExampleMean:
    """The mean over examples of an activation that comes in chunks: at every position over the
    examples that have it, as what stands behind the end of the others is padding.

    Args:
        n: examples.
        own: which positions each example has, (example, pos), or (example,) for an activation at
            one position, as `Batch.own_positions` says; None where it is all data. At a position
            that no example has the mean is that of the padding.

    >>> import torch
    >>> own = torch.tensor([[True, True], [True, False]])
    >>> x = torch.tensor([[[1.0], [2.0]], [[5.0], [9.0]]])
    >>> mean = ExampleMean(2, own)
    >>> mean.of(mean.sum(x, slice(None))).tolist()
    [[3.0], [2.0]]
    """

    def __init__(self, n: int, own: Bool[Tensor, "example ..."] | None = None) -> None:
        self._n, self._own = n, None if own is None else own | ~own.any(0)

    def sum(self, x: Float[Tensor, "example ..."], rows: slice | Tensor) -> Float[Tensor, " ..."]:
        """([pos,] …) of the examples `rows`, whose activation is x, without padding."""
        if self._own is None:
            return x.sum(0)
        own = self._own[rows]
        return x.where(own.reshape(own.shape + (1,) * (x.dim() - own.dim())), 0).sum(0)

    def of(self, total: Float[Tensor, " ..."]) -> Float[Tensor, " ..."]:
        """The mean, or the part of it that a chunk makes, of sums ([pos,] …)."""
        if self._own is None:
            return total / self._n
        counts = self._own.sum(0)
        return total / counts.reshape(counts.shape + (1,) * (total.dim() - counts.dim()))
