"""The linear bottleneck: one shared encoder of few columns, one linear decoder per task ("Why
Larger Models Learn More", Sec. 3).

Parameters, plain or stacked with a leading `model` axis (written ``...``): W_enc (..., n, columns)
and, where decoders are learned, W_dec (..., task, columns, n_out). What the encoder keeps is its
column space, with projector P = QQᵀ.

Widths share one stacked ensemble: with `columns` above `width` the spare columns are zero, and zero
they stay, because a zero column gets a zero gradient in every loss below. So the projector is that
of the used columns, exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import Settings, setting
from mechint.errors import ParameterError
from mechint.models.layers import Hook, Parameters, linear, no_hook
from mechint.task import Batch


class RegressionTruth(Protocol):
    """Truth of a mixture of regressions: the target of task t is ``readouts[t] @ x``."""

    @property
    def priors(self) -> Float[Tensor, " task"]:
        """(task,) share of each task, adding up to 1."""
        ...

    @property
    def spectra(self) -> Float[Tensor, "task feature"]:
        """(task, feature) eigenvalues λ of the covariances."""
        ...

    @property
    def bases(self) -> Float[Tensor, "task feature n"]:
        """(task, feature, n) orthonormal eigenvectors."""
        ...


@dataclass(frozen=True)
class LinearBottleneckConfig(Settings):
    """Shape of a linear bottleneck; `n`, `n_tasks` and `n_out` follow from the task.

    >>> LinearBottleneckConfig(n=8, width=2, n_tasks=4, n_out=2).columns
    2
    """

    n: int = setting(64, "inputs", low=1)
    width: int = setting(16, "columns of the encoder that are used", low=1)
    n_tasks: int = setting(8, "decoders", low=1)
    n_out: int = setting(8, "outputs of a decoder", low=1)
    decoder: str = setting(
        "learned",
        "learned beside the encoder, or at every step the best there is (population loss only)",
        choices=("learned", "optimal"),
    )
    columns: int | None = setting(
        None,
        (
            "columns of the encoder, the spare ones zero, so that widths share an ensemble; width "
            "when none"
        ),
        low=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("width", self.width <= self.n, f"at most n={self.n}, the number of inputs")
        if self.columns is None:
            object.__setattr__(self, "columns", self.width)
        wide = (self.columns or 0) >= self.width
        self.require("columns", wide, f"at least width={self.width}")

    @classmethod
    def label(cls) -> str:
        return "model"

    @classmethod
    def for_task(cls, task: RegressionTruth, **values: object) -> Self:
        """The configuration with the task's shape and the given values."""
        n_tasks, n_out, n = task.bases.shape
        return cls.from_dict({"n": n, "n_tasks": n_tasks, "n_out": n_out, **values})


def parameter_shapes(config: LinearBottleneckConfig) -> dict[str, tuple[int, ...]]:
    """Name → shape of every parameter."""
    columns = config.columns or config.width
    shapes: dict[str, tuple[int, ...]] = {"W_enc": (config.n, columns)}
    if config.decoder == "learned":
        shapes["W_dec"] = (config.n_tasks, columns, config.n_out)
    return shapes


def initialize(config: LinearBottleneckConfig, seed: int) -> dict[str, Tensor]:
    """Orthonormal encoder columns (uniform on the Stiefel manifold), Kaiming-uniform decoders."""
    generator = torch.Generator().manual_seed(seed)
    columns, width = config.columns or config.width, config.width
    basis, r = torch.linalg.qr(
        torch.randn(config.n, width, generator=generator, dtype=torch.float64)
    )
    encoder = torch.zeros(config.n, columns, dtype=torch.float32)
    encoder[:, :width] = (basis * r.diagonal().sign()).float()
    if config.decoder == "optimal":
        return {"W_enc": encoder}
    decoders = torch.zeros(config.n_tasks, columns, config.n_out, dtype=torch.float32)
    bound = math.sqrt(3 / width)
    decoders[:, :width].uniform_(-bound, bound, generator=generator)
    return {"W_enc": encoder, "W_dec": decoders}


def decoded(
    p: Parameters,
    config: LinearBottleneckConfig,
    x: Float[Tensor, "*model batch n"],
    hook: Hook = no_hook,
) -> Float[Tensor, "*model batch task n_out"]:
    """Answers of every decoder to inputs x."""
    if "W_dec" not in p:
        raise ParameterError(
            "model: decoder='optimal' answers no batch; train on the population loss, or take "
            "the decoders of mechint.models.linear_bottleneck.with_decoders"
        )
    encoded = hook("hook_encoded", linear(x, p["W_enc"]))
    every = linear(encoded, p["W_dec"].transpose(-3, -2).flatten(-2))
    return hook("hook_decoded", every.unflatten(-1, (config.n_tasks, config.n_out)))


