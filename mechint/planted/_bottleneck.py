"""A linear bottleneck that holds chosen features: the optimum of its width, or any other set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mechint.errors import ParameterError
from mechint.models.linear_bottleneck import LinearBottleneckConfig
from mechint.models.students import LinearBottleneck
from mechint.planted.assembly import Perturbation, Planted, make_task, noised, random_rotation
from mechint.subject import Subject
from mechint.task import rng


def bottleneck(
    features: Sequence[int] | None = None,
    *,
    width: int = 8,
    noise: float = 0.0,
    rotation_seed: int | None = None,
    seed: int = 0,
    **task: Any,
) -> Planted:
    """An encoder whose column space holds the first ``features[t]`` features of every task t.

    Args:
        features: one number per task; those of the largest utilities for `width` columns when None
            (capacity, Theorem 3).
        noise, seed: see `Perturbation`; rotation_seed: of a random basis of the column space;
            `task` are parameters of the regression mixture.

    Returns:
        truth: "features" one number per task, "subspaces" {"W_enc": (n, width) orthonormal
            columns}.

    Raises:
        ParameterError: more features than a task has.

    >>> bottleneck(width=3, n=12, n_tasks=3, rank=4).truth["features"]
    (2, 1, 0)
    """
    made = make_task("regression-mixture", **task)
    held = tuple(made.retained_features(width) if features is None else features)
    if (
        len(held) != made.n_tasks
        or not all(0 <= count <= made.rank for count in held)
        or not any(held)
    ):
        raise ParameterError(
            f"planted: features={held}: expected {made.n_tasks} numbers from 0 to "
            f"rank={made.rank}, not all 0"
        )
    basis = torch.cat([made.bases[t, :count] for t, count in enumerate(held)]).T
    perturbation = Perturbation(noise, rotation_seed, seed)
    turn = None if rotation_seed is None else random_rotation(basis.shape[1], rotation_seed)
    encoder = noised(basis if turn is None else basis @ turn, noise, rng("planted noise", seed))
    config = LinearBottleneckConfig.for_task(made, width=basis.shape[1], decoder="optimal")
    model = LinearBottleneck(config)
    model.load_weights({"W_enc": encoder.float()})
    source = {"path": "planted bottleneck", "format": "planted", "perturbation": vars(perturbation)}
    truth = {"mechanism": "bottleneck", "features": held, "subspaces": {"W_enc": basis}}
    return Planted(Subject(model, made, provenance=source), truth)
