"""What language models of the capacity study do at a given loss, and at a given compute, read
between evaluations.
"""

from __future__ import annotations

import numpy as np

from mechint.studies.core.study import task_of
from mechint.training import Run


def other_losses(run: Run) -> list[float]:
    """Loss (nats) of all tokens but the injected task's answers, at every evaluation: what a model
    that learns the task lowers is not in it. A text of n_ctx tokens has n_ctx - 1 targets, of which
    `frequency` are answers on average.
    """
    task = task_of(run)
    share = task.frequency / (task.n_ctx - 1)
    return [(row["test.loss"] - share * row["test.loss.task"]) / (1 - share) for row in run.metrics]


def accuracy_at_loss(run: Run, level: float) -> tuple[float, float]:
    """Accuracy on the task where `other_losses` first falls to `level`, between evaluations by
    linear interpolation, and the loss there, which is `level` unless the run never reached it (then
    its last evaluation counts) or began below it.
    """
    found = other_losses(run)
    accuracies = [float(row["test.greedy.accuracy.task"]) for row in run.metrics]
    at = next((i for i, loss in enumerate(found) if loss <= level), None)
    if at is None or at == 0:
        i = -1 if at is None else 0
        return accuracies[i], found[i]
    part = (found[at - 1] - level) / (found[at - 1] - found[at])
    return accuracies[at - 1] + part * (accuracies[at] - accuracies[at - 1]), level


def compute_of(run: Run) -> float:
    """6 × parameters × tokens of one step (FLOP)."""
    parameters = sum(value.numel() for value in run.subject().model.parameters())
    return 6.0 * parameters * (run.spec.train.batch_size or 1) * task_of(run).n_ctx


def task_loss_at(run: Run, step: float) -> float:
    """Loss (nats) on held-out answers of the task at a step, linear between evaluations; the last
    one's beyond them.
    """
    rows = run.metrics
    return float(
        np.interp(step, [row["step"] for row in rows], [row["test.loss.task"] for row in rows])
    )
