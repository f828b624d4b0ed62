"""A sum of Gaussian single-index functions, whose directions are learned one by one, at times known
in advance.

Source: Ren, Nichani, Wu, Lee 2025, "Emergence and scaling laws for SGD learning". The target is
f*(x) = Σ_p a_p σ(⟨x, θ_p⟩), x ~ N(0, I_d), with orthonormal θ_p, a_p ∝ p^-β, Σ a_p² = 1 and a link
σ of unit variance. Each direction has a long plateau and a sharp end; together they make a power
law.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Num
from scipy.special import zeta
from torch import Tensor

from mechint import hermite
from mechint.config import setting
from mechint.errors import ParameterError
from mechint.task import MAX_SEED, Batch, Chance, Output
from mechint.tasks.vectors import RegressionTask, orthonormal


@dataclass(frozen=True)
class SingleIndex(RegressionTask):
    """Additive Gaussian single-index target with power-law second layer.

    A batch has `tokens` (batch, d) and `targets` (batch, 1), float32.

    >>> task = SingleIndex(d=8, n_directions=4, beta=1.0)
    >>> task.information_exponent, round(float(task.amplitudes.square().sum()), 6)
    (3, 1.0)
    """

    name: ClassVar[str] = "single-index"
    outputs: ClassVar[tuple[Output, ...]] = (Output("y", 1),)
    topic: ClassVar[str] = "regression"
    source: ClassVar[str] = (
        "Ren, Nichani, Wu, Lee 2025, Emergence and scaling laws for SGD learning"
    )
    model_kind: ClassVar[str] = "two-layer"
    model_defaults: ClassVar[Mapping[str, Any]] = {"width": 144, "init_norm": 1e-3}
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 9000,
        "batch_size": 256,
        "optimizer": "sgd",
        "lr": 0.01,
        "weight_decay": 0.0,
        "warmup": 0,
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {"task.d": 16, "task.n_directions": 4, "model.width": 48, "train.steps": 2000},
        "paper": {"train.steps": 9000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test loss under 1e-10 by step 2000, seed 0"
    }

    d: int = setting(64, "inputs", low=1, high=8192)
    n_directions: int = setting(24, "terms of the sum, P", low=1, high=8192)
    beta: float = setting(
        1.0, "amplitude of direction p (from 1) is proportional to p^-beta", low=0, high=16
    )
    hermite: tuple[float, ...] = setting(
        (0.0, 0.0, 0.0, 1.0),
        "coefficients of the link on the normalized Hermite polynomials, from degree 0",
        low=-1e6,
        high=1e6,
    )
    rotation: int | None = setting(
        None,
        "seed of the rotation of the directions; coordinate axes when none",
        low=0,
        high=MAX_SEED,
    )
    labels: str = setting(
        "true", "the targets, or those of other inputs", choices=("true", "shuffled")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        expected = f"at most d={self.d}, so that the directions are orthonormal"
        self.require("n_directions", self.n_directions <= self.d, expected)
        hermite.link(self.hermite)

    # --- the truth --------------------------------------------------------------------------------
    @cached_property
    def link(self) -> tuple[float, ...]:
        """Hermite coefficients of σ, scaled to E[σ²] = 1."""
        return hermite.link(self.hermite)

    @property
    def information_exponent(self) -> int:
        """k, the least degree of 1 or more in the link: it sets how long the search for a direction
        takes.
        """
        return hermite.information_exponent(self.hermite)

    @cached_property
    def amplitudes(self) -> Float[Tensor, " direction"]:
        """(direction,) a_p, float64."""
        weights = torch.arange(1, self.n_directions + 1, dtype=torch.float64) ** -self.beta
        return weights / weights.norm()

    @cached_property
    def directions(self) -> Float[Tensor, "direction d"]:
        """(direction, d) θ_p, orthonormal, float64."""
        return torch.from_numpy(orthonormal(self.n_directions, self.d, self.rotation))

    def tables(self) -> dict[str, Any]:
        return {
            "amplitudes": self.amplitudes.tolist(),
            "directions": self.directions.tolist(),
            "link": list(self.link),
        }

    # --- the theory -------------------------------------------------------------------------------
    def emergence_times(
        self, lr: float, init_norm: float, width: int, dimension: int | None = None
    ) -> Float[Tensor, " direction"]:
        """(direction,) predicted steps T_p until direction p is learned by gradient descent on the
        population loss.

        T_p = (1 / 2ηa_p) (S_k(c₀) + ½ ln(√(a_p/2) / n₀)): a neuron first turns (dc/dt = 2 a k
        c^{k-1} (1 - c²), taken without the last factor: S_k = ∫ dc / (k c^{k-1}) from c₀ on), then
        grows (dn/dt = 4 a n). c₀ is the median of the best cosine among `width` random neurons: by
        size for even k, where a neuron at -θ_p serves as well, and signed for odd k, where runs
        whose neurons all lie on the wrong side never learn and do not count. For a link of several
        degrees a_p counts with the weight of degree k. dimension: in which the neurons are drawn,
        where d counts reduced coordinates; d when None.

        Raises:
            ParameterError: a learning rate or a norm that is not positive, or no neuron.
        """
        if min(lr, init_norm) <= 0 or width < 1:
            raise ParameterError(
                f"{self.name}: lr={lr}, init_norm={init_norm}, width={width}: expected all positive"
            )
        k = self.information_exponent
        stuck = 0.5**width if k > 1 else 0.0  # at k = 1 the gradient does not vanish at c = 0
        below = ((1 + stuck) / 2) ** (1 / width) if k % 2 else (1 + 0.5 ** (1 / width)) / 2
        start = NormalDist().inv_cdf(below) / math.sqrt(dimension or self.d)
        search = {1: 1 - start, 2: math.log(1 / start) / 2}.get(
            k, start ** (2 - k) / (k * max(1, k - 2))
        )
        strength = self.amplitudes * self.link[k] ** 2
        return (search + 0.5 * torch.log((strength / 2).sqrt() / init_norm)) / (2 * lr * strength)

    def predicted_loss(
        self, steps: Num[Tensor, " step"], times: Float[Tensor, " direction"]
    ) -> Float[Tensor, " step"]:
        """Σ_{p: T_p > t} a_p² at every t of `steps`: sharp transitions at `times` whose sum is
        smooth.
        """
        return ((times > steps.unsqueeze(-1)) * self.amplitudes.square()).sum(-1)

    @property
    def tail(self) -> float:
        """Σ_{p > P} a_p² of the power law beyond the last direction: add it to the loss before a
        slope is fitted.

        Raises:
            ParameterError: beta of 1/2 or less, where the sum diverges.
        """
        finite = "more than 0.5 for the tail of the power law to be finite"
        self.require("beta", self.beta > 0.5, finite)
        return float(self.amplitudes[0] ** 2) * float(zeta(2 * self.beta, self.n_directions + 1))

    # --- the contract -----------------------------------------------------------------------------
    @property
    def n_ctx(self) -> int:
        """Inputs a vector has."""
        return self.d

    @property
    def chance(self) -> Mapping[str, Chance]:
        """The best constant is E f*; its loss is the variance Σ_{j ≥ 1} c_j². Accuracy has no
        meaning here and is 0.
        """
        return {"y": Chance(0.0, 1 - self.link[0] ** 2)}

    def brute_force(self, tokens: Sequence[float]) -> list[list[float]]:  # type: ignore[override]
        """The target of one input, with the Hermite polynomials written as sums of powers."""
        total = 0.0
        for amplitude, direction in zip(
            self.amplitudes.tolist(), self.directions.tolist(), strict=True
        ):
            z = sum(w * x for w, x in zip(direction, tokens, strict=True))
            for degree, coefficient in enumerate(self.link):
                powers = (
                    (-1) ** m
                    * math.factorial(degree)
                    / (math.factorial(m) * math.factorial(degree - 2 * m))
                    * z ** (degree - 2 * m)
                    / 2**m
                    for m in range(degree // 2 + 1)
                )
                total += amplitude * coefficient * sum(powers) / math.sqrt(math.factorial(degree))
        return [[total]]

    def answer(self, x: Float[Tensor, "batch d"]) -> Float[Tensor, "batch output"]:
        """Targets (batch, 1) of x (batch, d)."""
        return (
            (hermite.evaluate(self.link, x.double() @ self.directions.T) @ self.amplitudes)
            .float()
            .unsqueeze(-1)
        )

    def generate(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        x = torch.from_numpy(generator.standard_normal((n, self.d), np.float32))
        seen = (
            x
            if self.labels == "true"
            else torch.from_numpy(generator.standard_normal((n, self.d), np.float32))
        )
        return Batch(x, self.answer(seen))
