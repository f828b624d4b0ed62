"""Learners: initial weights, losses of a stacked batch, and evaluation of an architecture.

`TokenLearner` trains HookedTransformers on token tasks through a `RowLayout`, `RegressionLearner`
the students. An ensemble has one learner, and everything it returns has a
leading `model` axis.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import ModelConfig, Settings, TrainConfig
from mechint.errors import ParameterError
from mechint.models.forward import Forward
from mechint.models.layers import Hook, no_hook
from mechint.models.parameters import initialize
from mechint.models.rows import RowLayout, select_flat
from mechint.task import IGNORE, Batch, FiniteTask, Task
from mechint.training.optimizer import FlatParameters

EVALUATED = ("train", "test")
CHUNK = 8192
"""Examples of all models together that one evaluation forward takes."""
MAX_LOGITS = 1 << 25
"""Logits of all models together that it gives, unless one example has more."""


@dataclass(frozen=True)
class Prepared:
    """A stacked batch ready for the forward.

    targets (model, reads, output), IGNORE where a model has fewer reads than others; weights
    likewise, or None.
    """

    layout: RowLayout
    targets: Tensor
    weights: Tensor | None

    @classmethod
    def of(cls, batch: Batch, config: ModelConfig) -> Prepared:
        """The rows that the loss of a stacked batch reads, and their targets."""
        reads, real = select_flat((batch.targets != IGNORE).any(-1))
        chosen = reads[..., None].expand(-1, -1, batch.targets.shape[-1])
        targets = (
            batch.targets.flatten(1, 2).gather(1, chosen).masked_fill(~real[..., None], IGNORE)
        )
        weights = None if batch.weights is None else batch.weights.flatten(1, 2).gather(1, chosen)
        return cls(RowLayout.of(config, batch.tokens, reads, batch.lengths), targets, weights)


def evaluation_seed(task: Task, seed: int) -> int:
    """The seed of what a model with data `seed` is evaluated on: its own of a finite task, whose
    split it draws; 0 of a generated one, so that all models of a task see the same examples.
    """
    return seed if isinstance(task, FiniteTask) else 0


def learner_of(
    configs: Sequence[Settings], tasks: Sequence[Task], train: TrainConfig, device: torch.device
) -> TokenLearner | RegressionLearner:
    """The learner of an ensemble whose models have `configs` and learn `tasks`."""
    kind: Any = TokenLearner if isinstance(configs[0], ModelConfig) else RegressionLearner
    return kind(configs, tasks, train, device)


class Learner:
    """The part of training that differs by architecture: initial weights, losses and evaluation of
    all models of an ensemble at once.
    """

    def __init__(
        self,
        configs: Sequence[Any],
        tasks: Sequence[Task],
        train: TrainConfig,
        device: torch.device,
    ) -> None:
        self.configs, self.tasks, self.device = list(configs), list(tasks), device
        self.precision = train.precision

    def keep(self, index: Sequence[int]) -> None:
        """Drop all models but those at `index`."""
        self.configs, self.tasks = [self.configs[i] for i in index], [self.tasks[i] for i in index]

    def losses(
        self, weights: Mapping[str, Tensor], prepared: Any, drop: Hook = no_hook
    ) -> Float[Tensor, " model"]:
        """(model,) losses that training descends."""
        raise NotImplementedError

    def descend(
        self, parameters: FlatParameters, prepared: Any, drop: Hook = no_hook
    ) -> Float[Tensor, " model"]:
        """(model,) losses that training descends; their gradients fill those of `parameters`."""
        with autocast(self.precision, self.device):
            losses = self.losses(parameters.views, prepared, drop)
        parameters.differentiate(losses.sum())
        return losses.detach()


class TokenLearner(Learner):
    """HookedTransformers on token tasks."""

    configs: list[ModelConfig]

    def __init__(
        self,
        configs: Sequence[ModelConfig],
        tasks: Sequence[Task],
        train: TrainConfig,
        device: torch.device,
    ) -> None:
        super().__init__(configs, tasks, train, device)
        self.output_weighting, self.loss = train.output_weights, train.loss
        self._static: tuple[list[Batch], Prepared] | None = None
        self._evaluation: dict[tuple[str, int, tuple[int, ...]], list[Prepared]] = {}

    def keep(self, index: Sequence[int]) -> None:
        """Drop all models but those at `index`."""
        super().keep(index)
        self._static, self._evaluation = None, {}

    def initial(self, model: int, seed: int) -> dict[str, Tensor]:
        """Initial weights of one model of the ensemble, by name."""
        return initialize(self.configs[model], seed)

    def prepare(self, batches: list[Batch]) -> Prepared:
        """The stacked batch with its layout, on the device; kept for the same batches."""
        if self._static is not None and all(
            a is b for a, b in zip(batches, self._static[0], strict=True)
        ):
            return self._static[1]
        prepared = self._laid_out(stack_on(self.device, batches))
        self._static = (batches, prepared)
        return prepared

    def _laid_out(self, batch: Batch) -> Prepared:
        config = self.configs[0]
        # training would hide padding that the same model, run by anyone, reads
        if batch.lengths is not None and not config.reads_back_only:
            later = "attention_rate" if config.attention_rate < 1 else "attention_dir"
            config.reject(
                later,
                f"{getattr(ModelConfig(), later)!r}: examples of {self.tasks[0].name} differ in "
                "length, and attention to later positions would reach the padding behind them",
            )
        return Prepared.of(batch, config)

    def losses(
        self, weights: Mapping[str, Tensor], prepared: Prepared, drop: Hook = no_hook
    ) -> Float[Tensor, " model"]:
        """(model,) losses that training descends."""
        config = self.configs[0]
        logits = Forward(weights, config, drop=drop).logits(prepared.layout)
        sizes = config.output_sizes
        assert sizes is not None  # filled in by ModelConfig
        return combined(
            cross_entropies(logits, prepared.targets, prepared.weights, sizes, self.loss),
            sizes,
            self.output_weighting,
        )

    def data(self, split: str, seeds: Sequence[int], n: int) -> list[Batch]:
        """The data that each model is evaluated on: a finite task's split, or `n` examples."""
        shared: dict[Any, Batch] = {}
        batches = []
        for task, seed in zip(self.tasks, seeds, strict=True):
            split_seed = evaluation_seed(task, seed)
            key = (type(task), str(task.to_dict()), split_seed)
            if key not in shared:
                shared[key] = (
                    task.examples()[task.split(split_seed)[split]]
                    if isinstance(task, FiniteTask)
                    else task.sample(n, split_seed, split)
                )
            batches.append(shared[key])
        return batches

    def _chunks(self, split: str, seeds: Sequence[int], n: int) -> list[Prepared]:
        key = (split, n, tuple(seeds))
        if key not in self._evaluation:
            batches = self.data(split, seeds, n)
            whole = stack_on(self.device, batches)
            counted = (whole.targets != IGNORE).any(-1).sum(-1)  # (model, example)
            reads = int(counted.max()) if counted.numel() else 0  # a split may hold nothing
            logits = max(1, reads * sum(output.n_classes for output in self.tasks[0].outputs))
            size = max(1, min(CHUNK, MAX_LOGITS // logits) // len(batches))
            parts = [
                whole[:, start : start + size] for start in range(0, whole.tokens.shape[1], size)
            ]
            self._evaluation[key] = [self._laid_out(part) for part in parts]
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
                row[f"{split}.loss"] = float(total[model])
                row[f"{split}.accuracy"] = float(accuracy[model].mean())
                for kind, values in (("loss", each_loss), ("accuracy", accuracy)):
                    for i, name in enumerate(names if len(names) > 1 else ()):
                        row[f"{split}.{kind}.{name}"] = float(values[model, i])
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
        for (_, _, seed), models in members.items():
            theirs = {name: value[models] for name, value in weights.items()}
            scores = self.tasks[models[0]].score(partial(self.predict, theirs), "test", seed, n)
            for name, values in scores.items():
                column = f"test.greedy.{name}" if name.startswith("accuracy") else f"test.{name}"
                for model, value in zip(models, values, strict=True):
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
        prepared = Prepared.of(Batch(tokens, marks, None, lengths).to(self.device), self.configs[0])
        logits = Forward(weights, self.configs[0]).logits(prepared.layout).cpu()
        nth = (wanted.flatten(1).cumsum(1) - 1).clamp_min(0)  # of a model's reads, in order
        at_reads = logits.gather(1, nth[..., None].expand(-1, -1, logits.shape[-1]))
        return at_reads.view(*positions.shape, -1)


# --- students of regressions ----------------------------------------------------------------------
class RegressionLearner(Learner):
    """Students on tasks over real vectors; without a batch size on the population loss."""

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
        super().__init__(configs, tasks, train, device)
        self.dtype = torch.float64 if train.precision == "float64" else torch.float32
        self.student = STUDENTS[tasks[0].model_kind]
        if any(task != tasks[0] for task in tasks):
            raise ParameterError(
                f"{tasks[0].name}: one ensemble of students shares its task; got different "
                "parameters"
            )

    def initial(self, model: int, seed: int) -> dict[str, Tensor]:
        """Initial weights of one model of the ensemble, by name."""
        return self.student.initialize(self.configs[model], seed)

    def prepare(self, batches: list[Batch]) -> Batch | None:
        """The stacked batch; None, when there is none, stands for the whole distribution."""
        if not batches:
            return None
        placed = {id(batch): batch.to(self.device) for batch in batches}  # what is shared stays so
        placed = {  # numbers as precise as the weights
            key: dataclasses.replace(
                batch, tokens=batch.tokens.to(self.dtype), targets=batch.targets.to(self.dtype)
            )
            for key, batch in placed.items()
        }
        return stack([placed[id(batch)] for batch in batches])

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


# --- batches of several models as one -------------------------------------------------------------
def stack(batches: Sequence[Batch]) -> Batch:
    """One Batch with a leading model axis, shorter contexts padded; a lone batch is a view."""
    if all(batch is batches[0] for batch in batches):
        return batches[0]._map(lambda tensor: tensor.expand(len(batches), *tensor.shape))
    if len({batch.tokens.shape[1] for batch in batches}) > 1:
        longest = max(batch.tokens.shape[1] for batch in batches)
        batches = [_pad(batch, longest) for batch in batches]
    parts = [batch._map(lambda tensor: tensor[None]) for batch in batches]
    return Batch.cat(parts)


def stack_on(device: torch.device, batches: Sequence[Batch]) -> Batch:
    """`stack` on `device`; a batch that all models share is moved once and is a view there too."""
    if all(batch is batches[0] for batch in batches):
        batches = [batches[0].to(device)] * len(batches)
    return stack(batches).to(device)


def _pad(batch: Batch, length: int) -> Batch:
    n = batch.tokens.shape[1]
    lengths = torch.full((len(batch),), n) if batch.lengths is None else batch.lengths

    def pad(tensor: Tensor, value: int) -> Tensor:
        sides = [0, 0] * (tensor.dim() - 2) + [0, length - n]
        return torch.nn.functional.pad(tensor, sides, value=value)

    weights = None if batch.weights is None else pad(batch.weights, 0)
    masks = {name: pad(mask, 0) for name, mask in batch.masks.items()}
    return Batch(pad(batch.tokens, 0), pad(batch.targets, IGNORE), weights, lengths, masks)


# --- loss and accuracy ----------------------------------------------------------------------------
def autocast(precision: str, device: torch.device) -> torch.autocast:
    """The context in which losses are computed: matrix products in bfloat16 for "bf16"."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def stablemax(logits: Float[Tensor, "*rows d_vocab_out"]) -> Float[Tensor, "*rows d_vocab_out"]:
    """Log-probabilities over the last axis by StableMax: s(x) / Σ s(x), with s(x) = x + 1 from 0 on
    and 1 / (1 - x) below (Prieto et al. 2025, "Grokking at the Edge of Numerical Stability").

    It grows linearly where the exponential function would drown all but the largest logit.

    >>> [round(x, 4) for x in stablemax(torch.tensor([0.0, 2.0, -1.0])).exp().tolist()]
    [0.2222, 0.6667, 0.1111]
    """
    log_s = logits.clamp_min(0).log1p() - logits.clamp_max(0).neg().log1p()
    return log_s - log_s.logsumexp(-1, keepdim=True)


def cross_entropy(
    logits: Float[Tensor, "n d_vocab_out"], targets: Int[Tensor, " n"], kind: str
) -> Float[Tensor, " n"]:
    """Cross-entropies in nats (n,) of logits (n, class), zero where the target is IGNORE."""
    if kind == "softmax":
        return F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="none")
    return F.nll_loss(stablemax(logits), targets, ignore_index=IGNORE, reduction="none")


def cross_entropies(
    logits: Float[Tensor, "model read d_vocab_out"],
    targets: Int[Tensor, "model read output"],
    weights: Float[Tensor, "model read output"] | None,
    sizes: Sequence[int],
    kind: str = "softmax",
) -> Float[Tensor, "model output"]:
    """Mean cross-entropy (model, output) in nats over the reads that have a target.

    Args:
        logits: (model, reads, classes of all groups).
        targets: (model, reads, output), IGNORE where nothing is read.
        weights: like targets, or None; the mean is weighted by them.
        kind: what makes probabilities of logits, "softmax" or "stablemax".
    """
    # one split: slices would each fill a gradient of all classes
    parts = enumerate(logits.split(list(sizes), -1) if len(sizes) > 1 else [logits])
    each = [cross_entropy(part.flatten(0, 1), targets[..., i].flatten(), kind) for i, part in parts]
    losses = torch.stack(each, -1).view(targets.shape)
    mass = (
        (targets != IGNORE).to(losses)
        if weights is None
        else (targets != IGNORE) * weights.to(losses)
    )
    return (losses * mass).sum(1) / mass.sum(1).clamp_min(1e-9)


def combined(
    each: Float[Tensor, "model output"], sizes: Sequence[int], how: str
) -> Float[Tensor, " model"]:
    """One loss per model of those of its outputs: their mean, or Σ CE_q / ln q for "log"."""
    if how == "equal":
        return each.mean(-1)
    scales = each.new_tensor([math.log(max(2, size)) for size in sizes])
    return (each / scales).sum(-1)


def counts(
    logits: Float[Tensor, "model read d_vocab_out"],
    targets: Int[Tensor, "model read output"],
    weights: Float[Tensor, "model read output"] | None,
    sizes: Sequence[int],
    kind: str = "softmax",
) -> tuple[
    Float[Tensor, "model output"], Float[Tensor, "model output"], Float[Tensor, "model output"]
]:
    """Sums over reads, each (model, output) float64: cross-entropy, correct answers, and weight.

    Chunks of a data set add up; the arithmetic is float64, since the loss of a model that has
    generalized is below what float32 resolves.
    """
    parts = logits.split(list(sizes), -1)
    each = [
        cross_entropy(part.flatten(0, 1).double(), targets[..., i].flatten(), kind)
        for i, part in enumerate(parts)
    ]
    losses = torch.stack(each, -1).view(targets.shape)  # (model, read, output)
    right = torch.stack([part.argmax(-1) for part in parts], -1) == targets
    mass = (targets != IGNORE).double() * (1.0 if weights is None else weights.double())
    return (losses * mass).sum(1), (right * mass).sum(1), mass.sum(1)
