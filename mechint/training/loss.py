"""Loss and accuracy of stacked logits against stacked targets, for several output groups, each
model by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mechint.task import IGNORE


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """The context in which losses are computed: matrix products in bfloat16 for "bf16"."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def stablemax(logits: Float[Tensor, "*rows d_vocab_out"]) -> Float[Tensor, "*rows d_vocab_out"]:
    """Log-probabilities over the last axis by StableMax: s(x) / Σ s(x), with s(x) = x + 1 from 0 on
    and 1 / (1 - x) below (Prieto et al. 2025, "Grokking at the Edge of Numerical Stability").

    It grows linearly where the exponential function would drown all but the largest logit.

    >>> [round(x, 4) for x in stablemax(torch.tensor([0.0, 2.0, -1.0])).exp().tolist()]
    [0.2222, 0.6667, 0.1111]
    """
    log_s = logits.clamp_min(0).log1p() - logits.clamp_max(0).neg().log1p()
    return log_s - log_s.logsumexp(-1, keepdim=True)


def cross_entropy(
    logits: Float[Tensor, "n d_vocab_out"], targets: Int[Tensor, " n"], kind: str
) -> Float[Tensor, " n"]:
    """Cross-entropies in nats (n,) of logits (n, class), zero where the target is IGNORE."""
    if kind == "softmax":
        return F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="none")
    return F.nll_loss(stablemax(logits), targets, ignore_index=IGNORE, reduction="none")


def cross_entropies(
    logits: Float[Tensor, "model read d_vocab_out"],
    targets: Int[Tensor, "model read output"],
    weights: Float[Tensor, "model read output"] | None,
    sizes: Sequence[int],
    kind: str = "softmax",
) -> Float[Tensor, "model output"]:
    """Mean cross-entropy (model, output) in nats over the reads that have a target.

    Args:
        logits: (model, reads, classes of all groups).
        targets: (model, reads, output), IGNORE where nothing is read.
        weights: like targets, or None; the mean is weighted by them.
        kind: what makes probabilities of logits, "softmax" or "stablemax".
    """
    # one split: slices would each fill a gradient of all classes
    parts = enumerate(logits.split(list(sizes), -1) if len(sizes) > 1 else [logits])
    each = [cross_entropy(part.flatten(0, 1), targets[..., i].flatten(), kind) for i, part in parts]
    losses = torch.stack(each, -1).view(targets.shape)
    mass = (
        (targets != IGNORE).to(losses)
        if weights is None
        else (targets != IGNORE) * weights.to(losses)
    )
    return (losses * mass).sum(1) / mass.sum(1).clamp_min(1e-9)


def combined(
    each: Float[Tensor, "model output"], sizes: Sequence[int], how: str
) -> Float[Tensor, " model"]:
    """One loss per model of those of its outputs: their mean, or Σ CE_q / ln q for "log"."""
    if how == "equal":
        return each.mean(-1)
    scales = each.new_tensor([math.log(max(2, size)) for size in sizes])
    return (each / scales).sum(-1)


def counts(
    logits: Float[Tensor, "model read d_vocab_out"],
    targets: Int[Tensor, "model read output"],
    weights: Float[Tensor, "model read output"] | None,
    sizes: Sequence[int],
    kind: str = "softmax",
) -> tuple[
    Float[Tensor, "model output"], Float[Tensor, "model output"], Float[Tensor, "model output"]
]:
    """Sums over reads, each (model, output) float64: cross-entropy, correct answers, and weight.

    Chunks of a data set add up; the arithmetic is float64, since the loss of a model that has
    generalized is below what float32 resolves.
    """
    parts = logits.split(list(sizes), -1)
    each = [
        cross_entropy(part.flatten(0, 1).double(), targets[..., i].flatten(), kind)
        for i, part in enumerate(parts)
    ]
    losses = torch.stack(each, -1).view(targets.shape)  # (model, read, output)
    right = torch.stack([part.argmax(-1) for part in parts], -1) == targets
    mass = (targets != IGNORE).double() * (1.0 if weights is None else weights.double())
    return (losses * mass).sum(1), (right * mass).sum(1), mass.sum(1)
