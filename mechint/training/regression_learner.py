"""Losses and evaluation of an ensemble of students of regressions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from mechint.config import Settings, TrainConfig
from mechint.errors import ParameterError
from mechint.models.layers import Hook, no_hook
from mechint.task import Batch, Task
from mechint.training.batches import stack
from mechint.training.loss import autocast
from mechint.training.parameters import FlatParameters


class RegressionLearner:
    """Students on tasks over real vectors; without a batch size they descend the exact population
    loss.
    """

    def __init__(
        self,
        configs: Sequence[Settings],
        tasks: Sequence[Task],
        train: TrainConfig,
        device: torch.device,
    ) -> None:
        from mechint.models.students import STUDENTS

        if train.loss != "softmax":
            raise ParameterError(
                f"train: loss={train.loss!r}: {tasks[0].name} has no classes; expected softmax"
            )
        self.configs, self.tasks, self.device = list(configs), list(tasks), device
        self.precision = train.precision
        self.dtype = torch.float64 if train.precision == "float64" else torch.float32
        self.student = STUDENTS[tasks[0].model_kind]
        if any(task != tasks[0] for task in tasks):
            raise ParameterError(
                f"{tasks[0].name}: one ensemble of students shares its task; got different "
                "parameters"
            )

    def keep(self, index: Sequence[int]) -> None:
        """Drop all models but those at `index`."""
        self.configs, self.tasks = [self.configs[i] for i in index], [self.tasks[i] for i in index]

    def initial(self, model: int, seed: int) -> dict[str, Tensor]:
        """Initial weights of one model of the ensemble, by name."""
        return self.student.initialize(self.configs[model], seed)

    def prepare(self, batches: list[Batch]) -> Batch | None:
        """The stacked batch; None, when there is none, stands for the whole distribution."""
        if not batches:
            return None
        placed = {id(batch): self._placed(batch) for batch in batches}  # what is shared stays so
        return stack([placed[id(batch)] for batch in batches])

    def _placed(self, batch: Batch) -> Batch:
        """The batch on the device, its numbers as precise as the weights."""
        batch = batch.to(self.device)
        return dataclasses.replace(
            batch, tokens=batch.tokens.to(self.dtype), targets=batch.targets.to(self.dtype)
        )

    def descend(
        self, parameters: FlatParameters, prepared: Batch | None, drop: Hook = no_hook
    ) -> Float[Tensor, " model"]:
        """(model,) losses that training descends; their gradients fill those of `parameters`."""
        with autocast(self.precision, self.device):
            losses = self.losses(parameters.views, prepared, drop)
        parameters.differentiate(losses.sum())
        return losses.detach()

    def losses(
        self, weights: Mapping[str, Tensor], prepared: Batch | None, drop: Hook = no_hook
    ) -> Float[Tensor, " model"]:
        """(model,) losses that training descends."""
        if prepared is None:
            return self.student.population_loss(weights, self.configs[0], self.tasks[0])
        return self.student.losses(weights, self.configs[0], prepared)

    @torch.no_grad()
    def evaluate(
        self, weights: Mapping[str, Tensor], seeds: Sequence[int], n: int
    ) -> list[dict[str, float]]:
        """The exact population loss of every model, and what it has learned so far."""
        exact = {name: value.double() for name, value in weights.items()}
        measured = {
            "loss": self.student.population_loss(exact, self.configs[0], self.tasks[0]),
            **self.student.measures(exact, self.tasks[0]),
        }
        columns = {name: values.tolist() for name, values in measured.items()}
        return [
            {f"test.{name}": values[model] for name, values in columns.items()}
            for model in range(len(self.tasks))
        ]
