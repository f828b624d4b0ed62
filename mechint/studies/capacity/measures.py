"""What a run of the regressions shows: features held, as predicted or not, and the frequent tasks'
residual.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mechint.studies.core.study import model_of, task_of
from mechint.training import Run

HALF = 0.5
"""A feature counts as held from half of it on, and a prediction as met within half a feature:
counts are whole numbers.
"""


def held(run: Run) -> np.ndarray:
    """(task,) features of every task in the encoder at the end."""
    return np.array([run.final[f"test.features.{t}"] for t in range(task_of(run).n_tasks)])


def kept(task: Any, width: int, scores: np.ndarray) -> np.ndarray:
    """(task,) features kept by a width that fills up in the order of `scores` (task, feature); ties
    go to the first task.

    >>> kept(None, 3, np.array([[3.0, 1.0], [2.0, 0.5]])).tolist()
    [2, 1]
    """
    order = np.argsort(-scores, axis=None, kind="stable")[:width]
    return np.bincount(order // scores.shape[1], minlength=len(scores))


def share_as_predicted(group: list[Run], order: str = "utility") -> float:
    """Share of cells (run, task) that hold a number of features within HALF of the order's:
    utility, frequency or spectrum.
    """
    right = []
    for run in group:
        task = task_of(run)
        scores = {
            "utility": task.utilities,
            "frequency": task.priors[:, None].expand(-1, task.rank),
            "spectrum": task.spectra,
        }[order].numpy()
        right.append(np.abs(held(run) - kept(task, model_of(run).width, scores)) <= HALF)
    return float(np.mean(right))


def residual_of(run: Run, mass: float) -> float:
    """ρ_C of the frequent tasks at the end of the run."""
    from mechint.models.linear_bottleneck import residual

    return float(
        residual(
            run.weights if run.weights else _weights(run), task_of(run), task_of(run).common(mass)
        )
    )


def _weights(run: Run) -> Any:
    return {name: value.detach() for name, value in run.subject().model.weights().items()}
