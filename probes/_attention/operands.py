"""Attention from the answer to the operands of a task with an input grid."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float

from mechint.subject import Subject
from mechint.task import Batch, FiniteTask


def operand_positions(subject: Subject) -> list[int]:
    """The position of each operand, read off the task's own examples: the one position that
    changes when one axis of the grid does. [] without such positions, or with other layouts.
    """
    task = subject.task
    if not isinstance(task, FiniteTask) or not subject.data.reads or len(task.grid) < 2:
        return []
    if min(task.grid) < 2 or math.prod(task.grid) > 1 << 22:
        return []
    tokens, found = task.examples().tokens, []
    if len(tokens) != math.prod(task.grid) or tokens.shape[1] != subject.data.tokens.shape[1]:
        return []
    for axis in range(len(task.grid)):
        stride = math.prod(task.grid[axis + 1 :])
        column = tokens[torch.arange(task.grid[axis]) * stride]
        changed = (column != column[0]).any(0).nonzero().flatten().tolist()
        if len(changed) != 1:
            return []
        found += changed
    return found if len(set(found)) == len(found) else []


def preference(means: Float[np.ndarray, "head operand"]) -> Float[np.ndarray, " head"]:
    """(head,) (A_a - A_b) / (A_a + A_b) of mean attention to the first two operands: 1 attends to
    the first alone, -1 to the second.
    """
    return (means[:, 0] - means[:, 1]) / np.maximum(means[:, 0] + means[:, 1], 1e-12)


def operand_means(
    subject: Subject, data: Batch, operands: list[int]
) -> Float[np.ndarray, "head operand"]:
    """Mean attention from the answer's position to each operand, 0–1, all heads by layer."""
    layers = [
        subject.activation(f"blocks.{layer}.attn.hook_pattern", "answer", data)
        for layer in range(subject.n_layers)
    ]
    return np.concatenate([layer.double().mean(0)[:, operands].cpu().numpy() for layer in layers])
