"""The negative log-likelihood per example that the chains sample from."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mechint.subject import Subject
from mechint.task import IGNORE, Batch, Task


def training_data(subject: Subject, split: str) -> Batch:
    """The examples whose loss it is: the training split of a finite task where that is known and
    asked for, and the subject looks at all of the task's examples; else the subject's data.
    """
    parts = subject.split
    every = split == "all" or parts is None
    return subject.data if every else subject.data[parts["train"].to(subject.device)]


def example_losses(model: Any, task: Task | None, data: Batch) -> Float[Tensor, " example"]:
    """−log p(targets | tokens) of every example in nats, in float64.

    Classes: cross-entropy summed over all targets of the example. Real targets: ½‖y − f(x)‖², a
    Gaussian of unit variance without its constant.
    """
    if data.tokens.is_floating_point():
        inputs = [data.tokens] + ([data.masks["task"]] if "task" in data.masks else [])
        answers = model(*inputs).reshape(data.targets.shape)
        return 0.5 * (answers.double() - data.targets.double()).square().flatten(1).sum(1)
    # in float32 1 − softmax of a confident right answer rounds to 0, and the gradient with it
    logits = model(data.tokens).double()  # (example, pos, d_vocab_out)
    parts = [slice(None)] if task is None else task.output_slices.values()
    return torch.stack(
        [
            F.cross_entropy(
                logits[..., part].transpose(1, 2), classes, ignore_index=IGNORE, reduction="none"
            ).sum(1)
            for part, classes in zip(parts, data.targets.unbind(-1), strict=True)
        ]
    ).sum(0)


def without_gradient(model: Any, task: Task | None, data: Batch, chunk: int) -> Tensor:
    """(example,) `example_losses` in chunks, detached."""
    with torch.no_grad():
        parts = [
            example_losses(model, task, data[start : start + chunk])
            for start in range(0, len(data), chunk)
        ]
    return torch.cat(parts)