def forward(
    p: Parameters,
    config: LinearBottleneckConfig,
    x: Float[Tensor, "*model batch n"],
    task: Int[Tensor, "*model batch"],
    hook: Hook = no_hook,
) -> Float[Tensor, "*model batch n_out"]:
    """Answers to inputs x, each by the decoder of its task."""
    every = decoded(p, config, x, hook)  # (..., batch, task, n_out)
    chosen = task[..., None, None].expand(*task.shape, 1, config.n_out)
    return every.gather(-2, chosen).squeeze(-2)


def losses(p: Parameters, config: LinearBottleneckConfig, batch: Batch) -> Float[Tensor, "*model"]:
    """Squared error (...,), summed over outputs, its weighted sum divided by the batch."""
    error = (forward(p, config, batch.tokens, batch.masks["task"]) - batch.targets).square().sum(-1)
    return (error if batch.weights is None else error * batch.weights).mean(-1)


class _Projector(torch.autograd.Function):
    """P = E (EᵀE)⁻¹ Eᵀ with its gradient in closed form, (I - P)(Γ + Γᵀ) E (EᵀE)⁻¹: several times
    faster than through QR.

    A zero column is given the unit diagonal, which decouples it.
    """

    @staticmethod
    def forward(ctx: Any, encoder: Tensor) -> Tensor:
        gram = encoder.mT @ encoder + torch.diag_embed((encoder == 0).all(-2).to(encoder.dtype))
        dual = encoder @ torch.cholesky_inverse(torch.linalg.cholesky(gram))
        projector = dual @ encoder.mT
        ctx.save_for_backward(projector, dual)
        return projector

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        projector, dual = ctx.saved_tensors
        toward = (gradients[0] + gradients[0].mT) @ dual
        return toward - projector @ toward


def projector(encoder: Float[Tensor, "*model n column"]) -> Float[Tensor, "*model n n"]:
    """P on the column space of the encoder, whatever its zero columns."""
    return _Projector.apply(encoder)  # type: ignore[return-value]


def captured(p: Parameters, task: RegressionTruth) -> Float[Tensor, "*model task feature"]:
    """‖P b‖² of every feature direction b, in 0 … 1."""
    bases = task.bases.to(p["W_enc"])
    flat = bases.flatten(0, 1)
    return (flat @ projector(p["W_enc"]) * flat).sum(-1).unflatten(-1, bases.shape[:2])


def task_losses(p: Parameters, task: RegressionTruth) -> Float[Tensor, "*model task"]:
    """Exact loss of every task: Tr(C_t (I - P)) under the best decoders, or that of the learned.

    The learned decoder W_t leaves ‖readout_t - W_tᵀ Eᵀ‖²_F, the inputs being isotropic.
    """
    encoder = p["W_enc"]
    if "W_dec" not in p:
        return (task.spectra.to(encoder) * (1 - captured(p, task))).sum(-1)
    student = (encoder.unsqueeze(-3) @ p["W_dec"]).mT
    return (_readouts(task, encoder) - student).square().sum((-2, -1))


def population_loss(
    p: Parameters, config: LinearBottleneckConfig, task: RegressionTruth
) -> Float[Tensor, "*model"]:
    """Exact mixture loss Σ_t p_t L_t; its gradient is what stochastic training estimates."""
    priors = task.priors.to(p["W_enc"])
    if "W_dec" in p:
        return task_losses(p, task) @ priors
    features = priors.sqrt().view(-1, 1, 1) * _readouts(task, priors)
    mixture = features.flatten(0, 1).mT @ features.flatten(0, 1)
    return mixture.diagonal().sum() - (mixture * projector(p["W_enc"])).sum((-2, -1))


def _readouts(task: RegressionTruth, like: Tensor) -> Float[Tensor, "task feature n"]:
    """The true readouts, in the type and on the device of `like`."""
    return (task.spectra.sqrt().unsqueeze(-1) * task.bases).to(like)


def features_held(p: Parameters, task: RegressionTruth) -> Float[Tensor, "*model task"]:
    """Features of each task in the encoder's column space, a_t r = Tr(P Π_t) in 0 … r."""
    return captured({"W_enc": p["W_enc"].double()}, task).sum(-1)


def measures(p: Parameters, task: RegressionTruth) -> dict[str, Float[Tensor, "*model"]]:
    """Features held of every task, "features.T", each (...,)."""
    held = features_held(p, task)
    return {f"features.{t}": held[..., t] for t in range(held.shape[-1])}


def with_decoders(p: Parameters, task: RegressionTruth) -> dict[str, Tensor]:
    """The parameters with the best decoder of every task, W_t = E⁺ readout_tᵀ."""
    encoder = p["W_enc"]
    inverse = torch.linalg.pinv(encoder.double()).to(encoder)
    return {"W_enc": encoder, "W_dec": inverse.unsqueeze(-3) @ _readouts(task, encoder).mT}
