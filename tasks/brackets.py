"""Balanced brackets: one answer about a whole string, by two conditions checked apart."""

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
from mechint.errors import DataError
from mechint.task import Output, Program, Step, Vocabulary
from mechint.tasks.sequences import SequenceTask

START, PAD, END, OPEN, CLOSE = range(5)
HALF = 0.5
"""Share of balanced examples."""


@dataclass(frozen=True)
class Brackets(SequenceTask):
    """Balance of a string of brackets, read at its start or its end: class 1 where it is balanced.

    Tokens: start 0, padding 1, end 2, ( 3, ) 4. Half of the examples are drawn balanced; the others
    have equally many of both in random order, a single bracket turned round, or brackets at random,
    and some of them are balanced too: 53% in all at length 12, 51% at 40. Of short strings a split
    holds few balanced ones (10 of length 12 are in the test), and its share is further from half.
    Variables: "counts_equal", and "never_negative", that no beginning closes more than it opened;
    both together are the answer.

    >>> task = Brackets(length=6)
    >>> task.solve(torch.tensor([task.tokens_of("(())()"), task.tokens_of("())(()")])).tolist()
    [[1], [0]]
    """

    name: ClassVar[str] = "balanced-brackets"
    vocabulary: ClassVar[Vocabulary] = Vocabulary(("[", "_", "]", "(", ")"), separator="")
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("balanced", 2, names=("unbalanced", "balanced")),
    )
    topic: ClassVar[str] = "languages"
    source: ClassVar[str] = "ARENA, Balanced bracket classifier; Nanda et al. 2023; Yao et al. 2021"
    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 3,
        "d_model": 56,
        "n_heads": 2,
        "d_head": 28,
        "d_mlp": 56,
        "act_fn": "relu",
        "normalization_type": "LN",
        "attention_dir": "bidirectional",
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {
            "task.length": 12,
            "train.steps": 1200,
            "train.lr": 1e-3,
            "train.stop_accuracy": 0.999,
        },
        "paper": {"task.length": 40, "train.steps": 15_000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 100.0% by step 400, seed 0"
    }

    length: int = setting(40, "brackets of the longest strings, an even number", low=2, high=512)
    shortest: int | None = setting(
        None,
        "brackets of the shortest strings, which are padded; all are of one length when none",
        low=2,
        high=512,
    )
    read_at: str = setting(
        "start", "where the answer is read: first or last token", choices=("start", "end")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("length", self.length % 2 == 0, "an even number")
        shortest = self.shortest or 0
        self.require(
            "shortest",
            shortest <= self.length and shortest % 2 == 0,
            f"an even number, at most length={self.length}",
        )

    @property
    def n_ctx(self) -> int:
        return self.length + 2

    @property
    def answer_positions(self) -> tuple[int]:
        return (0 if self.read_at == "start" else self.n_ctx - 1,)

    def text(self, tokens: Sequence[int] | Int[Tensor, " pos"]) -> str:
        """The brackets alone."""
        return super().text(tokens).strip("[]_")

    def tokens_of(self, text: str) -> list[int]:
        if len(text) > self.length or not set(text) <= {"(", ")"}:
            raise DataError(f"text {text!r}: expected at most {self.length} brackets ( and )")
        written = [OPEN if character == "(" else CLOSE for character in text]
        return [START, *written, END] + [PAD] * (self.length - len(text))

    # --- drawing ----------------------------------------------------------------------------------
    def draw(self, n: int, generator: np.random.Generator) -> Int[Tensor, "n pos"]:
        shortest = self.length if self.shortest is None else self.shortest
        lengths = 2 * generator.integers(shortest // 2, self.length // 2 + 1, n)
        rows = np.full((n, self.n_ctx), PAD, np.int64)
        rows[:, 0] = START
        for size in np.unique(lengths):
            at = np.flatnonzero(lengths == size)
            rows[at, 1 : size + 1] = np.where(
                self._steps(len(at), size, generator) > 0, OPEN, CLOSE
            )
            rows[at, size + 1] = END
        return torch.from_numpy(rows)

    def _steps(self, n: int, size: int, generator: np.random.Generator) -> np.ndarray:
        """(n, size) steps +1 and -1: the four kinds of strings, in random order."""
        balanced = _balanced(n, size, generator)
        turned = balanced.copy()
        turned[np.arange(n), generator.integers(0, size, n)] *= -1
        shuffled = generator.permuted(balanced, axis=1)
        free = generator.choice([-1, 1], (n, size))
        kinds = [HALF, *[(1 - HALF) / 3] * 3]
        chosen = generator.choice(4, n, p=kinds)
        return np.select(
            [(chosen == k)[:, None] for k in range(4)], [balanced, turned, shuffled, free]
        )

    # --- the algorithm ----------------------------------------------------------------------------
    def conditions(
        self, tokens: Int[Tensor, "n pos"]
    ) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
        """(n,) int64 each: as many ( as ); and no beginning with more ) than (."""
        heights = ((tokens == OPEN).long() - (tokens == CLOSE).long()).cumsum(1)
        return (heights[:, -1] == 0).long(), (heights.amin(1) >= 0).long()

    def solve(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n answer"]:
        equal, never = self.conditions(tokens)
        return (equal * never)[:, None]

    def plain(self, tokens: Sequence[int]) -> list[int]:
        stack: list[int] = []
        for token in tokens:
            if token == OPEN:
                stack.append(token)
            elif token == CLOSE:
                if not stack:
                    return [0]
                stack.pop()
        return [int(not stack)]

    def true_programs(self) -> list[Program]:
        """By count, of both conditions."""
        conditions = [
            Step(
                name,
                2,
                lambda tokens, index=index: self.conditions(tokens)[index],
                description=description,
                change=partial(self._changed, index),
            )
            for index, (name, description) in enumerate(
                (
                    ("counts_equal", "as many ( as )"),
                    ("never_negative", "no beginning has more ) than ("),
                )
            )
        ]
        names = tuple(step.name for step in conditions)
        answer = Step(
            "balanced",
            2,
            lambda tokens, equal, never: equal * never,
            names,
            "the answer",
            change=self._with_answer,
        )
        return [self._program("count", [*conditions, answer], ("balanced", *names))]

    def _changed(self, index: int, tokens: Tensor, values: Tensor) -> Tensor:
        """Strings in which one condition holds or not while the other stays, by the first change of
        one or two brackets that does it.
        """
        result = tokens.clone()
        before = torch.stack(self.conditions(tokens), 1)
        for row in (before[:, index] != values).nonzero().flatten().tolist():
            changed = self._one_or_two(result[row])
            after = torch.stack(self.conditions(changed), 1)
            wanted = before[row].clone()
            wanted[index] = values[row]
            hits = (after == wanted).all(1).nonzero().flatten()
            if len(hits):
                result[row] = changed[hits[int(tokens[row].sum()) % len(hits)]]
        return result

    def _with_answer(self, tokens: Tensor, values: Tensor) -> Tensor:
        """Balanced strings with one bracket turned round, others with the first change that mends
        them.
        """
        result = tokens.clone()
        for row in (self.solve(tokens)[:, 0] != values).nonzero().flatten().tolist():
            changed = self._one_or_two(tokens[row])
            hits = (self.solve(changed)[:, 0] == values[row]).nonzero().flatten()
            if len(hits):
                result[row] = changed[hits[0]]
        return result

    def _one_or_two(self, row: Int[Tensor, " pos"]) -> Int[Tensor, "changed pos"]:
        """`row` with one bracket turned round, then with two different ones swapped."""
        opens, closes = (row == OPEN).nonzero().flatten(), (row == CLOSE).nonzero().flatten()
        single = torch.cat([opens, closes])
        turned = row.repeat(len(single), 1)
        turned[torch.arange(len(single)), single] = OPEN + CLOSE - row[single]
        first, second = torch.meshgrid(opens, closes, indexing="ij")
        swapped = row.repeat(first.numel(), 1)
        at = torch.arange(first.numel())
        swapped[at, first.flatten()], swapped[at, second.flatten()] = CLOSE, OPEN
        return torch.cat([turned, swapped])


def _balanced(n: int, size: int, generator: np.random.Generator) -> np.ndarray:
    """(n, size) uniformly random balanced strings as steps +1 and -1.

    The cycle lemma: of the rotations of a sequence with one more +1 than -1, a single one has only
    positive partial sums; without its first step it is balanced (Dvoretzky & Motzkin 1947).
    """
    steps = np.ones((n, size + 1), np.int64)
    steps[:, : size // 2] = -1
    steps = generator.permuted(steps, axis=1)
    heights = steps.cumsum(1)
    # rotate to begin behind the last of the lowest points
    lowest = size - heights[:, ::-1].argmin(1)
    index = (lowest[:, None] + 1 + np.arange(size + 1)) % (size + 1)
    return np.take_along_axis(steps, index, 1)[:, 1:]
