"""Optimizers over flat parameters (model, parameter), each model with its own rates, Grokfast in
the same pass.

AdamW: Loshchilov & Hutter 2019, Algorithm 2. Grokfast: Lee et al. 2024, Eq. 3 (MA) and Eq. 6 (EMA).
Muon: Jordan et al. 2024. ⊥Grad: Prieto et al. 2025, "Grokking at the Edge of Numerical
Stability".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import TrainConfig
from mechint.models.foreign.untouched import all_finite

PER_MODEL_FIELDS = (
    "seed",
    "data_seed",
    "lr",
    "min_lr",
    "muon_lr",
    "weight_decay",
    "grokfast_lamb",
    "grokfast_alpha",
)
"""Fields of TrainConfig in which models of one ensemble may differ."""


def learning_rate(config: TrainConfig, step: int) -> float:
    """The learning rate of optimizer step `step`, counted from 0.

    >>> [learning_rate(TrainConfig(lr=1.0, warmup=2, steps=4, schedule="linear"), step) for step in
    ...     range(4)]
    [0.5, 1.0, 0.5, 0.0]
    """
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    after, span = step - config.warmup + 1, max(1, config.steps - config.warmup)
    if config.schedule == "cosine":
        return config.min_lr + (config.lr - config.min_lr) * 0.5 * (
            1 + math.cos(math.pi * min(1.0, after / span))
        )
    if config.schedule == "linear":
        return config.min_lr + (config.lr - config.min_lr) * (1 - min(1.0, after / span))
    if config.schedule == "inverse_sqrt":
        return config.lr * math.sqrt(max(1, config.warmup) / max(1, step + 1))
    return config.lr


def _for_muon(config: TrainConfig) -> TrainConfig:
    """The schedule of Muon's rate: that of the learning rate, from `muon_lr` on."""
    share = config.min_lr / config.lr if config.lr else 0.0
    return dataclasses.replace(config, lr=config.muon_lr, min_lr=share * config.muon_lr)


def orthogonal_to(
    grad: Float[Tensor, "model parameter"], weights: Float[Tensor, "model parameter"]
) -> None:
    """Take from each row of `grad` (model, parameter) its part along that row of `weights`.

    ∇⊥L = ∇L - (θᵀ∇L / θᵀθ) θ; the weights' scale, along which a model whose logits grow without
    getting better would move, stays.
    """
    along = (grad * weights).sum(1, keepdim=True)
    grad.sub_(along / weights.square().sum(1, keepdim=True).clamp_min(1e-30) * weights)


