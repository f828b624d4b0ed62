"""ListOps: nested operations over a finite algebra, solved with or without a chain of thought."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor

from mechint.errors import DataError
from mechint.task import (
    IGNORE,
    Batch,
    Chance,
    Output,
    Symmetry,
    Variable,
    Vocabulary,
    epochs,
    rng,
)
from tasks._listops import greedy
from tasks._listops.labels import Labels
from tasks._listops.settings import ListOpsSettings
from tasks._listops.variables import variables

Predict = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class ListOps(ListOpsSettings):
    """Nested MAX, MIN, MED, ADD, PROD and NADD mod n, or products of permutations, a character at a
    time.

    A text is ``s(%12(%34))>(%127)>0=0e``: expression, steps, value. It is tokens, a character each,
    padded on the right with the end; the target of a character is the next one. What is held out
    are `excluded` ordered tuples of operands (triplets where brackets may hold three): no training
    expression shows one among consecutive operands of a bracket, at any step; every test expression
    has a bracket of just those operands. Validation is drawn as training is.

    >>> task = ListOps(n=10, operands=3, depth=2)
    >>> task.text(task.tokens_of("s(%12(%34))>(%127)>0=0e")), task.n_ctx
    ('s(%12(%34))>(%127)>0=0e', 63)
    """

    name: ClassVar[str] = "listops"
    source: ClassVar[str] = (
        "Small Models, Smarter Learning: The Power of Joint Task Training, Sec. 2, App. E, H, K"
    )
    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 2,
        "d_model": 64,
        "n_heads": 1,
        "act_fn": "gelu",
        "normalization_type": "LN",
        "init_mode": "normal",
    }
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 6000,
        "batch_size": 64,
        "optimizer": "adam",
        "lr": 1e-3,
        "min_lr": 1e-4,
        "schedule": "cosine",
        "weight_decay": 0.0,
        "betas": (0.9, 0.999),
        "eval_examples": 1000,
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {
            "task.depth": 1,
            "task.operations": ("MAX", "MED"),
            "model.d_model": 32,
            "train.steps": 400,
            "train.lr": 5e-3,
        },
        "paper": {"train.steps": 6000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 99.7% by step 400, seed 0"
    }

    # --- what is written --------------------------------------------------------------------------
    @property
    def vocabulary(self) -> Vocabulary:
        return self.notation.vocabulary

    @property
    def n_ctx(self) -> int:
        return self.grammar.n_ctx

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("token", len(self.vocabulary), names=self.vocabulary.tokens),)

    @property
    def symmetry(self) -> Symmetry | None:
        one_character = all(len(text) == 1 for text in self.notation.values)
        return (
            Symmetry(self.values.group, tuple(range(self.values.size))) if one_character else None
        )

    # --- what is drawn ----------------------------------------------------------------------------
    def generate(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        """`n` expressions of `split`; of the ramp operation alone where there is one, as after the
        ramp.
        """
        return self.expressions(n, split, generator, self.ramp_operation)

    def expressions(
        self, n: int, split: str, generator: np.random.Generator, operation: str | None = None
    ) -> Batch:
        """`n` expressions of `split`, of the mixture or of `operation` alone."""
        grammar = dataclasses.replace(self.grammar, weights=self.shares(operation))
        return self.labeled(*grammar.draw(n, generator, self.patterns, held_out=split == "test"))

    @property
    def _labels(self) -> Labels:
        return Labels(self.notation, self.chain_of_thought, self.loss_on)

    def labeled(self, tokens: ArrayLike, lengths: ArrayLike) -> Batch:
        """Whole texts, tokens (batch, n_ctx) of `lengths` (batch,), with the targets that `loss_on`
        asks for.
        """
        return self._labels.labeled(np.asarray(tokens), np.asarray(lengths))

    def batch_of(self, tokens: Int[Tensor, "batch pos"]) -> Batch:
        """Whole texts, labeled; what does not end is taken to fill the context."""
        ends = tokens == self.notation.end_token
        lengths = torch.where(ends.any(1), ends.int().argmax(1) + 1, tokens.shape[1])
        return self.labeled(tokens, lengths)

    def prompts(self, tokens: ArrayLike, until: str = "output") -> Int[Tensor, " batch"]:
        """(batch,) tokens before the answer, before the output (the first > or =), or 1 for all."""
        return self._labels.prompts(np.asarray(tokens), until)

    def stream(
        self, split: str, seed: int, batch_size: int | None, start: int = 0
    ) -> Iterator[Batch]:
        if split == "train" and self.train_examples:
            yield from epochs(
                self.expressions(self.train_examples, split, rng("training set", self.name, seed)),
                seed,
                batch_size,
                start,
            )
            return
        if split != "train" or self.ramp_operation is None or batch_size is None:
            yield from super().stream(split, seed, batch_size, start)
            return
        per_block = max(1, self.block // batch_size)
        for block in itertools.count(start // per_block):
            steps = np.arange(block * per_block, (block + 1) * per_block)
            share = np.clip((steps - self.ramp_start) / self.ramp_steps, 0, 1)
            batches = self._ramp(
                np.repeat(share, batch_size), split, rng("ramp", self.name, seed, block)
            )
            for index in np.flatnonzero(steps >= start):
                yield batches[index * batch_size : (index + 1) * batch_size]

    def _ramp(self, share: np.ndarray, split: str, generator: np.random.Generator) -> Batch:
        """One expression for each of `share` (batch,), the probability that it is of the ramp
        operation.
        """
        ramped = torch.from_numpy(generator.random(len(share)) < share)
        parts = [
            self.expressions(int(rows.sum()), split, generator, operation)
            for rows, operation in ((~ramped, None), (ramped, self.ramp_operation))
        ]
        order = torch.argsort(torch.argsort(ramped.int(), stable=True))
        return self.labeled(
            *(
                torch.cat([getattr(part, name) for part in parts])[order]
                for name in ("tokens", "lengths")
            )
        )

    # --- the plain reading: text, truth by hand, variables ----------------------------------------
    def text(self, tokens: Sequence[int] | Int[Tensor, " pos"]) -> str:
        """The expression as written, without what pads it."""
        before, end, _ = super().text(tokens).partition(self.notation.end)
        return before + end.strip("\n")

    def tokens_of(self, text: str) -> list[int]:
        """Tokens of a whole text, padded to `n_ctx`, or of the beginning of one; DataError where it
        cannot be read.
        """
        end = self.notation.end
        if end == "\n" and re.search("=.", text):
            text += end
        if len(text) > self.n_ctx:
            raise DataError(
                f"text of {len(text)} characters: expected at most context={self.n_ctx}"
            )
        return super().tokens_of(text.ljust(self.n_ctx, end) if text.endswith(end) else text)

    def solution(self, tokens: Sequence[int] | Int[Tensor, " pos"]) -> list[str]:
        """The expression that `tokens` ask for, after 0, 1, 2, … steps, solved by plain rewriting
        of its text.
        """
        return self.notation.solve(self.notation.expression(self.text(tokens)))

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        text = self.notation.write(self.solution(tokens), self.chain_of_thought)
        ids = self.vocabulary.encode(text)
        marks = {"answer": text.index("="), "output": len(re.split("[>=]", text)[0]), "all": 0}
        first = marks[self.loss_on]
        return [
            [ids[place + 1] if first <= place < len(ids) - 1 else IGNORE]
            for place in range(self.n_ctx)
        ]

    @cached_property
    def variables(self) -> Mapping[str, Variable]:  # type: ignore[override]
        """The answer, the outermost operation, the values of the operands that every outermost
        bracket has, and that of the bracket resolved first.
        """
        return variables(self)

    # --- how well it is done ----------------------------------------------------------------------
    def score(
        self, predict: Predict, split: str, seed: int, n: int
    ) -> dict[str, Float[np.ndarray, " model"]]:
        """Accuracies (model,) of greedy continuation from the prompt: what follows the first =
        against the value.

        accuracy: on ``sample(n, seed, split)``; with several operations also accuracy.NAME for
        each, on expressions of that operation alone, `n` in all. An axis of one model in
        `predict`'s tokens stands for the same tokens under all.
        """
        scores = {"accuracy": self.accuracy(predict, self.sample(n, seed, split))}
        for name in self.drawn if len(self.drawn) > 1 else ():
            some = self.expressions(
                max(1, n // len(self.drawn)),
                split,
                rng("score", self.name, split, seed, name),
                name,
            )
            scores[f"accuracy.{name}"] = self.accuracy(predict, some)
        return scores

    def accuracy(self, predict: Predict, batch: Batch) -> Float[np.ndarray, " model"]:
        """(model,) share of `batch` whose value is found by greedy continuation from the prompt."""
        ids, right = self.vocabulary.ids, self.answers_of(batch.tokens)
        given = greedy.answers(
            predict,
            batch.tokens,
            self.prompts(batch.tokens),
            ids["="],
            self.notation.end_token,
            right.shape[-1],
        )
        return (given == right).all(-1).double().mean(-1).numpy()

    @cached_property
    def chance(self) -> Mapping[str, Chance]:  # type: ignore[override]
        """Of the best constant character over all those predicted, from 8,192 test expressions of
        seed 0.
        """
        return {"token": Chance.of(self.sample(1 << 13, seed=0).targets)}

    @cached_property
    def answer_chance(self) -> Chance:
        """Of the best constant value, as `score` counts, from the same test expressions."""
        return Chance.of(self.answers_of(self.sample(1 << 13, seed=0).tokens))

    def answers_of(self, tokens: Int[Tensor, "*batch n_ctx"]) -> Int[Tensor, "*batch width"]:
        """(..., width) characters of the value in whole texts, tokens (..., n_ctx), filled with the
        end; -1 where there is no =.
        """
        ids, width = self.vocabulary.ids, max(map(len, self.notation.values))
        return greedy.after(tokens, ids["="], self.notation.end_token, width)
