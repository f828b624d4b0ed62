"""Dropout of stacked models, each with masks of its own generator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def dropout(
    tensor: Float[Tensor, "model ..."], rate: float, generators: Sequence[torch.Generator]
) -> Float[Tensor, "model ..."]:
    """Set a share `rate` of the entries to zero and scale the others up by 1 / (1 - rate).

    The mask of a model is the one that it would draw alone.
    """
    keep = 1 - rate
    if keep == 1:
        return tensor
    masks = [torch.empty_like(tensor[0]).bernoulli_(keep, generator=own) for own in generators]
    return tensor * torch.stack(masks).div_(keep)
