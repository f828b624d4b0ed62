"""Palindromes: whether every token equals its mirror image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from mechint.config import setting
from mechint.task import Output, Program, Step, Vocabulary
from mechint.tasks.sequences import SequenceTask


@dataclass(frozen=True)
class Palindromes(SequenceTask):
    """Symmetry of 2 · half_length values: class 1 where they are the same backwards.

    Value i is token i, then come the tokens of the start and of the end. Half of the examples are
    palindromes, of few short ones not half of every split; the others differ in one pair or more.
    Variables: "pair_k", whether value k equals
    its mirror image; all of them together are the answer.

    >>> task = Palindromes(n=10, half_length=2)
    >>> task.solve(torch.tensor([[10, 3, 7, 7, 3, 11], [10, 3, 7, 7, 4, 11]])).tolist()
    [[1], [0]]
    """

    name: ClassVar[str] = "palindromes"
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("palindrome", 2, names=("no palindrome", "palindrome")),
    )
    topic: ClassVar[str] = "lists"
    source: ClassVar[str] = "ARENA monthly problem, July 2023"
    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 2,
        "d_model": 28,
        "n_heads": 2,
        "d_head": 14,
        "attn_only": True,
        "normalization_type": "LN",
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {"task.n": 6, "task.half_length": 3, "train.steps": 1500, "train.lr": 5e-3},
        "paper": {"task.n": 31, "task.half_length": 10, "train.steps": 15_000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 100.0% by step 1500, seed 0"
    }

    n: int = setting(31, "values", low=2, high=1024)
    half_length: int = setting(10, "pairs of mirror images", low=1, high=128)
    markers: bool = setting(True, "tokens before and behind; else it is read at the last value")

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary((*map(str, range(self.n)), *("[", "]") * self.markers))

    @property
    def n_ctx(self) -> int:
        return 2 * (self.half_length + self.markers)

    def places(self, pair: int) -> tuple[int, int]:
        """Positions of both halves of a pair, the outermost pair first."""
        first = pair + self.markers
        return first, self.n_ctx - 1 - first

    def draw(self, n: int, generator: np.random.Generator) -> Int[Tensor, "n pos"]:
        half = generator.integers(0, self.n, (n, self.half_length))
        # mirror images that differ: none in half of the examples, else one pair or more
        count = generator.integers(1, self.half_length + 1, n) * (generator.random(n) < 0.5)
        order = generator.random((n, self.half_length)).argsort(1)
        shift = generator.integers(1, self.n, (n, self.half_length)) * (order < count[:, None])
        mirror = ((half + shift) % self.n)[:, ::-1]
        start, end = (np.full((n, int(self.markers)), self.n + i) for i in range(2))
        return torch.from_numpy(np.concatenate([start, half, mirror, end], 1).astype(np.int64))

    def pairs(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n pair"]:
        """Return whether both halves of each pair are equal."""
        first, second = zip(*map(self.places, range(self.half_length)), strict=True)
        return (tokens[:, list(first)] == tokens[:, list(second)]).long()

    def solve(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n answer"]:
        return self.pairs(tokens).prod(1, keepdim=True)

    def plain(self, tokens: Sequence[int]) -> list[int]:
        values = list(tokens[1:-1] if self.markers else tokens)
        return [int(values == values[::-1])]

    def true_programs(self) -> list[Program]:
        pairs = [self._pair(k) for k in range(self.half_length)]
        names = tuple(step.name for step in pairs)
        answer = Step(
            "palindrome",
            2,
            lambda tokens, *equal: torch.stack(equal).prod(0),
            names,
            "the answer",
            change=self._with_answer,
        )
        return [self._program("pairs", [*pairs, answer], ("palindrome", *names))]

    def _pair(self, pair: int) -> Step:
        return Step(
            f"pair_{pair}",
            2,
            lambda tokens: self.pairs(tokens)[:, pair],
            description=f"value {pair} equals its mirror image",
            positions=self.places(pair),
            change=partial(self._with_pair, pair),
        )

    def _with_pair(self, pair: int, tokens: Tensor, values: Tensor) -> Tensor:
        """The second half of the pair made equal to the first, or the next value."""
        first, second = self.places(pair)
        changed, equal_before = tokens.clone(), self.pairs(tokens)[:, pair]
        equal = torch.where(values == 1, tokens[:, first], (tokens[:, first] + 1) % self.n)
        changed[:, second] = torch.where(values == equal_before, tokens[:, second], equal)
        return changed

    def _with_answer(self, tokens: Tensor, values: Tensor) -> Tensor:
        """All pairs made equal, or one of them made different."""
        equal = self.pairs(tokens)
        chosen = tokens.sum(1) % self.half_length
        for pair in range(self.half_length):
            break_it = (chosen == pair) & (equal.prod(1) == 1)
            wanted = torch.where(values == 1, 1, torch.where(break_it, 0, equal[:, pair]))
            tokens = self._with_pair(pair, tokens, wanted)
        return tokens
