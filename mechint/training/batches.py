"""Batches of several models as one, with a leading model axis."""

from __future__ import annotations

from collections.abc import Sequence

import torch
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