class Optimizer:
    """One update rule for a whole ensemble.

    `configs` are the models' TrainConfigs; they may differ in `PER_MODEL_FIELDS` alone. State
    tensors are (model, parameter).
    """

    def __init__(self, configs: Sequence[TrainConfig], parameters: FlatParameters) -> None:
        self.configs, self.parameters, self.steps = list(configs), parameters, 0
        config, like = configs[0], parameters.values
        self.state: dict[str, Tensor] = {}
        if config.optimizer == "sgd":
            if config.momentum:
                self.state["momentum"] = torch.zeros_like(like)
        else:
            self.state |= {"mean": torch.zeros_like(like), "square": torch.zeros_like(like)}
        self.hidden: list[str] = []  # the parameters that Muon moves
        if config.optimizer == "muon":
            shapes = parameters.shapes
            self.hidden = [name for name in shapes if is_hidden(name, shapes[name])]
            self.state["momentum"] = torch.zeros_like(like)
        if config.grokfast:
            self.state["slow"] = torch.zeros_like(like)
        if config.grokfast == "ma":
            self.state["window"] = torch.zeros(
                len(parameters),
                config.grokfast_window,
                like.shape[1],
                dtype=like.dtype,
                device=like.device,
            )
        self._decayed = parameters.matrices() if config.decay_matrices_only else None
        self._columns()

    def _column(self, values: Iterable[float]) -> Float[Tensor, "model 1"]:
        like = self.parameters.values
        return torch.tensor([[value] for value in values], dtype=like.dtype, device=like.device)

    def _columns(self) -> None:
        """Settings in which models differ, as (model, 1) tensors."""
        self.decay, self.lamb, self.alpha = (
            self._column(getattr(config, name) for config in self.configs)
            for name in ("weight_decay", "grokfast_lamb", "grokfast_alpha")
        )

    def keep(self, index: Int[Tensor, " kept"]) -> None:
        """Drop all models but those at `index`, after the parameters did."""
        self.configs = [self.configs[i] for i in index.tolist()]
        self.state = {name: value[index].clone() for name, value in self.state.items()}
        self._columns()

    @torch.no_grad()
    def apply(self) -> None:
        """One update from the gradients in `parameters.grad`; these are spent."""
        config, state = self.configs[0], self.state
        values, grad = self.parameters.values, self.parameters.grad
        rates = [learning_rate(config_of_model, self.steps) for config_of_model in self.configs]
        rate, decay = self._column(rates), self.decay
        self.steps += 1
        if config.orthogonal_grad:
            for span in self.parameters.spans.values():
                orthogonal_to(grad[:, span], values[:, span])
        if config.clip is not None:
            norm = torch.linalg.vector_norm(grad, dim=1, keepdim=True)
            grad.mul_((config.clip / (norm + 1e-6)).clamp_max(1.0))
        if config.grokfast:
            self._filter(grad)
        decay = decay if self._decayed is None else decay * self._decayed
        moved: dict[str, Tensor] = {}
        if config.optimizer == "muon":
            moved = self._moved(decay)
        if config.optimizer in ("adamw", "muon"):
            values.mul_(1 - rate * decay)
        else:
            grad.addcmul_(values, decay.expand_as(values))
        if config.optimizer == "sgd":
            if config.momentum:
                grad = state["momentum"].mul_(config.momentum).add_(grad)
            values.sub_(rate * grad)
            return
        self._adam(rates)
        for name, value in moved.items():
            values[:, self.parameters.spans[name]] = value

    def _adam(self, rates: Sequence[float]) -> None:
        """Adam's step without weight decay, fused: one call for all models of one rate."""
        values, grad, state = self.parameters.values, self.parameters.grad, self.state
        (beta1, beta2), eps = self.configs[0].betas, self.configs[0].eps
        count = torch.tensor(float(self.steps), device=values.device)
        for rate in dict.fromkeys(rates):
            models = [model for model, its_rate in enumerate(rates) if its_rate == rate]
            numbers = [
                [each[model] for model in models]
                for each in (values, grad, state["mean"], state["square"])
            ]
            torch.ops.aten._fused_adam_(
                *numbers,
                [],
                [count] * len(models),
                lr=rate,
                beta1=beta1,
                beta2=beta2,
                weight_decay=0.0,
                eps=eps,
                amsgrad=False,
                maximize=False,
            )

    def _moved(self, decay: Tensor) -> dict[str, Tensor]:
        """The hidden matrices after Muon's step, W ← (1 - ηλ) W - η O."""
        values, grad, momentum = (
            self.parameters.values,
            self.parameters.grad,
            self.state["momentum"],
        )
        rate = self._column(
            learning_rate(_for_muon(config), self.steps - 1) for config in self.configs
        )
        mu = self.configs[0].muon_momentum
        nesterov = grad + mu * momentum.mul_(mu).add_(grad)
        moved = {}
        for name in self.hidden:
            span, shape = self.parameters.spans[name], self.parameters.shapes[name]
            matrices = as_matrices(name, nesterov[:, span].view(-1, *shape))
            read, written = matrices.shape[-2:]
            step = orthogonalize(matrices) * max(1.0, written / read) ** 0.5
            decays = decay if decay.shape[1] == 1 else decay[:, span]
            step = from_matrices(name, step, shape).flatten(1)
            moved[name] = values[:, span] * (1 - rate * decays) - rate * step
        return moved

    def _filter(self, grad: Tensor) -> None:
        """g ← g + λ μ, with μ the slow part of the gradient."""
        config, slow, lamb = self.configs[0], self.state["slow"], self.lamb.expand_as(grad)
        if config.grokfast == "ema":
            starts = self.steps == 1 and config.grokfast_start == "first"
            blend = torch.ones_like(self.alpha) if starts else 1 - self.alpha
            slow.lerp_(grad, blend.expand_as(grad))
            grad.addcmul_(slow, lamb)
            return
        window = self.state["window"]
        size = window.shape[1]
        place = (self.steps - 1) % size
        slow.add_((grad - window[:, place]) / size)
        window[:, place] = grad
        if self.steps >= size:  # no filter until the window is full
            grad.addcmul_(slow, lamb)


