"""Exact gradients of groups and of examples, and the groups that a batch falls into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.func import grad, vmap

from mechint.errors import MechintError
from mechint.interventions import detached_weights, resumes
from mechint.models.forward import Forward
from mechint.models.rows import RowLayout
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
    """Gradients of one model's loss with respect to all its parameters, as flat vectors.

    Vectorized over examples and groups where the model's mathematics is ours, one backward each,
    a chunk of examples at a time, on any other model.
    """

    def __init__(self, subject: Subject) -> None:
        assert subject.task is not None
        self.task, self.model = subject.task, subject.model
        self.memory, self.chunk = subject.memory, subject.chunk
        self.vectorized = resumes(subject.model)
        if not self.vectorized:
            # frozen ones too: `untouched` gives them back as they were
            self.free = {
                name: value.requires_grad_(True) for name, value in subject.model.named_parameters()
            }
            return
        self.config, self.free = subject.model.config, dict(detached_weights(subject.model))

    def _loss(self, free: Weights, tokens: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        logits = Forward(free, self.config).logits(RowLayout.dense(tokens))
        return weighted_loss(self.task, logits, targets, weights)

    def _backward(self, tokens: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """(1, parameter) by forward and backward of the model itself, summed over chunks."""
        columns = (tokens, targets, weights)
        total: Tensor | None = None
        for part in zip(*(column.split(self.chunk) for column in columns), strict=True):
            with torch.enable_grad():
                loss = weighted_loss(self.task, self.model(part[0]), *part[1:])
                found = torch.autograd.grad(
                    loss,
                    list(self.free.values()),
                    allow_unused=True,
                    materialize_grads=True,
                )
            row = torch.cat([gradient.flatten() for gradient in found])[None]
            total = row if total is None else total.add_(row)
        assert total is not None
        return total

    def _rows(self) -> int:
        """Gradients held at a time."""
        return max(1, self.memory // (16 * sum(value.numel() for value in self.free.values())))

    def of_groups(
        self, data: Batch, weights: Float[Tensor, "group example pos output"]
    ) -> Float[Tensor, "group parameter"]:
        """The gradient under each row of weights."""
        weights = weights.to(next(iter(self.free.values())))
        if not self.vectorized:
            rows = [self._backward(data.tokens, data.targets, part) for part in weights]
            return _finite(torch.cat(rows))
        if len(weights) == 1:  # one backward costs less than a vectorized one of one row
            free = {name: value.detach().requires_grad_(True) for name, value in self.free.items()}
            with torch.enable_grad():
                loss = self._loss(free, data.tokens, data.targets, weights[0])
                found = torch.autograd.grad(
                    loss, list(free.values()), allow_unused=True, materialize_grads=True
                )
            rows = {name: row[None] for name, row in zip(free, found, strict=True)}
            return _finite(_flat(rows))
        function = vmap(grad(self._loss), in_dims=(None, None, None, 0))
        parts = [
            _flat(function(self.free, data.tokens, data.targets, part))
            for part in weights.split(self._rows())
        ]
        return _finite(torch.cat(parts))

    def cosines_of_targets(
        self,
        tokens: Tensor,
        targets: Int[Tensor, "sample example pos output"],
        weights: Float[Tensor, "group example pos output"],
        direction: Tensor,
    ) -> Float[Tensor, "sample group"]:
        """Cosines with `direction` (1, parameter) of the gradients under each row of weights, for
        many other targets of the same examples.
        """
        weights = weights.to(next(iter(self.free.values())))
        if not self.vectorized:
            every = [self.of_groups(Batch(tokens, one), weights) for one in targets]
            return torch.stack([cosines(rows, direction)[:, 0] for rows in every])
        of_groups = vmap(grad(self._loss), in_dims=(None, None, None, 0))
        function = vmap(of_groups, in_dims=(None, None, 0, None))
        parts: list[Tensor] = []
        for some in targets.split(max(1, self._rows() // len(weights))):
            found = function(self.free, tokens, some, weights)
            rows = _flat({name: part.flatten(0, 1) for name, part in found.items()})
            parts.append(cosines(_finite(rows), direction)[:, 0].view(len(some), -1))
        return torch.cat(parts)

    def of_examples(self, data: Batch) -> Iterator[Float[Tensor, "example parameter"]]:
        """The gradient of every example's own mean loss, as many examples at a time as the memory
        holds.
        """
        read = (data.targets != IGNORE).to(next(iter(self.free.values())))
        weights = read / read.sum((1, 2), keepdim=True).clamp_min(1)
        columns = [tensor.unsqueeze(1) for tensor in (data.tokens, data.targets, weights)]
        if not self.vectorized:
            for one in zip(*columns, strict=True):
                yield _finite(self._backward(*one))
            return
        function = vmap(grad(self._loss), in_dims=(None, 0, 0, 0))
        for part in zip(*(tensor.split(self._rows()) for tensor in columns), strict=True):
            yield _finite(_flat(function(self.free, *part)))


def _flat(gradient: Mapping[str, Tensor]) -> Tensor:
    """(row, parameter) of gradients with a leading axis."""
    return torch.cat([part.flatten(1) for part in gradient.values()], 1)


def _finite(gradients: Tensor) -> Tensor:
    if not all_finite(gradients):
        raise MechintError("interference: a gradient is not finite")
    return gradients


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


def group_matrix(
    gradients: TaskGradients, task: Task, batches: Sequence[Batch]
) -> Float[Tensor, "group group"]:
    """(group, group) cosines between the groups' gradients, summed over all batches."""
    total = sum(
        (gradients.of_groups(batch, with_whole(task, batch)[1]) for batch in batches[1:]),
        gradients.of_groups(batches[0], with_whole(task, batches[0])[1]),
    )
    return cosines(total[1:], total[1:]).cpu()
