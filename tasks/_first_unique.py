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
from mechint.task import Output, Program, Step, Vocabulary
from mechint.tasks.sequences import SequenceTask


@dataclass(frozen=True)
class FirstUnique(SequenceTask):
    """The first letter so far that occurred once, at every position; ``?`` where none did.

    Letter i is token i + 1; token 0, ``?``, opens the sequence. Variables: "answer_k", what is
    right at position k; "repeated_a", whether that letter occurs twice or more by the last
    position, which the last answer depends on.

    >>> task = FirstUnique(n=5, length=6)
    >>> task.vocabulary.decode(task.solve(torch.tensor([task.tokens_of("?abacbc")]))[0])
    'aabbc?'
    """

    name: ClassVar[str] = "first-unique"
    topic: ClassVar[str] = "lists"
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
    def occurrences(
        self, tokens: Int[Tensor, "n pos"]
    ) -> tuple[Int[Tensor, "n letter"], Int[Tensor, "n letter"]]:
        """Positions of the first and of the second occurrence of every letter; n_ctx where there is
        none.
        """
        letters = torch.arange(1, self.d_vocab, device=tokens.device)
        hit = tokens[:, None] == letters[:, None]  # (n, letter, pos)
        places = torch.arange(self.n_ctx, device=tokens.device).expand_as(hit)
        first, second = places.masked_fill(~hit, self.n_ctx).sort(-1).values[..., :2].unbind(-1)
        return first, second

    def solve(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n answer"]:
        first, second = (places[..., None] for places in self.occurrences(tokens))
        here = torch.tensor(self.answer_positions, device=tokens.device)
        return self._earliest(first, (first <= here) & (here < second))

    def _earliest(self, first: Tensor, unique: Tensor) -> Tensor:
        """(n, ...) the letter whose first occurrence (n, letter, ...) is earliest, of the `unique`
        ones; 0 where there is none.
        """
        place, letter = first.where(unique, self.n_ctx).min(1)
        return torch.where(place < self.n_ctx, letter + 1, 0)

    def plain(self, tokens: Sequence[int]) -> list[int]:
        answers = []
        for position in self.answer_positions:
            so_far = [token for token in tokens[: position + 1] if token]
            answers.append(next((token for token in so_far if so_far.count(token) == 1), 0))
        return answers

    def true_programs(self) -> list[Program]:
        repeated = [self._repeated(letter) for letter in range(1, self.d_vocab)]
        names = tuple(step.name for step in repeated)
        *earlier, last = self.answer_names
        answers = [
            Step(
                name,
                self.d_vocab,
                lambda tokens, index=index: self.solve(tokens)[:, index],
                description=f"first unique letter at position {self.answer_positions[index]}",
            )
            for index, name in enumerate(earlier)
        ]
        answers.append(
            Step(
                last,
                self.d_vocab,
                self._last_answer,
                names,
                f"first unique letter at position {self.answer_positions[-1]}",
            )
        )
        shown = (last, *names, *earlier)
        return [self._program("earliest of the unrepeated", repeated + answers, shown)]

    def _last_answer(self, tokens: Tensor, *repeated: Tensor) -> Tensor:
        first, _ = self.occurrences(tokens)
        return self._earliest(first, (first < self.n_ctx) & (torch.stack(repeated, 1) == 0))

    def _repeated(self, letter: int) -> Step:
        """Return whether `letter` occurs more than once; no where it does not occur."""
        name = self.vocabulary.tokens[letter]
        return Step(
            f"repeated_{name}",
            2,
            lambda tokens: (self.occurrences(tokens)[1][:, letter - 1] < self.n_ctx).long(),
            description=f"whether {name} occurs more than once",
        )
