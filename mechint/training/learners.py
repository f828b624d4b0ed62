"""What training asks of an architecture: initial weights, the losses of a stacked batch, and an
evaluation.

`TokenLearner` trains HookedTransformers on token tasks through the compact layout,
`RegressionLearner` the students. An ensemble has one learner, and everything it returns has a
leading `model` axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import ModelConfig, Settings, TrainConfig
from mechint.models import products, single
from mechint.models.forward import Forward
from mechint.models.initial import initialize
from mechint.models.pieces import Hook, no_hook
from mechint.task import IGNORE, Batch, FiniteTask, Task
from mechint.training.compact import Prepared, compact
from mechint.training.loss import autocast, combined, counts, cross_entropies
from mechint.training.packing import EXACT, FEW_SHAPES, stack_on
from mechint.training.parameters import FlatParameters
from mechint.training.regression_learner import RegressionLearner

EVALUATED = ("train", "test")
CHUNK = 8192
"""Examples of all models together that one evaluation forward takes."""


def evaluation_seed(task: Task, seed: int) -> int:
    """The seed of what a model with data `seed` is evaluated on: its own of a finite task, whose
    split it draws; 0 of a generated one, so that all models of a task see the same examples.
    """
    return seed if isinstance(task, FiniteTask) else 0


def learner_of(
    configs: Sequence[Settings], tasks: Sequence[Task], train: TrainConfig, device: torch.device
) -> TokenLearner | RegressionLearner:
    """The learner of an ensemble whose models have `configs` and learn `tasks`."""
    token_configs = [config for config in configs if isinstance(config, ModelConfig)]
    if token_configs:
        return TokenLearner(token_configs, tasks, train, device)
    return RegressionLearner(configs, tasks, train, device)


class TokenLearner:
    """HookedTransformers on token tasks."""

    def __init__(
        self,
        configs: Sequence[ModelConfig],
        tasks: Sequence[Task],
        train: TrainConfig,
        device: torch.device,
    ) -> None:
        self.configs, self.tasks, self.device = list(configs), list(tasks), device
        self.output_weighting, self.loss = train.output_weights, train.loss
        self.precision = train.precision
        self._static: tuple[list[Batch], Prepared] | None = None
        self._evaluation: dict[tuple[str, int, tuple[int, ...]], list[Prepared]] = {}

    def keep(self, index: Sequence[int]) -> None:
        """Drop all models but those at `index`."""
        self.configs, self.tasks = [self.configs[i] for i in index], [self.tasks[i] for i in index]
        self._static, self._evaluation = None, {}

    def initial(self, model: int, seed: int) -> dict[str, Tensor]:
        """Initial weights of one model of the ensemble, by name."""
        return initialize(self.configs[model], seed)

    def prepare(self, batches: list[Batch]) -> Prepared:
        """The stacked batch with its layout, on the device; the same batches again (a full batch)
        cost nothing.
        """
        if self._static is not None and all(
            a is b for a, b in zip(batches, self._static[0], strict=True)
        ):
            return self._static[1]
        prepared = self._compact(stack_on(self.device, batches))
        self._static = (batches, prepared)
        return prepared

    def _compact(self, batch: Batch) -> Prepared:
        """The layout of a batch of which there are many alike, in few shapes where each is compiled
        for. Not with dropout, which draws for every row: it drops the same on every processor.
        """
        self._check_padding(batch)
        compiled = self.device.type == "cpu" and products.onednn_is_faster()
        few = compiled and not self.configs[0].dropout
        multiples = FEW_SHAPES if few else EXACT
        return compact(batch, self.configs[0], multiples)

    def _check_padding(self, batch: Batch) -> None:
        """Training would hide padding that the same model, run by anyone, reads: ParameterError."""
        config = self.configs[0]
        if batch.lengths is None or config.reads_back_only:
            return
        later = "attention_rate" if config.attention_rate < 1 else "attention_dir"
        config.reject(
            later,
            f"{getattr(ModelConfig(), later)!r}: examples of {self.tasks[0].name} differ in length,"
            " and attention to later positions would reach the padding behind them",
        )

    def descend(
        self, parameters: FlatParameters, prepared: Prepared, drop: Hook = no_hook
    ) -> Float[Tensor, " model"]:
        """(model,) losses that training descends; their gradients fill those of `parameters`."""
        config, layout = self.configs[0], prepared.layout
        with autocast(self.precision, self.device):
            if drop is no_hook and single.serves(parameters.views, config, layout):
                return self._descend_alone(parameters, prepared)
            losses = self.losses(parameters.views, prepared, drop)
        parameters.differentiate(losses.sum())
        return losses.detach()

    def _descend_alone(self, parameters: FlatParameters, prepared: Prepared) -> Tensor:
        """As `descend`, a lone model: autograd is asked for the gradient of the logits only."""
        rows, gradient = single.logits(parameters.alone, self.configs[0], prepared.layout)
        logits = rows.unsqueeze(0).requires_grad_()
        losses = self._of_logits(logits, prepared)
        (to_logits,) = torch.autograd.grad(losses.sum(), logits)
        parameters.fill(gradient(to_logits.squeeze(0)))
        return losses.detach()

    def losses(
        self, weights: Mapping[str, Tensor], prepared: Prepared, drop: Hook = no_hook
    ) -> Float[Tensor, " model"]:
        """(model,) losses that training descends."""
        logits = Forward(weights, self.configs[0], drop=drop).logits(prepared.layout)
        return self._of_logits(logits, prepared)

    def _of_logits(self, logits: Tensor, prepared: Prepared) -> Tensor:
        """(model,) losses of the logits (model, reads, d_vocab_out) that the layout reads."""
        sizes = self.configs[0].output_sizes
        assert sizes is not None  # filled in by ModelConfig
        return combined(
            cross_entropies(logits, prepared.targets, prepared.weights, sizes, self.loss),
            sizes,
            self.output_weighting,
        )

    def data(self, split: str, seeds: Sequence[int], n: int) -> list[Batch]:
        """What each model is evaluated on: its split of a finite task, `n` examples of a generated
        one.
        """
        shared: dict[Any, Batch] = {}
        batches = []
        for task, seed in zip(self.tasks, seeds, strict=True):
            own = evaluation_seed(task, seed)
            key = (type(task), str(task.to_dict()), own)
            if key not in shared:
                shared[key] = (
                    task.examples()[task.split(own)[split]]
                    if isinstance(task, FiniteTask)
                    else task.sample(n, own, split)
                )
            batches.append(shared[key])
        return batches

    def _chunks(self, split: str, seeds: Sequence[int], n: int) -> list[Prepared]:
        key = (split, n, tuple(seeds))
        if key not in self._evaluation:
            batches = self.data(split, seeds, n)
            size = max(1, CHUNK // len(batches))
            whole = stack_on(self.device, batches)
            parts = [
                whole[:, start : start + size] for start in range(0, whole.tokens.shape[1], size)
            ]
            self._evaluation[key] = [self._compact(part) for part in parts]
        return self._evaluation[key]

    @torch.no_grad()
    def evaluate(
        self, weights: Mapping[str, Tensor], seeds: Sequence[int], n: int
    ) -> list[dict[str, float]]:
        """Metrics of every model on train and test data, dropout off, losses in float64."""
        rows: list[dict[str, float]] = [{} for _ in self.tasks]
        config, names = self.configs[0], [output.name for output in self.tasks[0].outputs]
        assert config.output_sizes is not None
        for split in EVALUATED:
            chunks = self._chunks(split, seeds, n)
            if not chunks:
                continue
            parts = [
                counts(
                    Forward(weights, config).logits(chunk.layout),
                    chunk.targets,
                    chunk.weights,
                    config.output_sizes,
                    self.loss,
                )
                for chunk in chunks
            ]
            loss, right, mass = (torch.stack([part[i] for part in parts]).sum(0) for i in range(3))
            each_loss, accuracy = (loss / mass).cpu(), (right / mass).cpu()
            total = combined(each_loss, config.output_sizes, self.output_weighting)
            for model, row in enumerate(rows):
                row |= {
                    f"{split}.loss": float(total[model]),
                    f"{split}.accuracy": float(accuracy[model].mean()),
                }
                if len(names) > 1:
                    row |= {
                        f"{split}.loss.{name}": float(each_loss[model, i])
                        for i, name in enumerate(names)
                    }
                    row |= {
                        f"{split}.accuracy.{name}": float(accuracy[model, i])
                        for i, name in enumerate(names)
                    }
        self._score(weights, seeds, rows, n)
        return rows

    def _score(
        self,
        weights: Mapping[str, Tensor],
        seeds: Sequence[int],
        rows: list[dict[str, float]],
        n: int,
    ) -> None:
        """Add what tasks score by other means, e.g. by greedy continuation; its accuracy stands
        beside the teacher-forced one. Models of one task and split are asked together, and no
        others.
        """
        if type(self.tasks[0]).score is Task.score:
            return
        members: dict[Any, list[int]] = {}
        for model, (task, seed) in enumerate(zip(self.tasks, seeds, strict=True)):
            key = (type(task), str(task.to_dict()), evaluation_seed(task, seed))
            members.setdefault(key, []).append(model)
        for (_, _, seed), some in members.items():
            theirs = {name: value[some] for name, value in weights.items()}
            scores = self.tasks[some[0]].score(partial(self.predict, theirs), "test", seed, n)
            for name, values in scores.items():
                column = f"test.greedy.{name}" if name.startswith("accuracy") else f"test.{name}"
                for model, value in zip(some, values, strict=True):
                    rows[model][column] = float(value)

    @torch.no_grad()
    def predict(
        self,
        weights: Mapping[str, Tensor],
        tokens: Int[Tensor, "#model batch pos"],
        positions: Int[Tensor, "#model batch *read"],
    ) -> Float[Tensor, "... d_vocab_out"]:
        """Logits (model, batch, *read, classes) of the models of these weights, (model, ...) each,
        at `positions` (model | 1, batch, *read) of tokens (model | 1, batch, pos), what follows the
        last of an example's unseen; several of one example ascend, and -1 is none.
        """
        models = len(weights["embed.W_E"])
        tokens = tokens.expand(models, -1, -1)
        positions = positions.expand(models, *positions.shape[1:])
        reads = positions.view(*tokens.shape[:2], -1)
        marks = torch.full((*tokens.shape, 1), IGNORE)
        wanted = reads >= 0
        model, example, _ = wanted.nonzero().unbind(1)
        marks[model, example, reads[wanted]] = 0
        lengths = reads.amax(-1).clamp_min(0) + 1
        prepared = compact(Batch(tokens, marks, lengths=lengths).to(self.device), self.configs[0])
        logits = Forward(weights, self.configs[0]).logits(prepared.layout).cpu()
        nth = (wanted.flatten(1).cumsum(1) - 1).clamp_min(0)  # of a model's reads, in order
        found = logits.gather(1, nth[..., None].expand(-1, -1, logits.shape[-1]))
        return found.view(*positions.shape, -1)
