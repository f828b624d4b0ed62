"""The two-layer student of single-index sums: f(x) = Σ_i ‖w_i‖² σ(⟨x, w_i / ‖w_i‖⟩) (Ren et al.
2025, "Emergence and scaling laws").

Parameters, plain or stacked with a leading `model` axis (written ``...``): W (..., neuron, d). The
link σ is a series of normalized Hermite polynomials, so the population loss is a polynomial in
cosines, exact and cheap.

Widths share one stacked ensemble: with `neurons` above `width` the spare rows are zero, answer
nothing and get no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint import hermite
from mechint.config import Settings, setting
from mechint.models.layers import Hook, Parameters, linear, no_hook
from mechint.task import Batch

TINY = 1e-30
"""Below every norm in use; keeps a zero row's direction at zero instead of NaN."""


class SingleIndexTruth(Protocol):
    """Truth of a sum of single-index functions Σ_p a_p σ(⟨x, θ_p⟩)."""

    @property
    def amplitudes(self) -> Float[Tensor, " direction"]:
        """(direction,) a_p."""
        ...

    @property
    def directions(self) -> Float[Tensor, "direction d"]:
        """(direction, d) θ_p, orthonormal."""
        ...

    @property
    def link(self) -> tuple[float, ...]:
        """Hermite coefficients of σ, with squares adding up to 1."""
        ...


