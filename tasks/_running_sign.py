"""The sign of a running sum, asked at every position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from mechint.config import setting
from mechint.task import Output, Program, Step, Vocabulary
from mechint.tasks.sequences import SequenceTask


@dataclass(frozen=True)
class RunningSign(SequenceTask):
    """The sign of the sum so far at every position: class 0 below zero, 1 at zero, 2 above.

    Token i is the number i - largest. Variables: "total_k", the sum after position k, counted from
    its smallest possible value, and "element_k", the number there.

    >>> task = RunningSign(largest=5, length=4)
    >>> task.text([3, 7, 6, 5]), task.solve(torch.tensor([[3, 7, 6, 5]])).tolist()
    ('-2 2 1 0', [[0, 1, 2, 2]])
    """

    name: ClassVar[str] = "running-sign"
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("sign", 3, names=("negative", "zero", "positive")),
    )
    topic: ClassVar[str] = "arithmetic"
    source: ClassVar[str] = "ARENA monthly problem, November 2023"
    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 1,
        "d_model": 24,
        "n_heads": 1,
        "attn_only": True,
        "normalization_type": "LN",
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {"task.largest": 2, "task.length": 8, "train.steps": 800, "train.lr": 3e-3},
        "paper": {"task.largest": 5, "task.length": 20, "train.steps": 10_000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 100.0% by step 800, seeds 0–2"
    }

    largest: int = setting(5, "numbers are from -largest to largest", low=1, high=256)
    length: int = setting(20, "numbers of a sequence", low=2, high=256)
    _answer: ClassVar[str] = "sign"

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(tuple(map(str, range(-self.largest, self.largest + 1))))

    @property
    def n_ctx(self) -> int:
        return self.length

    @property
    def answer_positions(self) -> range:
        return range(self.length)

    def draw(self, n: int, generator: np.random.Generator) -> Int[Tensor, "n pos"]:
        return torch.from_numpy(generator.integers(0, self.d_vocab, (n, self.length)))

    def totals(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n pos"]:
        """The sum after each position."""
        return (tokens - self.largest).cumsum(1)

    def solve(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n answer"]:
        return self.totals(tokens).sign() + 1

    def plain(self, tokens: Sequence[int]) -> list[int]:
        sums = accumulate(token - self.largest for token in tokens)
        return [0 if total < 0 else 1 if total == 0 else 2 for total in sums]

    def true_programs(self) -> list[Program]:
        numbers = [
            self.token_step(f"element_{k}", f"number at position {k}", k, self.d_vocab)
            for k in range(self.length)
        ]
        totals = [self._total(k) for k in range(self.length)]
        signs = [
            Step(
                name,
                3,
                # value v of the total stands for v - largest · (k + 1)
                lambda tokens, total, k=k: (total - self.largest * (k + 1)).sign() + 1,
                (f"total_{k}",),
                f"sign at position {k}",
            )
            for k, name in enumerate(self.answer_names)
        ]
        shown = [step.name for step in (*reversed(totals), *numbers)]
        return [self._program("running total", numbers + totals + signs, shown)]

    def _total(self, position: int) -> Step:
        """Value v is the total v - largest · (position + 1)."""
        lowest = -self.largest * (position + 1)
        number, before = f"element_{position}", f"total_{position - 1}"
        return Step(
            f"total_{position}",
            -2 * lowest + 1,
            lambda tokens, *summands: torch.stack(summands).sum(0),
            (before, number) if position else (number,),
            f"sum of the numbers up to position {position}",
            change=partial(self._with_total, position, lowest),
        )

    def _with_total(self, position: int, lowest: int, tokens: Tensor, values: Tensor) -> Tensor:
        """The number at the position moved, and those before it as far as it takes."""
        changed = tokens.clone()
        missing = values + lowest - self.totals(tokens)[:, position]
        for k in reversed(range(position + 1)):
            number = (changed[:, k] + missing).clamp(0, 2 * self.largest)
            missing = missing - (number - changed[:, k])
            changed[:, k] = number
        return changed
