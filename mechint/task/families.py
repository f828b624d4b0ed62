"""The two kinds of tasks: those whose inputs can be enumerated, and those drawn for ever."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Int, Int8
from torch import Tensor

from mechint.errors import ParameterError
from mechint.task.base import Task
from mechint.task.batch import SPLITS, Batch, epochs, rng
from mechint.task.memory import check_fits


class FiniteTask(Task):
    """A task whose inputs can be enumerated.

    A family defines `inputs` (every input once, in the order of `grid`), `label_inputs` (targets of
    inputs) and `fractions` (share of train and of validation; the rest is test). `is_sample`: the
    inputs are but some of those that are meant, as prompts in a file are, so that what is fitted on
    some of them is judged on others (`mechint.task._sides`).
    """

    is_sample: ClassVar[bool] = False

    @abc.abstractmethod
    def inputs(self) -> Int[Tensor, "n pos"]:
        """Every input once, (n, pos) int64; reshaped to `grid`, operand k is axis k."""

    @abc.abstractmethod
    def label_inputs(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos output"]:
        """Targets (batch, pos, output) of tokens (batch, pos)."""

    def target_kinds(self, tokens: Int[Tensor, "batch pos"]) -> Int8[Tensor, "batch pos"] | None:
        """(batch, pos) int8, the `TargetKind` of each target; None where every one is an answer."""
        return None

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
        n = math.prod(self.grid)
        check_fits(self.name, n, self.n_ctx, len(self.outputs))
        return self.batch_of(self.inputs())

    def batch_of(self, tokens: Int[Tensor, "batch pos"]) -> Batch:
        return Batch(tokens, self.label_inputs(tokens), kinds=self.target_kinds(tokens))

    def examples(self) -> Batch:
        """All inputs with their labels, in grid order."""
        return self._all

    def split(self, seed: int) -> dict[str, Int[Tensor, " _index"]]:
        """A random partition of the inputs: split → indices into `examples()`, ascending."""
        n = len(self._all)
        order = torch.as_tensor(rng("split", seed).permutation(n))
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

    @property
    def probe_split(self) -> str:
        """Probes look at every input, whatever a model was trained on."""
        return "all"

    def sample(
        self, n: int, seed: int, split: str = "all", *, split_seed: int | None = None
    ) -> Batch:
        """`n` inputs drawn with replacement, from all inputs ("all") or from a part of the
        partition of seed `split_seed`, which is `seed` when None.

        Raises:
            ParameterError: the split is empty, or `n` examples do not fit in memory.

        >>> import tasks
        >>> task = tasks.modular_arithmetic(p=7)
        >>> held_out = task.examples()[task.split(0)["test"]].tokens.tolist()
        >>> drawn = task.sample(50, seed=8, split="test", split_seed=0).tokens.tolist()
        >>> all(row in held_out for row in drawn)
        True
        """
        check_fits(self.name, n, self.n_ctx, len(self.outputs))
        index = torch.arange(len(self._all))
        if split != "all":
            index = self.split(seed if split_seed is None else split_seed)[split]
        self._check_split(split, len(index))
        return self._all[index[torch.as_tensor(rng("sample", seed).integers(0, len(index), n))]]

    def stream(
        self, split: str, seed: int, batch_size: int | None, start: int = 0
    ) -> Iterator[Batch]:
        index = self.split(seed)[split]
        self._check_split(split, len(index))
        return epochs(self._all[index], seed, batch_size, start)

    def _check_split(self, split: str, n: int) -> None:
        if not n:
            share = (*self.fractions, 1 - sum(self.fractions))[SPLITS.index(split)]
            raise ParameterError(
                f"{self.name}: its {split} split is empty, a share of {share:g}; expected "
                "some of the inputs: set train_fraction and validation_fraction"
            )


class GeneratedTask(Task):
    """A task whose inputs are drawn for ever.

    A family defines `generate(n, split, generator)`, vectorized; block i of a stream depends on
    (split, seed, i) alone, so that any worker can make any block.
    """

    block: ClassVar[int] = 4096

    @abc.abstractmethod
    def generate(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        """`n` examples of `split`; never a held-out pattern in "train"."""

    def sample(
        self, n: int, seed: int, split: str = "test", *, split_seed: int | None = None
    ) -> Batch:
        check_fits(self.name, n, self.n_ctx, len(self.outputs))
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
