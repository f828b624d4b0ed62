"""Exact gradients of groups and of examples, and the groups that a batch falls into."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import MechintError
from mechint.models.untouched import all_finite
from mechint.task import IGNORE, LOSS, Batch, Task, answer_scores

if TYPE_CHECKING:
    from mechint.subject import Subject

Weights = dict[str, Tensor]


def weighted_loss(
    task: Task,
    logits: Float[Tensor, "example pos d_vocab_out"],
    targets: Int[Tensor, "example pos output"],
    weights: Float[Tensor, "example pos output"],
) -> Float[Tensor, ""]:
    """Σ weights · cross-entropy (nats), targets to IGNORE left out; float64, since in float32
    1 − softmax of a confident right answer rounds, and the gradient with it.
    """
    losses = answer_scores(task, logits.flatten(0, 1), targets.flatten(0, 1))[..., LOSS]
    return (losses.nan_to_num() * weights.flatten(0, 1)).sum()


def groups_of(task: Task, data: Batch) -> Weights:
    """Name → weights like targets that pick one group's answers: outputs where there are several,
    else masks and the background.
    """
    read = (data.targets != IGNORE).float()
    if read.shape[-1] > 1:
        return {
            output.name: read * torch.eye(read.shape[-1], device=read.device)[i]
            for i, output in enumerate(task.outputs)
        }
    masks = {name: mask[..., None] * read for name, mask in data.masks.items()}
    if masks:
        masks["background"] = read * (1 - torch.stack(list(masks.values())).amax(0))
    return masks


class TaskGradients:
    """Gradients of one model's loss with respect to all its parameters, as flat vectors: a backward
    each, a chunk of examples at a time.
    """

    def __init__(self, subject: Subject) -> None:
        assert subject.task is not None
        self.task, self.model, self.chunk = subject.task, subject.model, subject.chunk
        # frozen ones too: `untouched` gives them back as they were
        self.free = {
            name: value.requires_grad_(True) for name, value in subject.model.named_parameters()
        }

    def _backward(self, data: Batch, weights: Float[Tensor, "example pos output"]) -> Tensor:
        """(1, parameter) of the loss under the weights."""
        parameters = list(self.free.values())
        total = torch.cat([torch.zeros_like(value).flatten() for value in parameters])[None]
        columns = (data.tokens, data.targets, weights.to(parameters[0]))
        for part in zip(*(column.split(self.chunk) for column in columns), strict=True):
            with torch.enable_grad():
                loss = weighted_loss(self.task, self.model(part[0]), *part[1:])
                found = torch.autograd.grad(
                    loss, parameters, allow_unused=True, materialize_grads=True
                )
            total.add_(torch.cat([gradient.flatten() for gradient in found]))
        if not all_finite(total):
            raise MechintError("interference: a gradient is not finite")
        return total

    def of_groups(
        self, data: Batch, weights: Float[Tensor, "group example pos output"]
    ) -> Float[Tensor, "group parameter"]:
        """The gradient under each row of weights."""
        return torch.cat([self._backward(data, part) for part in weights])

    def of_examples(self, data: Batch) -> Iterator[Float[Tensor, "1 parameter"]]:
        """The gradient of every example's own mean loss, one after another."""
        for i in range(len(data)):
            yield self._backward(data[i : i + 1], mean_weights(data[i : i + 1]))


def cosines(
    a: Float[Tensor, "row_a parameter"], b: Float[Tensor, "row_b parameter"]
) -> Float[Tensor, "row_a row_b"]:
    """(row of a, row of b) cosines in float64; NaN where a gradient is zero."""
    a, b = a.double(), b.double()
    return (a @ b.T) / (a.norm(dim=1)[:, None] * b.norm(dim=1)).where(
        a.norm(dim=1)[:, None] * b.norm(dim=1) > 0, torch.nan
    )


def mean_weights(data: Batch) -> Float[Tensor, "example pos output"]:
    """The weights under which the loss is the mean over all targets that are read."""
    read = (data.targets != IGNORE).float()
    return read / read.sum().clamp_min(1)


def with_whole(
    task: Task, batch: Batch
) -> tuple[list[str], Float[Tensor, "group example pos output"]]:
    """Names and weights (group, example, pos, output) of the whole batch and of its groups."""
    groups = groups_of(task, batch)
    return ["batch", *groups], torch.stack([(batch.targets != IGNORE).float(), *groups.values()])
