"""Parts that tasks on sequences of one length share: a split by hash, labels from tokens, and a
control with random answers.

A family says how inputs are drawn (`draw`), how they are labeled (`solve`), and the same once more
for one example by the plainest computation (`plain`).
"""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mechint.config import setting
from mechint.errors import ParameterError
from mechint.task import IGNORE, Batch, Chance, Control, GeneratedTask, Program, Step, rng

FEWEST = 64
"""Fewest different inputs, among those drawn, that are split into training, validation and test."""

COUNTED = 1 << 13
"""Test examples over which chance is counted."""

HASHES, LOOKED_AT = 64, COUNTED // 16
"""Hashes that are tried for one under which every split has different answers, among so many of its
inputs: of a few inputs a rare answer may stand in one split alone, whatever the hash.
"""


@dataclass(frozen=True)
class SequenceTask(GeneratedTask):
    """Base of tasks on token sequences of one length, all answers in one group of classes."""

    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 2,
        "d_model": 64,
        "n_heads": 2,
        "normalization_type": "LN",
        "act_fn": "gelu",
    }
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 4000,
        "batch_size": 128,
        "lr": 1e-3,
        "weight_decay": 0.01,
        "betas": (0.9, 0.98),
        "warmup": 50,
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {"train.steps": 800, "model.d_model": 32, "train.lr": 3e-3}
    }

    labels: str = setting(
        "true", "shuffled: every input has random answers of its own", choices=("true", "shuffled")
    )

    # --- what a family says -----------------------------------------------------------------------
    @abc.abstractmethod
    def draw(self, n: int, generator: np.random.Generator) -> Int[Tensor, "n pos"]:
        """`n` random inputs, whatever split they belong to."""

    @abc.abstractmethod
    def solve(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n answer"]:
        """The class of every answer."""

    @abc.abstractmethod
    def plain(self, tokens: Sequence[int]) -> list[int]:
        """The class of every answer to one example, by the plainest possible computation."""

    # --- what follows -----------------------------------------------------------------------------
    _answer: ClassVar[str] = "answer"

    @property
    def answer_positions(self) -> Sequence[int]:
        """(answer,) where the answers are read, ascending; the last position of most."""
        return (self.n_ctx - 1,)

    @property
    def n_answers(self) -> int:
        return len(self.answer_positions)

    @property
    def answer_names(self) -> tuple[str, ...]:
        if self.n_answers == 1:
            return super().answer_names
        return tuple(f"{self._answer}_{i}" for i in range(self.n_answers))

    def generate(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        return self.batch_of(draw_in(split, n, 1.1, self.draw, self._hash, generator))

    def batch_of(self, tokens: Int[Tensor, "n pos"]) -> Batch:
        answers = self.solve(tokens) if self.labels == "true" else self._random(tokens)
        return Batch(tokens, self.targets_of(answers))

    def targets_of(self, answers: Int[Tensor, "n answer"]) -> Int[Tensor, "n pos output"]:
        """Targets of given answers, IGNORE elsewhere."""
        targets = answers.new_full((len(answers), self.n_ctx, 1), IGNORE)
        targets[:, list(self.answer_positions), 0] = answers
        return targets

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        if self.labels == "true":
            answers = self.plain([int(token) for token in tokens])
        else:
            coefficients = self._coefficients.tolist()
            code = sum(int(token) * row for token, row in zip(tokens, coefficients, strict=True))
            n = self._random_classes
            answers = [plain_class(code, odd, n) for odd in coefficients[: self.n_answers]]
        targets = [[IGNORE] for _ in range(self.n_ctx)]
        for position, answer in zip(self.answer_positions, answers, strict=True):
            targets[position] = [answer]
        return targets

    @property
    def _random_classes(self) -> int:
        """Random answers are drawn from so many first classes."""
        return self.outputs[0].n_classes

    def _random(self, tokens: Tensor) -> Tensor:
        odd = self._coefficients[: self.n_answers].to(tokens.device)
        return random_class(self._hash(tokens)[:, None], odd, self._random_classes)

    def _hash(self, tokens: Tensor) -> Tensor:
        """(n,) a linear hash modulo 2⁶⁴."""
        return tokens @ self._coefficients.to(tokens.device)

    @cached_property
    def _coefficients(self) -> Tensor:
        """(pos,) odd multipliers, such that no split is empty, and none shows a single answer where
        that can be had.

        Raises:
            ParameterError: the parameters leave too few different inputs to split.
        """
        drawn = self.draw(COUNTED, rng("cover", self.name))
        nonempty: list[Tensor] = []
        for attempt in itertools.count():
            key = rng("hash", self.name, self.n_ctx, attempt)
            odd = torch.from_numpy(key.integers(0, 1 << 62, self.n_ctx)) | 1
            hashed = drawn @ odd
            if (n := len(hashed.unique())) < FEWEST:
                raise ParameterError(
                    f"{self.name}: {n} inputs are too few to split; expected larger sizes"
                )
            parts = [drawn[in_split(hashed, split)] for split in BUCKETS]
            if all(map(len, parts)):
                nonempty.append(odd)
                if all(map(self._answers_differ, parts)) or not self._answers_differ(drawn):
                    return odd
            if nonempty and attempt >= HASHES:
                return nonempty[0]
        raise AssertionError("unreachable")

    def _answers_differ(self, tokens: Tensor) -> bool:
        """Return whether the first of these inputs have different answers."""
        answers = self.solve(tokens[:LOOKED_AT])
        return bool((answers != answers[0]).any())

    @cached_property
    def chance(self) -> Mapping[str, Chance]:  # type: ignore[override]
        """Of the best constant answer over all those asked, counted over test examples."""
        targets = self.sample(COUNTED, seed=0).targets
        return {self.outputs[0].name: Chance.of(targets[targets != IGNORE])}

    @property
    def controls(self) -> tuple[Control, ...]:
        shuffled = Control("shuffled", "random answers to every input", {"labels": "shuffled"})
        return (*super().controls, shuffled)

    @cached_property
    def programs(self) -> Mapping[str, Program]:  # type: ignore[override]
        """Those of the family; none under shuffled labels."""
        programs = self.true_programs() if self.labels == "true" else ()
        return {program.name: program for program in programs}

    def true_programs(self) -> Sequence[Program]:
        """Algorithms under true labels, the family's own first."""
        return ()

    # --- building programs ------------------------------------------------------------------------
    def token_step(self, name: str, description: str, position: int, n: int) -> Step:
        """The token at `position`, whose tokens 0 … n-1 are values."""

        def change(tokens: Tensor, values: Tensor) -> Tensor:
            changed = tokens.clone()
            changed[:, position] = values
            return self.completed(changed)

        return Step(
            name,
            n,
            lambda tokens: tokens[:, position],
            description=description,
            positions=(position,),
            change=change,
        )

    def _program(self, name: str, steps: Sequence[Step], shown: Sequence[str] = ()) -> Program:
        """A program whose answers are the steps of the names of the task's answers; of a task with
        one answer, the last step.
        """
        names = self.answer_names if self.n_answers > 1 else (steps[-1].name,)
        answers = tuple((name,) for name in names)
        return Program(name, tuple(steps), answers, shown=tuple(shown))

    def completed(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n pos"]:
        """Inputs whose prompt was changed, with the answers written in the text brought up to date;
        most tasks write none.
        """
        return tokens


# --- splits by hash -------------------------------------------------------------------------------
BUCKETS = {"test": (0, 1), "validation": (1, 2), "train": (2, 16)}
"""Each input falls by its hash into one of 16 buckets; a split owns a range of them."""


def in_split(code: Int[Tensor, " batch"], split: str) -> Bool[Tensor, " batch"]:
    """Return whether inputs of hash `code`, a linear one modulo 2⁶⁴, belong to `split`."""
    low, high = BUCKETS[split]
    bucket = (code >> 40) & 15
    return (bucket >= low) & (bucket < high)


def draw_in(
    split: str,
    n: int,
    spare: float,
    draw: Callable[[int, np.random.Generator], Tensor],
    code: Callable[[Tensor], Tensor],
    generator: np.random.Generator,
) -> Int[Tensor, "n pos"]:
    """`n` inputs of `split` among those that `draw` makes, whose hash is `code`; as many are drawn
    at a time as are missing on average, times `spare`.
    """
    low, high = BUCKETS[split]
    kept, missing = list[Tensor](), n
    while missing > 0 or not kept:
        drawn = draw(math.ceil(missing * 16 / (high - low) * spare) + 8, generator)
        kept.append(drawn[in_split(code(drawn), split)][:missing])
        missing -= len(kept[-1])
    return torch.cat(kept)


def random_class(
    code: Int[Tensor, "batch 1"], odd: Int[Tensor, " answer"], n: int
) -> Int[Tensor, "batch answer"]:
    """A random class below `n` of every input and answer, fixed by its hash and the answer's odd
    multiplier.
    """
    return ((code * odd >> 33) & 0x3FFFFFFF) % n


def plain_class(code: int, odd: int, n: int) -> int:
    """`random_class` of one answer, by Python's integers."""
    return (code * odd % 2**64 >> 33) % 2**30 % n
