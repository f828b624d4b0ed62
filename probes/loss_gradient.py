"""The gradient of a weighted loss with respect to every parameter of a model."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from mechint.errors import MechintError
from mechint.models.foreign.untouched import all_finite
from mechint.models.protocol import gradients_of
from mechint.subject import Subject
from mechint.task import LOSS, Batch, answer_scores


def loss_gradient(
    subject: Subject, data: Batch, weights: Float[Tensor, "example pos output"]
) -> tuple[float, list[Tensor]]:
    """Σ weights · cross-entropy (nats) over the targets of `data`, and its gradient by parameter, a
    chunk of examples at a time.

    In float64 from the logits on: in float32 1 − softmax of a confident right answer rounds to 0,
    and the gradient with it.

    Raises:
        MechintError: a gradient is not finite.
    """
    # frozen ones too: `untouched` gives them back as they were
    parameters = [parameter.requires_grad_(True) for parameter in subject.model.parameters()]
    loss, total = 0.0, [torch.zeros_like(parameter) for parameter in parameters]
    columns = (data.tokens, data.targets, weights.to(subject.device))
    for part in zip(*(column.split(subject.chunk) for column in columns), strict=True):
        tokens, targets, shares = part
        with torch.enable_grad():
            logits = subject.model(tokens).flatten(0, 1)
            each = answer_scores(subject.known_task, logits, targets.flatten(0, 1))[..., LOSS]
            summed = (each.nan_to_num() * shares.flatten(0, 1)).sum()
            found = gradients_of(summed, parameters)
        loss += float(summed.detach())
        for running, gradient in zip(total, found, strict=True):
            running += 0.0 if gradient is None else gradient
    if not all(map(all_finite, total)):
        raise MechintError(f"a gradient of {subject.describe()} is not finite")
    return loss, total


def permute_where(
    targets: Int[Tensor, "*shape"], where: Shaped[Tensor, "*shape"], draw: np.random.Generator
) -> None:
    """Permute, in place, the answers at the places that are true or not 0 in `where`."""
    places = where.nonzero(as_tuple=True)
    order = torch.from_numpy(draw.permutation(len(places[0])))
    targets[places] = targets[places][order.to(targets.device)]
