"""Dropout of stacked models, each with masks of its own generator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
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
    mask = torch.stack([_draw_mask(keep, tensor[0], own) for own in generators])
    return tensor * mask.to(tensor.dtype).div_(keep)


def _draw_mask(keep: float, like: Tensor, generator: torch.Generator) -> Bool[Tensor, " ..."]:
    """True with probability `keep` to within 2⁻¹⁷, in the shape of `like`; each 64-bit number drawn
    decides four entries.
    """
    drawn = torch.empty(-(-like.numel() // 4), dtype=torch.int64, device=like.device).random_(
        -(2**63), None, generator=generator
    )
    return (drawn.view(torch.int16)[: like.numel()] < round(keep * 2**16) - 2**15).view(like.shape)
