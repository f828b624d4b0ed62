"""Loss and accuracy of stacked logits against stacked targets, for several output groups, each
model by itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mechint.task import IGNORE


def groups(sizes: Sequence[int]) -> list[slice]:
    """The columns of each output group.

    >>> groups((2, 3))
    [slice(0, 2, None), slice(2, 5, None)]
    """
    ends = itertools.accumulate(sizes, initial=0)
    return [slice(start, end) for start, end in itertools.pairwise(ends)]


def cross_entropies(
    logits: Tensor, targets: Tensor, weights: Tensor | None, sizes: Sequence[int]
) -> Tensor:
    """Mean cross-entropy (model, output) in nats over the reads that have a target.

    Args:
        logits: (model, reads, classes of all groups).
        targets: (model, reads, output), IGNORE where nothing is read.
        weights: like targets, or None; the mean is weighted by them.
    """
    parts = enumerate(
        logits.split(list(sizes), -1)
    )  # one split: slices would each fill a gradient of all classes
    each = [
        F.cross_entropy(
            part.flatten(0, 1), targets[..., i].flatten(), ignore_index=IGNORE, reduction="none"
        )
        for i, part in parts
    ]
    losses = torch.stack(each, -1).view(targets.shape)
    mass = (
        (targets != IGNORE).to(losses)
        if weights is None
        else (targets != IGNORE) * weights.to(losses)
    )
    return (losses * mass).sum(1) / mass.sum(1).clamp_min(1e-9)


def combined(each: Tensor, sizes: Sequence[int], how: str) -> Tensor:
    """One loss a model (model,) from those of its outputs (model, output): their mean, or Σ CE_q /
    ln q for "log".
    """
    if how == "equal":
        return each.mean(-1)
    return (
        each
        / torch.tensor(
            [math.log(max(2, size)) for size in sizes], dtype=each.dtype, device=each.device
        )
    ).sum(-1)


def counts(
    logits: Tensor, targets: Tensor, weights: Tensor | None, sizes: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over reads, each (model, output) float64: cross-entropy, correct answers, and weight.

    Chunks of a data set add up; the arithmetic is float64, since the loss of a model that has
    generalised is below what float32 resolves.
    """
    losses, right, mass = [], [], []
    for output, columns in enumerate(groups(sizes)):
        target, part = targets[..., output], logits[..., columns]
        each = F.cross_entropy(
            part.flatten(0, 1).double(), target.flatten(), ignore_index=IGNORE, reduction="none"
        ).view(target.shape)
        weight = (
            (target != IGNORE).double()
            if weights is None
            else (target != IGNORE) * weights[..., output].double()
        )
        losses.append((each * weight).sum(1))
        right.append(((part.argmax(-1) == target) * weight).sum(1))
        mass.append(weight.sum(1))
    return torch.stack(losses, -1), torch.stack(right, -1), torch.stack(mass, -1)
