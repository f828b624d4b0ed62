"""Comparison and addition on tokens whose order is hidden: a random bijection gives each token its
rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.config import setting
from mechint.groups import finite
from mechint.task import MAX_SEED, Output, Symmetry, rng
from mechint.tasks.two_operands import TwoOperandTask

SOURCE = "Why Larger Models Learn More, Sec. 4 and App. E"


@dataclass(frozen=True)
class HiddenOrder(TwoOperandTask):
    """Base of the tasks on n tokens with a hidden rank 0 … n-1 each; causal variables count in
    ranks.
    """

    operands: ClassVar[tuple[str, str]] = ("rank of a", "rank of b")
    source: ClassVar[str] = SOURCE

    n: int = setting(100, "number of tokens", low=2, high=1024)
    bijection_seed: int = setting(0, "seed of the tokens' ranks", low=0, high=MAX_SEED)
    equals: bool = setting(
        False,
        "whether the prompt ends with '='; otherwise the answer is read at the second operand",
    )

    @property
    def n_values(self) -> int:
        return self.n

    @property
    def value_names(self) -> Sequence[str]:
        return [f"t{token}" for token in range(self.n)]

    @cached_property
    def ranks(self) -> Int[Tensor, " value"]:
        return torch.from_numpy(rng("bijection", self.n, self.bijection_seed).permutation(self.n))

    def tables(self) -> dict[str, Any]:
        return {
            **super().tables(),
            "rank": dict(zip(self.value_names, self.ranks.tolist(), strict=True)),
        }


@dataclass(frozen=True)
class HiddenComparison(HiddenOrder):
    """Comparison of two tokens by a hidden order: class 1 where rank a < rank b, else 0.

    >>> task = HiddenComparison(n=10)
    >>> a, b = (int(task.ranks.argsort()[rank]) for rank in (2, 7))
    >>> task.label_inputs(torch.tensor([[a, b], [b, a], [a, a]]))[:, -1, 0].tolist()
    [1, 0, 0]
    """

    name: ClassVar[str] = "comparison"
    symbol: ClassVar[str] = "<"
    outputs: ClassVar[tuple[Output, ...]] = (Output("a < b", 2, names=("a ≥ b", "a < b")),)
    topic: ClassVar[str] = "arithmetic"
    train_defaults: ClassVar[Mapping[str, Any]] = {"steps": 2000, "lr": 1e-3, "weight_decay": 0.1}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {
            "task.n": 50,
            "task.train_fraction": 0.8,
            "model.d_model": 32,
            "train.steps": 1000,
            "train.lr": 1e-2,
            "train.weight_decay": 1.0,
            "train.stop_accuracy": 0.97,
        },
        "paper": {"task.n": 100, "train.steps": 2000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 89.4–97.2% by step 1000, seeds 0–2"
    }

    train_fraction: float = setting(0.5, "share of the pairs that is trained on", low=0, high=1)

    def _answers(self) -> Tensor:
        return (self.ranks[:, None] < self.ranks).long()[..., None]

    def plain(self, x: int, y: int) -> list[int]:
        order = sorted(range(self.n), key=self.ranks.tolist().__getitem__)
        return [int(y in order[order.index(x) + 1 :])]


@dataclass(frozen=True)
class HiddenAddition(HiddenOrder):
    """Addition modulo n of the hidden ranks of two tokens; class i is the rank i.

    The symmetry is Z/n on the tokens in the order of their ranks.

    >>> task = HiddenAddition(n=10)
    >>> a, b = (int(task.ranks.argsort()[rank]) for rank in (4, 7))
    >>> task.label_inputs(torch.tensor([[a, b]]))[0, -1].tolist()
    [1]
    """

    name: ClassVar[str] = "hidden-addition"
    symbol: ClassVar[str] = "+"
    _is_addition: ClassVar[bool] = True
    topic: ClassVar[str] = "arithmetic"
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 15_000,
        "lr": 1e-3,
        "weight_decay": 1.0,
        "betas": (0.9, 0.98),
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {
            "task.n": 29,
            "task.train_fraction": 0.7,
            "model.d_model": 64,
            "train.steps": 2000,
            "train.lr": 1e-2,
            "train.grokfast": "ema",
            "train.stop_accuracy": 0.999,
        },
        "grokking": {"task.n": 100, "train.steps": 15_000},
        "paper": {"task.n": 100, "train.steps": 15_000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 96.8–99.6% by step 2000, seeds 0–2"
    }

    def _answers(self) -> Tensor:
        return ((self.ranks[:, None] + self.ranks) % self.n)[..., None]

    def plain(self, x: int, y: int) -> list[int]:
        ranks = self.ranks.tolist()
        return [[*range(self.n), *range(self.n)][ranks[x] :][ranks[y]]]

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("answer", self.n, finite.cyclic(self.n)),)

    @property
    def symmetry(self) -> Symmetry:
        return Symmetry(finite.cyclic(self.n), tuple(self.ranks.argsort().tolist()))
