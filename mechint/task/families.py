"""The two kinds of tasks: those whose inputs can be enumerated, and those drawn for ever."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Int, Int8
from torch import Tensor

from mechint.errors import ParameterError
from mechint.task.base import Task
from mechint.task.batch import SPLITS, Batch, check_fits, epochs, rng

LEAST = 2
"""Examples that make a pair."""


class FiniteTask(Task):
    """A task whose inputs can be enumerated.

    A family defines `inputs` (every input once, in the order of `grid`), `label_inputs` (targets of
    inputs) and `fractions` (share of train and of validation; the rest is test). `is_sample`: the
    inputs are but some of those that are meant, as prompts in a file are, so that what is fitted on
    some of them is judged on others (`sides`).
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


# --- fitted and held out --------------------------------------------------------------------------
# What is fitted on some prompts of a file and judged on pairs of the same prompts may have learned
# them one by one. So the prompts are divided first. A prompt and its counterfactual, alike but for
# what is asked about, go to one side wherever this leaves enough to hold out.
@dataclass(frozen=True)
class Sides:
    """Examples that are fitted on and examples that are held out, as indices into `examples()`,
    ascending. apart: no example has a stated counterfactual on the other side.
    """

    fitted: Int[Tensor, " fitted"]
    held_out: Int[Tensor, " held_out"]
    apart: bool


def sides(task: FiniteTask, share: float, seed: int) -> Sides:
    """The examples of `task`, `share` of them held out at random, at least two.

    >>> import tasks
    >>> found = sides(tasks.comparison(n=3), 1 / 3, seed=0)
    >>> len(found.fitted), len(found.held_out), found.apart
    (6, 3, True)
    """
    n = len(task.examples())
    return divide(n, _stated(task), max(LEAST, round(share * n)), seed)


def divide(n: int, links: Iterable[tuple[int, int]], wanted: int, seed: int) -> Sides:
    """`wanted` of n examples held out at random. Those that links join, directly or not, stay
    together, unless this leaves fewer than half of `wanted` to hold out: then links are cut.

    >>> divide(4, [(0, 1), (2, 3)], 2, seed=0).apart, divide(3, [(0, 1), (1, 2)], 2, seed=0).apart
    (True, False)
    """
    together = [{index} for index in range(n)]
    for a, b in links:
        if together[a] is not together[b]:
            together[a] |= together[b]
            for index in together[b]:
                together[index] = together[a]
    order: list[int] = rng("held out", seed).permutation(n).tolist()
    held: set[int] = set()
    for index in order:
        if index not in held and len(held | together[index]) <= wanted:
            held |= together[index]
    apart = len(held) >= max(LEAST, wanted / 2)
    if not apart:
        held = set(order[:wanted])
    fitted, held_out = (
        torch.tensor([index for index in range(n) if (index in held) == side], dtype=torch.int64)
        for side in (False, True)
    )
    return Sides(fitted, held_out, apart)


def _stated(task: FiniteTask) -> list[tuple[int, int]]:
    """(base, source) of every pair that the task states, as indices into its examples."""
    places = {row: index for index, row in enumerate(_rows(task.examples()))}
    links: list[tuple[int, int]] = []
    for variable in task.variables.values():
        if (stated := task.stated_pairs(variable)) is not None:
            both = zip(_rows(stated.base), _rows(stated.source), strict=True)
            links += [(places[base], places[source]) for base, source in both]
    return links


def _rows(examples: Batch) -> list[tuple[int, ...]]:
    return [tuple(row) for row in examples.tokens.cpu().numpy().tolist()]
