"""What a task is: inputs and labels, and the truth about the algorithm that joins them.

A family of tasks is one file: a frozen dataclass that derives from `FiniteTask` (its inputs can be
enumerated) or from `GeneratedTask` (its inputs are a stream), and one line in
``mechint/registry.py``. Everything a probe asks of a task is defined here; what a family does not
have stays at the default and the probe says why it does not apply.
"""

from __future__ import annotations

import abc
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from mechint.config import Settings
from mechint.errors import DataError, ParameterError, UnknownNameError
from mechint.groups.finite import FiniteGroup

IGNORE = -1
"""The target where no answer is read."""

SPLITS = ("train", "validation", "test")


def rng(*key: int | str) -> np.random.Generator:
    """A generator that depends on `key` alone, the same on every machine (PCG64 over SHA-256 of the
    key).
    """
    digest = hashlib.sha256(repr(key).encode()).digest()
    return np.random.Generator(np.random.PCG64(np.frombuffer(digest, np.uint32).tolist()))


@dataclass(frozen=True)
class Vocabulary:
    """Tokens ↔ text: token i is written ``tokens[i]``; `separator` stands between tokens ("" for
    characters).
    """

    tokens: tuple[str, ...]
    separator: str = " "

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.tokens)}

    def decode(self, tokens: Sequence[int] | Tensor) -> str:
        return self.separator.join(self.tokens[int(token)] for token in tokens)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; DataError names the first token that the vocabulary lacks."""
        words = text.split(self.separator) if self.separator else list(text)
        for word in words:
            if word not in self.ids:
                raise DataError(f"text {text!r}: {word!r} is not in the vocabulary")
        return [self.ids[word] for word in words]


@dataclass(frozen=True)
class Output:
    """One group of classes a model answers with; `group` acts on the classes where they form one
    (class i = element i).
    """

    name: str
    n_classes: int
    group: FiniteGroup | None = None


@dataclass(frozen=True)
class Batch:
    """Examples on one device.

    tokens (batch, pos) int64; targets (batch, pos, output) int64, IGNORE where no answer is read;
    weights like targets, float32, or None for ones; lengths (batch,) int64 where examples are
    padded on the right, else None; masks: name → (batch, pos) bool, e.g. "task" for the tokens of
    an injected task.

    Tasks over real vectors have tokens (batch, n) float32, the inputs, and targets (batch, n_out)
    float32; the number of the task that each input belongs to, where there are several, is
    ``masks["task"]`` (batch,) int64.
    """

    tokens: Tensor
    targets: Tensor
    weights: Tensor | None = None
    lengths: Tensor | None = None
    masks: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def _map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        optional = {
            name: None if value is None else function(value)
            for name, value in (("weights", self.weights), ("lengths", self.lengths))
        }
        return Batch(
            function(self.tokens),
            function(self.targets),
            masks={name: function(mask) for name, mask in self.masks.items()},
            **optional,
        )

    def __getitem__(self, index: Any) -> Batch:
        return self._map(lambda tensor: tensor[index])

    def to(self, device: torch.device | str) -> Batch:
        return self._map(lambda tensor: tensor.to(device))

    @property
    def reads(self) -> list[int]:
        """Positions at which any example's answer is read, ascending."""
        return (self.targets != IGNORE).any(-1).any(0).nonzero().flatten().tolist()


@dataclass(frozen=True)
class Variable:
    """A causal variable of the task's algorithm.

    read(tokens (batch, pos)) -> values (batch,) in 0 … n_values-1; label(tokens, values) -> targets
    (batch, pos, output): the task's answer when the variable is set to `values` and everything else
    follows `tokens`. `positions`: the token positions its value is read from, where they are fixed.
    """

    name: str
    n_values: int
    description: str
    read: Callable[[Tensor], Tensor]
    label: Callable[[Tensor, Tensor], Tensor]
    positions: tuple[int, ...] = ()


@dataclass(frozen=True)
class Counterfactuals:
    """Pairs for interchange interventions: running `base` with the variable taken from `source`
    should give `labels`.

    base, source: Batch of n examples; labels (n, pos, output) like targets; values (n,) the
    source's value.
    """

    variable: Variable
    base: Batch
    source: Batch
    labels: Tensor
    values: Tensor


