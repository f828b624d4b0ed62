"""Gradient symmetricity, distance irrelevance and the circularity of one frequency's embedding.

Zhong et al. 2023, "The Clock and the Pizza", Sec. 4 and App. on metrics. A clock multiplies the two
operands' waves, so that the gradients at the two embeddings differ, and its logit of the answer
depends on the sum alone. A pizza adds them first: the gradients are alike, and the logit also
depends on the distance between the operands. Logits are without their mean over the classes, which
no softmax sees: one vector more in every class's column changes no answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.interventions import select_positions
from mechint.subject import Subject
from probes._fourier.spectra import Array


@dataclass(frozen=True)
class Triples:
    """Gradients of a logit, less the classes' mean, at the embeddings of both operands, (triple,
    d_model) each; one triple is two operands and a class.
    """

    first: Tensor
    second: Tensor

    @property
    def cosines(self) -> Float[np.ndarray, " triple"]:
        """(triple,) cosine of the two gradients; 0 where one of them is zero."""
        return _cosines(self.first, self.second)


def _cosines(a: Tensor, b: Tensor) -> Array:
    products = (a * b).sum(-1)
    norms = (a.norm(dim=-1) * b.norm(dim=-1)).clamp_min(1e-30)
    return (products / norms).double().cpu().numpy()


def gradients(
    subject: Subject,
    examples: Int[Array, " triple"],
    chosen: Int[Array, " triple"],
    operands: tuple[int, int],
    columns: Int[Array, " class"],
) -> Triples:
    """The gradients of the logit of class `chosen[i]`, less the mean of all classes', on example
    `examples[i]` at the embeddings of the operands, which stand at the positions `operands`.

    columns: those of the classes' logits.

    The gradient is taken at ``hook_embed``: of the token's embedding alone, not of its position's.
    """
    found: list[tuple[Tensor, Tensor]] = []
    where = subject.answer_positions[torch.from_numpy(examples).to(subject.device)]
    classes = torch.from_numpy(columns).to(subject.device)
    for start in range(0, len(examples), subject.chunk):
        part = slice(start, start + subject.chunk)
        data = subject.data[torch.from_numpy(examples[part]).to(subject.device)]
        leaves: list[Tensor] = []
        with torch.enable_grad():
            logits = subject.model.run_with_hooks(
                data.tokens, fwd_hooks=[("hook_embed", _leaf_into(leaves))]
            )
            of_classes = select_positions(logits, where[part])[:, classes]
            one = torch.from_numpy(chosen[part]).to(subject.device)[:, None]
            picked = (of_classes.gather(1, one) - of_classes.mean(1, keepdim=True)).sum()
            (gradient,) = torch.autograd.grad(picked, leaves)
        found.append((gradient[:, operands[0]], gradient[:, operands[1]]))
    return Triples(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _leaf_into(leaves: list[Tensor]) -> Callable[[Tensor, Any], Tensor]:
    def hook(activation: Tensor, hook: Any) -> Tensor:
        leaves.append(activation.detach().requires_grad_(True))
        return leaves[-1]

    return hook


def by_distance(
    grid: Float[Array, "n n"], order: Int[Array, " m"], sign: int
) -> Float[Array, "distance sum"]:
    """Values over a grid of two operands by what the answer does not say.

    order lists the operands by exponent; sign is 1 where the answer is the sum of the exponents, so
    that their difference is the distance, and -1 where it is their difference and the sum is the
    distance. Row d holds the values at distance d, one for each first operand.

    >>> by_distance(np.arange(9.0).reshape(3, 3), np.arange(3), 1).tolist()
    [[0.0, 4.0, 8.0], [1.0, 5.0, 6.0], [2.0, 3.0, 7.0]]
    """
    m = len(order)
    first, distance = np.meshgrid(np.arange(m), np.arange(m))
    return grid[order[first], order[(sign * first + distance) % m]]


def answer_sign(exponents: Int[Array, "n n"], order: Int[Array, " m"]) -> int | None:
    """1 where the answer's exponent is the sum of the operands' (up to a constant), -1 where it is
    their difference, None elsewhere; for m of at least 3.
    """
    m = len(order)
    inner = exponents[np.ix_(order, order)]
    x, y = np.ogrid[:m, :m]
    for sign in (1, -1):
        if ((inner - x - sign * y - inner[0, 0]) % m == 0).all():
            return sign
    return None


def distance_irrelevance(values: Float[Array, "difference sum"]) -> float:
    """Standard deviation over the sums for every difference, averaged, over that of all values.

    Near 1 the difference of the operands tells nothing about the value (a clock), near 0 it tells
    everything (a pizza). 1 where nothing varies.

    >>> distance_irrelevance(np.array([[1.0, 1.0], [3.0, 3.0]]))
    0.0
    """
    spread = float(values.std())
    return float(values.std(1).mean() / spread) if spread > 1e-12 else 1.0


def distance_effect(values: Float[Array, "distance sum"]) -> float:
    """How much the right logit changes with the distance, relative to how far it stands out of all
    classes': standard deviation over the distances of its mean, over its mean. Where it is near 0
    the irrelevance compares rounding errors.

    >>> distance_effect(np.array([[1.0, 1.0], [3.0, 3.0]]))
    0.5
    """
    margin = abs(float(values.mean()))
    return float(values.mean(1).std() / margin) if margin > 1e-12 else 0.0


def circularity(rows: Float[Array, "n d_model"], waves: Float[Array, "n_waves n"]) -> float:
    """How round the ellipse is on which a frequency puts the tokens: 1 a circle, 1/2 a line.

    rows in the order of the frequency's orthonormal cosine and sine, `waves`. With s1, s2 the
    singular values of waves @ rows it is (s1 + s2)² / (2 (s1² + s2²)), the share of the energy that
    turns one way.

    >>> round(circularity(np.eye(2), np.eye(2)), 3), round(circularity(np.eye(2), np.eye(2)[:1]), 3)
    (1.0, 0.5)
    """
    singular = np.linalg.svd(waves @ rows, compute_uv=False)
    energy = float((singular**2).sum())
    return float(singular.sum() ** 2 / (2 * energy)) if energy > 1e-24 else 0.5


def correct_and_wrong(
    subject: Subject, columns: Int[Array, " class"], exponents: Int[Array, " example"]
) -> tuple[Float[np.ndarray, " example"], Float[np.ndarray, " example"]]:
    """(example,) the logit of the right class and the largest of the wrong ones, each less the mean
    of all classes'.

    columns: the logits of the classes, by exponent; exponents: of every example's answer.
    """
    logits = (
        subject.logits()[:, torch.from_numpy(columns).to(subject.device)].double().cpu().numpy()
    )
    logits -= logits.mean(1, keepdims=True)
    examples = np.arange(len(logits))
    correct = logits[examples, exponents].copy()
    logits[examples, exponents] = -np.inf
    return correct, logits.max(1)
