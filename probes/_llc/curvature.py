"""Curvature of the loss at weights: along its steepest direction, and along how many it curves up.

Both ask for the Hessian's products with directions alone, by differences of gradients: ∇L(w + δv) −
∇L(w − δv) = 2δ H v.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Weights = dict[str, Tensor]
"""Name → (chain, …) values."""
Gradient = Callable[[Weights], Weights]
"""∇L of every chain at its weights."""

POWER = 8
"""Iterations of the power method."""
FLAT = 1e-4
"""Share of the largest curvature up to which a direction counts as flat; what differences of
float32 gradients get wrong is less."""
STEPS = 32
"""Of the Lanczos method: products with the Hessian per start, at most."""
COORDINATES = 1024
"""Of all starts together, at least: with so many the error of a share is about 0.02."""


def largest(
    gradient: Gradient, weights: Weights, delta: float, generator: torch.Generator
) -> float:
    """Largest |eigenvalue| of the Hessian at the weights of one chain, by the power method."""
    drawn = [torch.randn(w.shape, generator=generator, dtype=w.dtype) for w in weights.values()]
    v, found = torch.cat([part.flatten(1) for part in drawn], 1), 0.0
    for _ in range(POWER):
        length = float(v.double().norm())
        if not 0 < length < math.inf:
            break
        v = _times_hessian(gradient, weights, delta, v / length)
        found = float(v.double().norm())
    return found if math.isfinite(found) else 1e12


@dataclass(frozen=True)
class Curving:
    """Curvature of the loss at weights: the share of directions along which it curves upward, by
    more than `FLAT` of its `largest` curvature.

    asymmetry: of the products with the Hessian, over `largest`: how much more or less one direction
    makes of another than that of it, the most over all steps. 0 of a matrix; where ReLUs switch
    within the differences, products are of no matrix, and nodes below it are of nothing.
    """

    share: float
    largest: float
    asymmetry: float


def curving(
    gradient: Gradient, center: Weights, delta: float, generator: torch.Generator
) -> Curving:
    """Of the weights `center`, without a chain axis; the share is that of the positive eigenvalues
    of the Hessian over all.

    Half their number is a lower bound of the learning coefficient at a minimum. Stochastic Lanczos
    quadrature (Ubaru, Chen & Saad 2017): its nodes lie between the eigenvalues, so a loss that
    curves along all directions gives 1 exactly, however few steps there are.
    """
    size = sum(value.numel() for value in center.values())
    starts = math.ceil(COORDINATES / size)
    weights = {name: value.expand(starts, *value.shape) for name, value in center.items()}
    v = torch.randn(starts, size, generator=generator)
    v = v / v.norm(dim=1, keepdim=True)
    basis, alpha, beta, odd = [v], [], [], [v.new_zeros(())]
    for _ in range(min(size, STEPS)):
        ahead = _times_hessian(gradient, weights, delta, basis[-1])
        alpha.append((ahead * basis[-1]).sum(1))
        back = [(ahead * before).sum(1) for before in basis[:-1]]
        if back:  # of a matrix: 0 but for the last, which is the length of the step before
            back[-1] = back[-1] - beta[-1]
            odd.append(torch.stack(back).norm(dim=0).max())
        for before in [*basis, *basis]:  # twice: once leaves what rounding makes of it
            ahead = ahead - (ahead * before).sum(1, keepdim=True) * before
        length = ahead.norm(dim=1, keepdim=True)
        beta.append(length[:, 0])
        basis.append(ahead / length.clamp_min(1e-30))
    tridiagonal = torch.diag_embed(torch.stack(alpha, 1).double())
    for i, between in enumerate(beta[:-1]):
        tridiagonal[:, i, i + 1] = tridiagonal[:, i + 1, i] = between.double()
    nodes, vectors = torch.linalg.eigh(tridiagonal)  # (start, node), (start, step, node)
    most = nodes.abs().max()
    curved, shares = nodes > FLAT * most, vectors[:, 0].square()
    share = ((shares * curved).sum(1) / shares.sum(1)).mean()  # 1 without rounding
    return Curving(float(share), float(most), float(max(odd) / most.clamp_min(1e-30)))


def _times_hessian(
    gradient: Gradient, weights: Weights, delta: float, v: Float[Tensor, "chain parameter"]
) -> Float[Tensor, "chain parameter"]:
    """H v at the weights of every chain, v of length 1."""
    sizes = [weight[0].numel() for weight in weights.values()]
    parts = dict(zip(weights, v.split(sizes, 1), strict=True))
    ahead, behind = (
        gradient({name: w + d * parts[name].reshape(w.shape).to(w) for name, w in weights.items()})
        for d in (delta, -delta)
    )
    found = [(ahead[name] - behind[name]).flatten(1) / (2 * delta) for name in weights]
    return torch.cat(found, 1).to(v)