@dataclass(frozen=True)
class TwoLayerConfig(Settings):
    """Shape of a two-layer student; `d` and `hermite` follow from the task unless given.

    >>> TwoLayerConfig(d=16, width=4).link
    (0.0, 0.0, 0.0, 1.0)
    """

    d: int = setting(64, "inputs", low=1)
    width: int = setting(144, "neurons that are used", low=1)
    hermite: tuple[float, ...] = setting(
        (0.0, 0.0, 0.0, 1.0),
        "coefficients of the link on the normalized Hermite polynomials, from degree 0",
    )
    init_norm: float = setting(1e-3, "norm of every neuron at the start", low=1e-12)
    neurons: int | None = setting(
        None,
        (
            "rows of the weight, the spare ones zero, so that widths share an ensemble; width "
            "when none"
        ),
        low=1,
    )
    ambient: int | None = setting(
        None,
        (
            "dimension in which the neurons are drawn, where d counts reduced coordinates: the "
            "directions first, then one per neuron; d itself when none"
        ),
        low=1,
        high=2**30,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        hermite.link(self.hermite)
        reduced = self.ambient is None or self.width < self.d <= self.ambient
        expected = f"at least d={self.d}, which is above width={self.width}"
        self.require("ambient", reduced, expected)
        if self.neurons is None:
            object.__setattr__(self, "neurons", self.width)
        enough = (self.neurons or 0) >= self.width
        self.require("neurons", enough, f"at least width={self.width}")

    @classmethod
    def label(cls) -> str:
        return "model"

    @classmethod
    def for_task(cls, task: SingleIndexTruth, **values: object) -> Self:
        """The configuration with the task's dimension and link and the given values."""
        return cls.from_dict({"d": task.directions.shape[1], "hermite": task.link, **values})

    @property
    def link(self) -> tuple[float, ...]:
        """The coefficients scaled to E[σ²] = 1."""
        return hermite.link(self.hermite)


def parameter_shapes(config: TwoLayerConfig) -> dict[str, tuple[int, ...]]:
    """Name → shape of every parameter."""
    return {"W": (config.neurons or config.width, config.d)}


def initialize(config: TwoLayerConfig, seed: int) -> dict[str, Tensor]:
    """Neurons of norm `init_norm` in directions uniform on the sphere."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.zeros(config.neurons or config.width, config.d, dtype=torch.float32)
    if config.ambient is None:
        draws = torch.randn(config.width, config.d, generator=generator, dtype=torch.float32)
    else:
        draws = reduced_draws(config.width, config.d - config.width, config.ambient, generator)
    weight[: config.width] = config.init_norm * draws / draws.norm(dim=-1, keepdim=True)
    return {"W": weight}


def reduced_draws(
    width: int, n_directions: int, ambient: int, generator: torch.Generator
) -> Float[Tensor, "neuron coordinate"]:
    """Coordinates, in the span of `n_directions` fixed orthonormal directions and of the neurons,
    of `width` neurons drawn N(0, 1) in `ambient` dimensions; coordinate = n_directions + width.

    Overlaps with the directions are N(0, 1). The parts orthogonal to them have a Wishart Gram
    matrix of ambient - n_directions degrees of freedom; its Cholesky factor, lower triangular, has
    N(0, 1) below the diagonal and on it, in row i from 0, the root of a χ² of
    ambient - n_directions - i degrees (Bartlett 1933). The rows of the factor are coordinates with
    that Gram matrix. Descent on the population loss never leaves this span and depends on inner
    products alone, so runs from these draws are those in the ambient space, in law.

    >>> reduced_draws(3, 2, 1000, torch.Generator().manual_seed(0)).shape
    torch.Size([3, 5])
    """
    overlaps = torch.randn(width, n_directions, generator=generator, dtype=torch.float64)
    factor = torch.randn(width, width, generator=generator, dtype=torch.float64).tril(-1)
    degrees = ambient - n_directions - torch.arange(width, dtype=torch.float64)
    seed = int(torch.randint(2**31, (), generator=generator))
    chi_square = torch.from_numpy(np.random.default_rng(seed).chisquare(degrees.numpy()))
    return torch.cat([overlaps, factor + chi_square.sqrt().diag()], 1).float()


def polar(
    weight: Float[Tensor, "*model neuron d"],
) -> tuple[Float[Tensor, "*model neuron"], Float[Tensor, "*model neuron d"]]:
    """Squared norms (..., neuron), unit directions (..., neuron, d); zero of a zero row."""
    square = weight.square().sum(-1)
    return square, weight / square.clamp_min(TINY).sqrt().unsqueeze(-1)


def forward(
    p: Parameters, config: TwoLayerConfig, x: Float[Tensor, "*model batch d"], hook: Hook = no_hook
) -> Float[Tensor, "*model batch"]:
    """Answers (..., batch) to inputs x (..., batch, d)."""
    square, unit = polar(p["W"])
    pre = hook("hook_pre", linear(x, unit.mT))
    post = hook("hook_post", hermite.evaluate(config.link, pre))
    return linear(post, square.unsqueeze(-1)).squeeze(-1)


def losses(p: Parameters, config: TwoLayerConfig, batch: Batch) -> Float[Tensor, "*model"]:
    """Squared error (...,), its weighted sum divided by the batch."""
    error = (forward(p, config, batch.tokens) - batch.targets.squeeze(-1)).square()
    return (error if batch.weights is None else error * batch.weights).mean(-1)


def population_loss(
    p: Parameters, config: TwoLayerConfig, task: SingleIndexTruth
) -> Float[Tensor, "*model"]:
    """E (f - f*)² over x ~ N(0, I), exact, (...,).

    Σ_{pq} a_p a_q κ(θ_p, θ_q) - 2 Σ_{ip} n_i² a_p κ(v_i, θ_p) + Σ_{ij} n_i² n_j² κ(v_i, v_j), where
    κ(u, v) is the links' Gaussian correlation, ⟨u, v⟩^k for a single polynomial of degree k. The
    weights' dtype sets the precision: below 1e-6 of the start's loss, take float64.
    """
    square, unit = polar(p["W"])
    amplitudes, directions = task.amplitudes.to(unit), task.directions.to(unit)
    teacher = hermite.correlate(task.link, task.link, directions @ directions.mT)
    cross = hermite.correlate(config.link, task.link, unit @ directions.mT)
    student = hermite.correlate(config.link, config.link, unit @ unit.mT)
    constant = amplitudes @ teacher @ amplitudes
    return (
        constant
        - 2 * (square * (cross @ amplitudes)).sum(-1)
        + (square * (student @ square.unsqueeze(-1)).squeeze(-1)).sum(-1)
    )


def alignment(p: Parameters, task: SingleIndexTruth) -> Float[Tensor, "*model direction"]:
    """Σ_i n_i² ⟨v_i, θ_p⟩^k / a_p, (..., direction), k the information exponent; 1 is learned."""
    square, unit = polar(p["W"])
    cosine = unit @ task.directions.to(unit).mT
    return (square.unsqueeze(-1) * cosine.pow(hermite.information_exponent(task.link))).sum(
        -2
    ) / task.amplitudes.to(unit)


def measures(p: Parameters, task: SingleIndexTruth) -> dict[str, Float[Tensor, "*model"]]:
    """Alignment with every direction, "alignment.P", each (...,)."""
    aligned = alignment(p, task)
    return {f"alignment.{i}": aligned[..., i] for i in range(aligned.shape[-1])}
