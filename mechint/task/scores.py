"""Loss and accuracy of logits at the answers of a task: computed in one place for all probes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mechint.task.batch import IGNORE

if TYPE_CHECKING:
    from mechint.task.base import Task

ACCURACY, LOSS = 0, 1
"""Columns of `answer_scores`."""


def answer_scores(
    task: Task,
    logits: Float[Tensor, "*batch example d_vocab_out"],
    targets: Int[Tensor, "example output"],
) -> Float[Tensor, "*batch example output 2"]:
    """(..., example, output, 2) accuracy (0 or 1) and cross-entropy (nats) of every answer, in
    float64; NaN where an output is not asked for. Differentiable in the losses.

    Args:
        logits: at the answers, the columns of all outputs side by side.
        targets: classes, IGNORE for an output that is not asked for.

    >>> import tasks
    >>> task = tasks.make("modular-arithmetic", p=5)
    >>> scores = answer_scores(task, 9.0 * torch.eye(5)[None], torch.arange(5)[:, None])
    >>> scores.shape, scores[..., ACCURACY].mean().item(), round(scores[..., LOSS].max().item(), 4)
    (torch.Size([1, 5, 1, 2]), 1.0, 0.0005)
    """
    columns: list[Tensor] = []
    for output, part in enumerate(task.output_slices.values()):
        own, wanted = logits[..., part], targets[:, output].expand(logits.shape[:-1])
        loss = F.cross_entropy(
            own.double().flatten(0, -2), wanted.flatten(), ignore_index=IGNORE, reduction="none"
        ).view(wanted.shape)
        score = torch.stack(((own.argmax(-1) == wanted).double(), loss), -1)
        columns.append(score.masked_fill((wanted == IGNORE)[..., None], math.nan))
    return torch.stack(columns, -2)
