"""A task as a third party writes one: three operands of unlike size, and a second answer that some
inputs are not asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mechint import Chance, FiniteTask, Output, Variable, Vocabulary, setting
from mechint.task import IGNORE


@dataclass(frozen=True)
class ThreeOperands(FiniteTask):
    """(a + b) mod m, and, where b is even, whether c exceeds a."""

    name: ClassVar[str] = "three-operands"
    source: ClassVar[str] = "these tests"
    model_defaults: ClassVar[Mapping[str, Any]] = {"n_layers": 1, "d_model": 16, "n_heads": 2}
    train_defaults: ClassVar[Mapping[str, Any]] = {"steps": 30, "lr": 1e-2}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fast": {"train.steps": 20}}

    read_from: ClassVar[tuple[int, ...]] = (0, 1)
    """Positions of the variable "sum"."""

    m: int = setting(3, "modulus, and the values of a", low=2, high=16)
    n_b: int = setting(5, "values of b", low=2, high=16)
    n_c: int = setting(4, "values of c", low=2, high=16)
    train_fraction: float = setting(0.7, "share of the inputs", low=0.05, high=1)

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary((*map(str, range(max(self.grid))), "=", "?"))

    @property
    def n_ctx(self) -> int:
        return 5

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("sum", self.m), Output("more", 2, names=("no", "yes")))

    @property
    def n_answers(self) -> int:
        return 2

    @property
    def answer_names(self) -> tuple[str, ...]:
        return ("sum", "more")

    @property
    def chance(self) -> Mapping[str, Chance]:
        targets = self.examples().targets
        return {"sum": Chance.of(targets[:, 3, 0]), "more": Chance.of(targets[:, 4, 1])}

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        a, b, c = list(tokens)[:3]
        total, more = (a + b) % self.m, int(c > a)
        total, more = (
            value if self.asks(k, b) else IGNORE for k, value in enumerate((total, more))
        )
        return [[IGNORE, IGNORE]] * 3 + [[total, IGNORE], [IGNORE, more]]

    def asks(self, answer: int, b: Any) -> Any:
        """Return whether an input with this b is asked for the answer."""
        return (b >= 0) if answer == 0 else b % 2 == 0

    @property
    def grid(self) -> tuple[int, ...]:
        return (self.m, self.n_b, self.n_c)

    @property
    def fractions(self) -> tuple[float, float]:
        return self.train_fraction, 0.0

    def inputs(self) -> Tensor:
        operands = torch.cartesian_prod(*map(torch.arange, (self.m, self.n_b, self.n_c)))
        top = max(self.m, self.n_b, self.n_c)
        return torch.cat([operands, torch.tensor([[top, top + 1]]).expand(len(operands), 2)], 1)

    def label_inputs(self, tokens: Tensor) -> Tensor:
        return self.labeled(tokens, (tokens[:, 0] + tokens[:, 1]) % self.m, tokens[:, 2])

    def labeled(self, tokens: Tensor, total: Tensor, c: Tensor) -> Tensor:
        targets = torch.full((len(tokens), 5, 2), IGNORE)
        none, b = torch.full_like(total, IGNORE), tokens[:, 1]
        targets[:, 3, 0] = total.where(self.asks(0, b), none)
        targets[:, 4, 1] = (c > tokens[:, 0]).long().where(self.asks(1, b), none)
        return targets

    @property
    def variables(self) -> Mapping[str, Variable]:
        def third(tokens: Tensor, values: Tensor) -> Tensor:
            return self.labeled(tokens, (tokens[:, 0] + tokens[:, 1]) % self.m, values)

        def total(tokens: Tensor, values: Tensor) -> Tensor:
            return self.labeled(tokens, values, tokens[:, 2])

        return {
            "c": Variable(
                "c",
                self.n_c,
                "the third operand",
                lambda tokens: tokens[:, 2],
                third,
                positions=(2,),
                answers=(1,),
            ),
            "sum": Variable(
                "sum",
                self.m,
                "a + b",
                lambda tokens: (tokens[:, 0] + tokens[:, 1]) % self.m,
                total,
                positions=self.read_from,
                answers=(0,),
            ),
        }