# --- Muon -----------------------------------------------------------------------------------------
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration (Jordan et al. 2024, "Newton-Schulz iteration coefficients")."""

STEPS = 5


def orthogonalize(
    matrices: Float[Tensor, "*batch rows cols"],
) -> Float[Tensor, "*batch rows cols"]:
    """About U Vᵀ for every matrix U S Vᵀ: its singular values are brought to within 0.3 of 1.

    X ← aX + (bA + cA²)X with A = XXᵀ, from X = M / ‖M‖ on.

    >>> spectrum = torch.linalg.svdvals(orthogonalize(torch.diag(torch.tensor([9.0, 3.0, 1.0]))))
    >>> bool((spectrum - 1).abs().max() < 0.35)
    True
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.flatten(-2).norm(dim=-1)[..., None, None] + 1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT  # (..., rows, rows)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def is_hidden(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether Muon moves the parameter: a matrix that neither embeds nor unembeds."""
    kind = name.rpartition(".")[2]
    return kind.startswith("W") and kind not in ("W_E", "W_pos", "W_U") and len(shape) >= 2


def as_matrices(name: str, value: Float[Tensor, "model ..."]) -> Float[Tensor, "... row column"]:
    """A stacked parameter as matrices (..., in, out); the heads of a layer are one matrix."""
    kind = name.rpartition(".")[2]
    if kind in ("W_Q", "W_K", "W_V") and value.dim() == 4:
        return value.transpose(1, 2).flatten(2)  # (model, d_model, head * d_head)
    if kind == "W_O" and value.dim() == 4:
        return value.flatten(1, 2)  # (model, head * d_head, d_model)
    return value.mT if kind == "W" else value


def from_matrices(
    name: str, matrices: Float[Tensor, "... row column"], shape: tuple[int, ...]
) -> Float[Tensor, "model ..."]:
    """The inverse of `as_matrices`, for a parameter of `shape`."""
    kind = name.rpartition(".")[2]
    if kind in ("W_Q", "W_K", "W_V") and len(shape) == 3:
        head, _, d_head = shape
        return matrices.unflatten(2, (head, d_head)).transpose(1, 2)
    return (matrices.mT if kind == "W" else matrices).reshape(-1, *shape)


class FlatParameters:
    """Stacked parameters of models of one shape.

    `values` and `grad` are (model, parameter); `views` name → leaf tensor (model, *shape) whose
    storage is `values`.
    """

    def __init__(
        self,
        initial: Sequence[Mapping[str, Tensor]],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.shapes = {name: tuple(value.shape) for name, value in initial[0].items()}
        rows = [torch.cat([weights[name].flatten() for name in self.shapes]) for weights in initial]
        values = torch.stack(rows).to(device=device, dtype=dtype)
        self._lay_out(values, torch.zeros_like(values))

    def _lay_out(self, values: Tensor, grad: Tensor) -> None:
        self.values, self.grad = values, grad
        self.views: dict[str, Tensor] = {}
        self.spans: dict[str, slice] = {}
        start = 0
        for name, shape in self.shapes.items():
            span = slice(start, start + int(torch.Size(shape).numel()))
            view = self.values[:, span].view(-1, *shape).requires_grad_()
            self.views[name], self.spans[name], start = view, span, span.stop

    def __len__(self) -> int:
        return self.values.shape[0]

    def differentiate(self, loss: Float[Tensor, ""]) -> None:
        """Fill `grad` with the gradient of `loss`, zero for what it does not read."""
        grads = torch.autograd.grad(
            loss, list(self.views.values()), allow_unused=True, materialize_grads=True
        )
        torch.cat([grad.flatten(1) for grad in grads], 1, out=self.grad)

    def keep(self, index: Int[Tensor, " kept"]) -> None:
        """Drop all models but those at `index`."""
        values = self.values[index].clone()
        self._lay_out(values, torch.zeros_like(values))

    def weights(self, model: int) -> dict[str, Tensor]:
        """A copy of one model's parameters, float32 on the CPU."""
        row = self.values[model].detach()
        return {
            name: row[span].view(self.shapes[name]).to("cpu", torch.float32, copy=True)
            for name, span in self.spans.items()
        }

    def matrices(self) -> Float[Tensor, " parameter"]:
        """(parameter,) 1 for entries of weight matrices, 0 for biases and norm weights."""
        marks = torch.zeros(
            self.values.shape[1], dtype=self.values.dtype, device=self.values.device
        )
        for name, span in self.spans.items():
            marks[span] = float(name.rpartition(".")[2].startswith("W"))
        return marks

    def first_not_finite(self, model: int) -> str | None:
        """Name of the first parameter of `model` whose value or gradient is not finite."""
        both = self.values[model], self.grad[model]
        bad = (
            name
            for name, span in self.spans.items()
            if not all(all_finite(numbers[span]) for numbers in both)
        )
        return next(bad, None)
