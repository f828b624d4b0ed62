"""A task of which the keys that heads attend to say nothing of the answer: the sum of two ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mechint import Chance, FiniteTask, Output, Program, Step, Vocabulary, setting
from mechint.task import IGNORE

LENGTH = 4
"""Numbers of an input."""


@dataclass(frozen=True)
class FarSum(FiniteTask):
    """(first + last) mod n of four numbers; the two between do not matter."""

    name: ClassVar[str] = "far-sum"
    source: ClassVar[str] = "mechint"
    model_defaults: ClassVar[Mapping[str, Any]] = {"n_layers": 1, "d_model": 64, "n_heads": 2}
    train_defaults: ClassVar[Mapping[str, Any]] = {"steps": 800, "lr": 3e-3}
    n: int = setting(9, "numbers", low=2, high=16)

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(tuple(str(number) for number in range(self.n)))

    @property
    def n_ctx(self) -> int:
        return LENGTH

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("sum", self.n),)

    @property
    def chance(self) -> Mapping[str, Chance]:
        return {"sum": Chance.of(self.label_inputs(self.inputs())[:, -1, 0])}

    @property
    def grid(self) -> tuple[int, ...]:
        return (self.n,) * LENGTH

    @property
    def fractions(self) -> tuple[float, float]:
        return 0.7, 0.0

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        return [[IGNORE]] * (LENGTH - 1) + [[(tokens[0] + tokens[-1]) % self.n]]

    def inputs(self) -> Tensor:
        return torch.cartesian_prod(*[torch.arange(self.n)] * LENGTH)

    def label_inputs(self, tokens: Tensor) -> Tensor:
        labels = torch.full((len(tokens), LENGTH, 1), IGNORE)
        labels[:, -1, 0] = (tokens[:, 0] + tokens[:, -1]) % self.n
        return labels

    @property
    def programs(self) -> Mapping[str, Program]:
        n = self.n
        first = Step("a", n, lambda tokens: tokens[:, 0], (), "the first number", (0,))
        last = Step("b", n, lambda tokens: tokens[:, -1], (), "the last one", (LENGTH - 1,))
        total = Step("sum", n, lambda tokens, a, b: (a + b) % n, ("a", "b"), "their sum")
        return {"sum": Program("sum", (first, last, total), (("sum",),))}
