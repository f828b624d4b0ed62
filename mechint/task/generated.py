"""Tasks whose inputs are drawn for ever."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from mechint.errors import ParameterError
from mechint.task.base import Task
from mechint.task.batch import Batch
from mechint.task.drawing import rng
from mechint.task.memory import check_fits


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