@dataclass(frozen=True)
class Symmetry:
    """The group that acts on the value tokens: element i of `group` is token ``tokens[i]``."""

    group: FiniteGroup
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Control:
    """A variant on which the mechanism must be absent: the task with `parameters` replaced, or
    untrained weights.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    untrained: bool = False


@dataclass(frozen=True)
class Chance:
    """Accuracy (0 … 1) and loss (nats) of the best constant answer."""

    accuracy: float
    loss: float

    @classmethod
    def of(cls, answers: Tensor) -> Chance:
        """Where the answers (n,), or (…, character) with whole rows as answers, are equally likely;
        rows with IGNORE are left out.

        The share of the most frequent one, and their entropy.

        >>> import torch
        >>> Chance.of(torch.tensor([0, 1, 1, 1])).accuracy
        0.75
        """
        rows = answers.reshape(-1, answers.shape[-1] if answers.dim() > 1 else 1)
        shares = rows[(rows != IGNORE).all(1)].unique(dim=0, return_counts=True)[1].double()
        shares /= shares.sum()
        return cls(float(shares.max()), float(-(shares * shares.log()).sum()))


class Task(Settings, abc.ABC):
    """Base of all tasks; derive from FiniteTask or GeneratedTask.

    The docstring's first line is what ``mechint tasks`` prints. Class attributes: `name` (of the
    registry), `source` (paper and section), `model_defaults` and `train_defaults` (fields of
    ModelConfig and TrainConfig that suit the task; d_vocab, n_ctx, d_vocab_out follow from the
    task).
    """

    name: ClassVar[str]
    source: ClassVar[str]
    model_kind: ClassVar[str] = "transformer"
    model_defaults: ClassVar[Mapping[str, Any]] = {}
    train_defaults: ClassVar[Mapping[str, Any]] = {}

    # --- what every task says ---------------------------------------------------------------------
    @property
    @abc.abstractmethod
    def vocabulary(self) -> Vocabulary: ...

    @property
    @abc.abstractmethod
    def n_ctx(self) -> int: ...

    @property
    @abc.abstractmethod
    def outputs(self) -> tuple[Output, ...]: ...

    @property
    @abc.abstractmethod
    def chance(self) -> Mapping[str, Chance]:
        """Name of the output → its chance level."""

    @abc.abstractmethod
    def stream(
        self, split: str, seed: int, batch_size: int | None, start: int = 0
    ) -> Iterator[Batch]:
        """Batches for ever, from batch `start` on; a pure function of its arguments."""

    @abc.abstractmethod
    def sample(self, n: int, seed: int, split: str = "test") -> Batch:
        """`n` examples of `split` for evaluation and probing, the same for the same seed."""

    @abc.abstractmethod
    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        """Targets (pos, output) of one example by the plainest possible computation, for tests."""

    # --- what a task may have ---------------------------------------------------------------------
    @property
    def variables(self) -> Mapping[str, Variable]:
        """Causal variables by name."""
        return {}

    @property
    def symmetry(self) -> Symmetry | None:
        return None

    @property
    def controls(self) -> tuple[Control, ...]:
        return (
            Control("untrained", "the same architecture with its initial weights", untrained=True),
        )

    def tables(self) -> dict[str, Any]:
        """What was drawn or given (permutations, bijections, multiplication tables), as JSON
        values.
        """
        return {}

    def text(self, tokens: Sequence[int] | Tensor) -> str:
        """One example in a form that a person reads; `tokens_of` is its inverse."""
        return self.vocabulary.decode(tokens)

    def tokens_of(self, text: str) -> list[int]:
        return self.vocabulary.encode(text)

    def score(
        self, predict: Callable[[Tensor, Tensor], Tensor], split: str, seed: int, n: int
    ) -> dict[str, np.ndarray]:
        """Accuracies beyond the teacher-forced ones, e.g. by greedy continuation.

        predict(tokens (model, batch, pos), positions (model, batch)) -> logits (model, batch,
        d_vocab_out). Returns name → (model,) array.
        """
        return {}

    # --- what follows -----------------------------------------------------------------------------
    @property
    def d_vocab(self) -> int:
        return len(self.vocabulary)

    @property
    def d_vocab_out(self) -> int:
        return sum(output.n_classes for output in self.outputs)

    @property
    def output_slices(self) -> dict[str, slice]:
        """Name of the output → its columns of the logits."""
        ends = np.cumsum([0] + [output.n_classes for output in self.outputs]).tolist()
        return {
            output.name: slice(a, b)
            for output, a, b in zip(self.outputs, ends[:-1], ends[1:], strict=True)
        }

    def control(self, name: str) -> Task:
        """The task as varied by the control `name`; the task itself where the control is untrained
        weights.
        """
        for control in self.controls:
            if control.name == name:
                return dataclasses.replace(self, **control.parameters)  # type: ignore[type-var]
        raise UnknownNameError.of("control", name, [control.name for control in self.controls])

    def counterfactuals(
        self, variable: str, n: int, seed: int, split: str = "test"
    ) -> Counterfactuals:
        """`n` pairs of independent examples of `split`, for an interchange of `variable`."""
        if variable not in self.variables:
            raise UnknownNameError.of(f"variable of {self.name}", variable, self.variables)
        if n < 1:
            raise ParameterError(f"counterfactuals: n={n}: expected at least 1")
        chosen = self.variables[variable]
        base, source = (
            self.sample(n, seed=2 * seed, split=split),
            self.sample(n, seed=2 * seed + 1, split=split),
        )
        values = chosen.read(source.tokens)
        return Counterfactuals(chosen, base, source, chosen.label(base.tokens, values), values)


class FiniteTask(Task):
    """A task whose inputs can be enumerated.

    A family defines `inputs` (every input once, in the order of `grid`), `label_inputs` (targets of
    inputs) and `fractions` (share of train and of validation; the rest is test).
    """

    @abc.abstractmethod
    def inputs(self) -> Tensor:
        """Every input once, (n, pos) int64, ordered so that reshaping to `grid` puts operand k on
        axis k.
        """

    @abc.abstractmethod
    def label_inputs(self, tokens: Tensor) -> Tensor:
        """Targets (batch, pos, output) of tokens (batch, pos)."""

    @property
    @abc.abstractmethod
    def grid(self) -> tuple[int, ...]:
        """Shape of the input grid; its product is the number of inputs."""

    @property
    @abc.abstractmethod
    def fractions(self) -> tuple[float, float]:
        """Share of the inputs in train and in validation."""

    @cached_property
    def _all(self) -> Batch:
        tokens = self.inputs()
        return Batch(tokens, self.label_inputs(tokens))

    def examples(self) -> Batch:
        """All inputs with their labels, in grid order."""
        return self._all

    def split(self, seed: int) -> dict[str, Tensor]:
        """A random partition of the inputs: split → indices into `examples()`, ascending."""
        n = len(self._all)
        order = torch.from_numpy(rng("split", seed).permutation(n))
        a = round(self.fractions[0] * n)
        b = a + round(self.fractions[1] * n)
        if not 0 < a <= n:
            raise ParameterError(
                f"{self.name}: a train fraction of {self.fractions[0]} of {n} inputs leaves "
                f"{a} to train on"
            )
        return {
            name: part.sort().values
            for name, part in zip(SPLITS, (order[:a], order[a:b], order[b:]), strict=True)
        }

    def sample(self, n: int, seed: int, split: str = "all") -> Batch:
        """`n` inputs drawn with replacement, from all inputs or from a split of seed `seed`."""
        index = (
            torch.arange(len(self._all)) if split in ("all", "test") else self.split(seed)[split]
        )
        return self._all[index[torch.from_numpy(rng("sample", seed).integers(0, len(index), n))]]

    def stream(
        self, split: str, seed: int, batch_size: int | None, start: int = 0
    ) -> Iterator[Batch]:
        return epochs(self._all[self.split(seed)[split]], seed, batch_size, start)


def epochs(data: Batch, seed: int, batch_size: int | None, start: int = 0) -> Iterator[Batch]:
    """Batches of a fixed set for ever, in a new order every epoch (what does not fill a batch is
    left out); all of it when none or too few.
    """
    n = len(data)
    if batch_size is None or batch_size >= n:
        while True:
            yield data
    per_epoch = n // batch_size
    step, epoch, order = start, -1, torch.arange(n)
    while True:
        if step // per_epoch != epoch:
            epoch = step // per_epoch
            order = torch.from_numpy(rng("order", seed, epoch).permutation(n))
        at = step % per_epoch * batch_size
        yield data[order[at : at + batch_size]]
        step += 1


class GeneratedTask(Task):
    """A task whose inputs are drawn for ever.

    A family defines `generate(n, split, generator)`, vectorised; block i of a stream depends on
    (split, seed, i) alone, so that any worker can make any block.
    """

    block: ClassVar[int] = 4096

    @abc.abstractmethod
    def generate(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        """`n` examples of `split`; never a held-out pattern in "train"."""

    def sample(self, n: int, seed: int, split: str = "test") -> Batch:
        return self.generate(n, split, rng("sample", self.name, split, seed))

    def stream(
        self, split: str, seed: int, batch_size: int | None, start: int = 0
    ) -> Iterator[Batch]:
        if batch_size is None:
            raise ParameterError(
                f"train: batch_size=none: {self.name} is generated without end; expected a number"
            )
        per_block = max(1, self.block // batch_size)
        step = start
        while True:
            block = self.generate(
                per_block * batch_size,
                split,
                rng("stream", self.name, split, seed, step // per_block),
            )
            for i in range(step % per_block, per_block):
                yield block[i * batch_size : (i + 1) * batch_size]
                step += 1
