"""Similarity of two sets of activations: linear CKA."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint.results import Null
from mechint.task import rng


def linear_cka(a: Float[Tensor, "example da"], b: Float[Tensor, "example db"]) -> float:
    """Linear centered kernel alignment of two activations on the same examples, 0 to 1.

    ‖AᵀB‖² / (‖AᵀA‖ ‖BᵀB‖) of the centered activations (Kornblith et al. 2019, Eq. 8): 1 where one
    is a rotation and scaling of the other. NaN where one does not vary.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]])
    >>> round(linear_cka(x, -3 * x.flip(1)), 6)
    1.0
    """
    a, b = (_centered(x.double()) for x in (a, b))
    cross = (a.T @ b).square().sum()
    own = (a.T @ a).square().sum().sqrt() * (b.T @ b).square().sum().sqrt()
    return float(cross / own) if own > 0 else float("nan")


def _centered(x: Float[Tensor, "example d"]) -> Float[Tensor, "example d"]:
    """Minus the mean; zeros where all that is left is its rounding."""
    centered = x - x.mean(0)
    return centered if centered.norm() > 1e-12 * x.norm() else torch.zeros_like(x)


Measure = Callable[[Tensor, Tensor], float]


def against_shuffled(
    measure: Measure,
    name: str,
    a: Float[Tensor, "example d_a"],
    b: Float[Tensor, "example d_b"],
    samples: int = 99,
    seed: int = 0,
) -> Null:
    """`measure` of a and b beside that of examples paired at random, (1 + samples) of them."""
    generator = rng("similarity", seed)
    orders = [torch.from_numpy(generator.permutation(len(b))) for _ in range(samples)]
    null = [measure(a, b[order.to(b.device)]) for order in orders]
    return Null.sampled(name, measure(a, b), null, "examples of the second model in random order")


def similarity_matrix(
    first: Sequence[Float[Tensor, "example ..."]],
    second: Sequence[Float[Tensor, "example ..."]],
) -> Float[np.ndarray, "first second"]:
    """(len(first), len(second)) linear CKA of every pair of activations (example, d)."""
    return np.array([[linear_cka(a, b) for b in second] for a in first])
