"""From the answer to the operands: where heads look on a task with an input grid."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from mechint.subject import Subject
from mechint.task import FiniteTask
from probes._attention.patterns import Patterns


def operand_positions(subject: Subject) -> list[int]:
    """Positions of the operands of a task with an input grid, read at one position; []
    elsewhere.
    """
    task = subject.task
    if (
        not isinstance(task, FiniteTask)
        or not subject.data.reads
        or len(task.grid) > subject.data.tokens.shape[1]
    ):
        return []
    return list(range(len(task.grid)))


def preference(means: Float[np.ndarray, "head operand"]) -> Float[np.ndarray, " head"]:
    """(heads,) (A_a − A_b)/(A_a + A_b) of mean attention (heads, operand): 1 looks at the first
    operand alone, −1 at the second.
    """
    return (means[:, 0] - means[:, 1]) / np.maximum(means[:, 0] + means[:, 1], 1e-12)


def operand_means(
    subject: Subject, data: Any, operands: list[int]
) -> Float[np.ndarray, "head operand"]:
    """Mean attention from the answer's position to each operand, 0–1, all heads by layer."""
    layers = [
        subject.activation(f"blocks.{layer}.attn.hook_pattern", "answer", data)
        for layer in range(subject.n_layers)
    ]
    return np.concatenate([layer.double().mean(0)[:, operands].cpu().numpy() for layer in layers])


def swing(patterns: Patterns) -> Float[np.ndarray, " head"]:
    """(heads,) standard deviation over the inputs of the preference of every input alone."""
    each = patterns.to_operand.astype(np.float64)
    total = np.maximum(each[..., 0] + each[..., 1], 1e-12)
    return ((each[..., 0] - each[..., 1]) / total).std(1)
