"""Optimizers over flat parameters (model, parameter), each model with its own rates, Grokfast in
the same pass.

AdamW: Loshchilov & Hutter 2019, Algorithm 2. Grokfast: Lee et al. 2024, Eq. 3 (MA) and Eq. 6 (EMA).
Muon: `mechint.training.muon`. ⊥Grad: Prieto et al. 2025, "Grokking at the Edge of Numerical
Stability".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import TrainConfig
from mechint.training.muon import is_hidden, updates
from mechint.training.parameters import FlatParameters

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

AHEAD = 128
"""Steps whose rates are moved to the device together: a copy from the CPU waits for the device to
finish its queue, so that one a step would leave a GPU idle while Python prepares the next.
"""


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
        self._tensors()

    def _tensors(self) -> None:
        """What differs between models, as (model, 1) tensors; and what changes with the step, for
        `advance` to fill.
        """
        like = self.parameters.values

        def column(name: str) -> Tensor:
            return torch.tensor(
                [[getattr(config, name)] for config in self.configs],
                dtype=like.dtype,
                device=like.device,
            )

        self.decay, self.lamb, self.alpha = (
            column("weight_decay"),
            column("grokfast_lamb"),
            column("grokfast_alpha"),
        )
        self.rate, self.muon_rate = torch.zeros_like(self.decay), torch.zeros_like(self.decay)
        self.count = torch.zeros(())  # on the CPU, whose kernel reads it
        self.corrections = torch.ones(2, dtype=like.dtype, device=like.device)
        self.blend = torch.zeros_like(self.decay)
        self._ahead: dict[str, Tensor] = {}
        self._first = self._until = 0

    def keep(self, index: Int[Tensor, " kept"]) -> None:
        """Drop all models but those at `index`, after the parameters did."""
        self.configs = [self.configs[i] for i in index.tolist()]
        self.state = {name: value[index].clone() for name, value in self.state.items()}
        self._tensors()

    def _look_ahead(self) -> None:
        """What changes with the step, for `AHEAD` steps from the coming one on: (step, model, 1)
        rates and (step, 2) corrections.
        """
        steps = range(self.steps, self.steps + AHEAD)

        def moved(values: list[Any]) -> Tensor:
            return torch.tensor(values, dtype=self.rate.dtype).to(self.rate.device)

        def rates(configs: Sequence[TrainConfig]) -> Tensor:
            return moved([[[learning_rate(own, step)] for own in configs] for step in steps])

        betas = self.configs[0].betas
        self._ahead = {
            "rate": rates(self.configs),
            "corrections": moved([[1 - beta ** (step + 1) for beta in betas] for step in steps]),
        }
        if self.hidden:
            self._ahead["muon_rate"] = rates([_for_muon(own) for own in self.configs])
        self._first, self._until = steps.start, steps.stop

    def advance(self) -> None:
        """Set the rates of the coming step; apart from `apply`, so that a captured graph can replay
        `apply`.
        """
        if not self._first <= self.steps < self._until:
            self._look_ahead()
        for name, values in self._ahead.items():
            getattr(self, name).copy_(values[self.steps - self._first])
        config = self.configs[0]
        self.steps += 1
        self.count.fill_(self.steps)
        starts = self.steps == 1 and config.grokfast_start == "first"
        self.blend.copy_(torch.ones_like(self.alpha) if starts else 1 - self.alpha)

    @torch.no_grad()
    def apply(self, models: slice = slice(None)) -> None:
        """One update of `models` from the gradients in `parameters.grad`; these are spent."""
        config = self.configs[0]
        values, grad = self.parameters.values[models], self.parameters.grad[models]
        state = {name: value[models] for name, value in self.state.items()}
        rate, decay = self.rate[models], self.decay[models]
        if config.orthogonal_grad:
            for span in self.parameters.spans.values():
                orthogonal_to(grad[:, span], values[:, span])
        if config.clip is not None:
            norm = torch.linalg.vector_norm(grad, dim=1, keepdim=True)
            grad.mul_((config.clip / (norm + 1e-6)).clamp_max(1.0))
        if config.grokfast:
            self._filter(grad, state, models)
        decay = decay if self._decayed is None else decay * self._decayed
        moved: dict[str, Tensor] = {}
        if config.optimizer == "muon":
            moved = self._moved(values, grad, state["momentum"], self.muon_rate[models], decay)
        if config.optimizer in ("adamw", "muon"):
            values.mul_(1 - rate * decay)
        else:
            grad.addcmul_(values, decay.expand_as(values))
        if config.optimizer == "sgd":
            if config.momentum:
                grad = state["momentum"].mul_(config.momentum).add_(grad)
            values.sub_(rate * grad)
            return
        adam = self._adam_on_cpu if values.device.type == "cpu" else self._adam
        adam(values, grad, state["mean"], state["square"], rate)
        for name, value in moved.items():
            values[:, self.parameters.spans[name]] = value

    def _adam(
        self, values: Tensor, grad: Tensor, mean: Tensor, square: Tensor, rate: Tensor
    ) -> None:
        """Adam's step, without weight decay, that a CUDA graph can record."""
        betas = self.configs[0].betas
        mean.lerp_(grad, 1 - betas[0])
        square.mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
        scale = square.sqrt().div_(self.corrections[1].sqrt()).add_(self.configs[0].eps)
        step = torch.div(mean, scale, out=scale).mul_(rate / self.corrections[0])
        values.sub_(step)

    def _adam_on_cpu(
        self, values: Tensor, grad: Tensor, mean: Tensor, square: Tensor, rate: Tensor
    ) -> None:
        """The same by PyTorch's own kernel, which reads and writes every number once."""
        (beta1, beta2), eps = self.configs[0].betas, self.configs[0].eps
        for own, *numbers in zip(rate.flatten().tolist(), values, grad, mean, square, strict=True):
            torch.ops.aten._fused_adam_(
                *([one] for one in numbers),
                [],
                [self.count],
                lr=own,
                beta1=beta1,
                beta2=beta2,
                weight_decay=0.0,
                eps=eps,
                amsgrad=False,
                maximize=False,
            )

    def _moved(
        self, values: Tensor, grad: Tensor, momentum: Tensor, rate: Tensor, decay: Tensor
    ) -> dict[str, Tensor]:
        """Where Muon moves the hidden matrices: W ← (1 - ηλ) W - η O, with O the orthogonalized
        Nesterov momentum.
        """
        mu = self.configs[0].muon_momentum
        nesterov = grad + mu * momentum.mul_(mu).add_(grad)
        spans = {name: self.parameters.spans[name] for name in self.hidden}
        steps = updates({n: nesterov[:, span] for n, span in spans.items()}, self.parameters.shapes)
        moved = {}
        for name, span in spans.items():
            decays = decay if decay.shape[1] == 1 else decay[:, span]
            moved[name] = values[:, span] * (1 - rate * decays) - rate * steps[name]
        return moved

    def _filter(self, grad: Tensor, state: Mapping[str, Tensor], models: slice) -> None:
        """g ← g + λ μ, with μ the slow part of the gradient."""
        slow, lamb = state["slow"], self.lamb[models].expand_as(grad)
        if self.configs[0].grokfast == "ema":
            slow.lerp_(grad, self.blend[models].expand_as(grad))
            grad.addcmul_(slow, lamb)
            return
        window = state["window"]
        size = window.shape[1]
        place = (self.steps - 1) % size
        slow.add_((grad - window[:, place]) / size)
        window[:, place] = grad
        if self.steps >= size:  # no filter until the window is full
            grad.addcmul_(slow, lamb)
