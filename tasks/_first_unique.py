"""The first token that occurred only once so far, asked at every position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from mechint.config import setting
from mechint.task import Output, Variable, Vocabulary
from tasks.sequences import SequenceTask


@dataclass(frozen=True)
class FirstUnique(SequenceTask):
    """At every position, the first of the letters so far that occurred once; ``?`` where none did.

    Letter i is token i + 1; token 0, ``?``, opens the sequence. Variables: "answer_k", what is
    right at position k; "repeated_a", whether that letter occurs twice or more by the last
    position, which the last answer depends on.

    >>> task = FirstUnique(n=5, length=6)
    >>> task.vocabulary.decode(task.solve(torch.tensor([task.tokens_of("?abacbc")]))[0])
    'aabbc?'
    """

    name: ClassVar[str] = "first-unique"
    source: ClassVar[str] = "ARENA monthly problem, August 2023"
    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 2,
        "d_model": 42,
        "n_heads": 3,
        "d_head": 14,
        "attn_only": True,
        "normalization_type": "LN",
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {"task.n": 4, "task.length": 8, "train.steps": 1500, "train.lr": 3e-3},
        "paper": {"task.n": 10, "task.length": 19, "train.steps": 15_000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 99.4% by step 1500, seed 0"
    }

    n: int = setting(10, "letters", low=2, high=26)
    length: int = setting(19, "letters of a sequence", low=2, high=256)
    opening: bool = setting(True, "whether a token ? opens the sequence")

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(("?", *"abcdefghijklmnopqrstuvwxyz"[: self.n]), separator="")

    @property
    def n_ctx(self) -> int:
        return self.length + self.opening

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("first unique", self.d_vocab, names=self.vocabulary.tokens),)

    @property
    def n_inputs(self) -> float:
        return float(self.n) ** min(self.length, 64)

    @property
    def answer_positions(self) -> range:
        return range(int(self.opening), self.n_ctx)

    @property
    def answer_names(self) -> tuple[str, ...]:
        return tuple(f"answer_{position}" for position in self.answer_positions)

    def draw(self, n: int, generator: np.random.Generator) -> Int[Tensor, "n pos"]:
        tokens = torch.from_numpy(generator.integers(1, self.n + 1, (n, self.n_ctx)))
        if self.opening:
            tokens[:, 0] = 0
        return tokens

    # --- the algorithm ----------------------------------------------------------------------------
    def solve(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n answer"]:
        answers = [
            self._first(tokens, self._counts(tokens[:, : position + 1]) == 1)
            for position in self.answer_positions
        ]
        return torch.stack(answers, 1)

    def _counts(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n letter"]:
        return torch.nn.functional.one_hot(tokens, self.d_vocab).sum(1)[:, 1:]

    def _first(self, tokens: Tensor, unique: Tensor) -> Tensor:
        """(n,) the letter of `unique` (n, letter) that occurs earliest in tokens (n, pos); 0 where
        there is none.
        """
        letters = torch.arange(1, self.d_vocab, device=tokens.device)
        hit = tokens[:, :, None] == letters
        place = torch.where(hit.any(1), hit.int().argmax(1), tokens.shape[1])
        place = place.masked_fill(~unique, tokens.shape[1])
        first = place.argmin(1)
        return torch.where(place.amin(1) < tokens.shape[1], first + 1, 0)

    def plain(self, tokens: Sequence[int]) -> list[int]:
        answers = []
        for position in self.answer_positions:
            so_far = [token for token in tokens[: position + 1] if token]
            answers.append(next((token for token in so_far if so_far.count(token) == 1), 0))
        return answers

    def true_variables(self) -> list[Variable]:
        last = self.n_answers - 1
        repeated = [self._repeated(letter) for letter in range(1, self.d_vocab)]
        parents = tuple(variable.name for variable in repeated)
        answers = [
            self.answer_variable(
                name,
                f"first unique letter at position {position}",
                index,
                parents=parents if index == last else (),
            )
            for index, (name, position) in enumerate(
                zip(self.answer_names, self.answer_positions, strict=True)
            )
        ]
        return [answers[-1], *repeated, *answers[:-1]]

    def _repeated(self, letter: int) -> Variable:
        """Whether `letter` occurs more than once; of a letter that does not occur it is no."""
        name = self.vocabulary.tokens[letter]

        def value_of(tokens: Tensor) -> Tensor:
            return (self._counts(tokens)[:, letter - 1] > 1).long()

        def label(tokens: Tensor, values: Tensor) -> Tensor:
            counts, answers = self._counts(tokens), self.solve(tokens)
            unique = counts == 1
            unique[:, letter - 1] = (counts[:, letter - 1] > 0) & (values == 0)
            answers[:, -1] = self._first(tokens, unique)
            return self.targets_of(answers)

        return Variable(
            f"repeated_{name}",
            2,
            f"whether {name} occurs more than once",
            value_of,
            label,
            answers=(self.n_answers - 1,),
        )
