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
from numpy.typing import ArrayLike
from torch import Tensor

from mechint.config import setting
from mechint.errors import DataError, UnknownNameError
from mechint.task import (
    IGNORE,
    MAX_SEED,
    Batch,
    Chance,
    Control,
    GeneratedTask,
    Output,
    Symmetry,
    TargetKind,
    Variable,
    Vocabulary,
    epochs,
    rng,
)
from tasks.listops import greedy
from tasks.listops.algebra import (
    ADDITIONS,
    Algebra,
    addition_table,
    integers,
    permutation_blocks,
    random_answers,
)
from tasks.listops.grammar import Grammar, Patterns
from tasks.listops.notation import LETTERS, SPELLINGS, Notation
from tasks.listops.variables import variables

ALGEBRAS = {"integers": ("MAX", "MED", "ADD"), "permutation-blocks": ("OP", "OP_TOP", "OP_BOTTOM")}
"""Name of the algebra → the operations mixed where none are named."""

LONGEST = 512
"""Default bound on a text where the grammar could write longer ones."""

Predict = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class ListOps(GeneratedTask):
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

    algebra: str = setting(
        "integers",
        "what the values are: integers mod n, or the 36 permutations of two blocks of three",
        choices=ALGEBRAS,
    )
    n: int = setting(10, "modulus of the integers", low=2, high=len(LETTERS))
    operations: tuple[str, ...] | None = setting(
        None, "operations mixed; MAX, MED, ADD or OP, OP_TOP, OP_BOTTOM when none"
    )
    weights: tuple[float, ...] | None = setting(
        None,
        "how often each is drawn for a bracket, in proportion; equal when none",
        low=0,
        high=1e6,
    )
    operands: int = setting(3, "most operands of a bracket", low=1, high=5)
    min_operands: int | None = setting(
        None, "fewest; 2, or operands where that is less, when none", low=1, high=5
    )
    depth: int = setting(2, "most brackets nested in one another", low=1, high=5)
    chain_of_thought: bool = setting(
        True, "write every step, each resolving the right-most innermost bracket"
    )
    spelling: str = setting(
        "symbolic", "s(+3(-749))=4e, or max_10(3,min_10(7,4,9))=4", choices=SPELLINGS
    )
    addition: str = setting(
        "sum",
        "table of ADD: the sum, the sum shuffled symmetrically, or random answers",
        choices=ADDITIONS,
    )
    answers: str = setting(
        "true",
        "random: each bracket's answer a fixed random function of operation and operands",
        choices=("true", "random"),
    )
    table_seed: int = setting(
        0, "seed of shuffled and random tables and answers", low=0, high=MAX_SEED
    )
    excluded: int | None = setting(
        None,
        "operand tuples held out; 100, or a tenth of all where that is less, when none",
        low=1,
        high=1_000_000,
    )
    excluded_seed: int = setting(0, "seed of the held-out tuples", low=0, high=MAX_SEED)
    loss_on: str = setting(
        "output",
        "characters predicted: after the =, after the prompt, or all",
        choices=("answer", "output", "all"),
    )
    context: int | None = setting(
        None,
        f"most characters of a text; the longest the grammar writes, at most {LONGEST}, when none",
        low=1,
        high=4096,
    )
    train_examples: int | None = setting(
        None,
        "training expressions, repeated in random order; ever new ones when none",
        low=1,
        high=10_000_000,
    )
    ramp_operation: str | None = setting(
        None, "operation that takes over from the mixture while training, in expressions of its own"
    )
    ramp_start: int = setting(0, "batch from which its share grows", low=0, high=1_000_000_000)
    ramp_steps: int = setting(
        1000, "batches in which its share grows from 0 to 1", low=1, high=1_000_000_000
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        fewest = min(2, self.operands) if self.min_operands is None else self.min_operands
        if fewest > self.operands:
            self.reject("min_operands", f"at most operands={self.operands}")
        object.__setattr__(self, "min_operands", fewest)
        if self.operations is None:
            object.__setattr__(self, "operations", ALGEBRAS[self.algebra])
        for name in (*self.mixture, *((self.ramp_operation,) if self.ramp_operation else ())):
            if name not in self.values.names:
                raise UnknownNameError.of(f"operation of {self.algebra}", name, self.values.names)
        if not self.mixture or len(set(self.mixture)) < len(self.mixture):
            self.reject("operations", "at least one, and every one once")
        if self.weights is not None and (
            len(self.weights) != len(self.mixture) or sum(self.weights) <= 0
        ):
            self.reject(
                "weights",
                (
                    f"{len(self.mixture)} numbers, one for each of {', '.join(self.mixture)}, not "
                    "all 0"
                ),
            )
        possible = self.values.size**self.pattern_length
        if self.excluded is not None and self.excluded > possible // 2:
            self.reject(
                "excluded",
                (
                    f"1 to {possible // 2}, half of the {possible} tuples of "
                    f"{self.pattern_length} operands"
                ),
            )
        if self.grammar.length(complete=False) > self.n_ctx:
            self.reject(
                "context",
                (
                    f"at least {self.grammar.length(complete=False)} characters, for "
                    f"operands={self.operands} at depth={self.depth}"
                ),
            )
        if self.ramp_operation and self.train_examples:
            self.reject("train_examples", "none beside a ramp_operation")

    # --- what is written --------------------------------------------------------------------------
    @cached_property
    def values(self) -> Algebra:
        """The algebra itself."""
        algebra = (
            permutation_blocks()
            if self.algebra != "integers"
            else integers(self.n, addition_table(self.addition, self.n, self.table_seed))
        )
        return random_answers(algebra, self.table_seed) if self.answers == "random" else algebra

    @cached_property
    def notation(self) -> Notation:
        return Notation(self.values, self.spelling)

    @cached_property
    def grammar(self) -> Grammar:
        shares = self.shares() + (self.shares(self.ramp_operation) if self.ramp_operation else 0)
        grammar = Grammar(
            self.notation,
            shares,
            self.min_operands or self.operands,
            self.operands,
            self.depth,
            self.chain_of_thought,
            self.context or LONGEST,
        )
        if (
            self.context is not None
            or sum(self.operands**level for level in range(self.depth)) > grammar.most_brackets
        ):
            return grammar
        return dataclasses.replace(grammar, n_ctx=min(LONGEST, grammar.length(complete=True)))

    @property
    def mixture(self) -> tuple[str, ...]:
        """`operations`, which are never none once the task is made."""
        assert self.operations is not None
        return self.operations

    @property
    def pattern_length(self) -> int:
        """Operands of a held-out tuple: three, where brackets can hold just three."""
        return min(max(3, self.grammar.fewest), self.operands)

    @cached_property
    def patterns(self) -> Patterns:
        """The held-out tuples."""
        size, length = self.values.size, self.pattern_length
        count = max(1, min(100, size**length // 10)) if self.excluded is None else self.excluded
        codes = np.sort(
            rng("excluded", size, length, self.excluded_seed).choice(
                size**length, count, replace=False
            )
        )
        return Patterns(
            np.stack([codes // size**place % size for place in reversed(range(length))], 1), size
        )

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

    @property
    def controls(self) -> tuple[Control, ...]:
        controls = list(super().controls)
        if self.answers == "true":
            controls.append(
                Control(
                    "random-answers",
                    "answers without a rule: nothing carries over to held-out tuples",
                    {"answers": "random"},
                )
            )
        if self.answers == "true" and self.addition == "sum" and "ADD" in self.drawn:
            controls.append(
                Control(
                    "shuffled-addition",
                    "a commutative table without arithmetic in place of the sum",
                    {"addition": "shuffled"},
                )
            )
        if self.chain_of_thought and self.depth > 1:
            controls.append(
                Control(
                    "no-chain-of-thought",
                    "the value without the steps to it",
                    {"chain_of_thought": False},
                )
            )
        return tuple(controls)

    def tables(self) -> dict[str, Any]:
        """The held-out tuples; the table of every operation on two operands that is no arithmetic,
        and what permutations are numbered.
        """
        tables: dict[str, Any] = {"excluded": self.patterns.tuples.tolist()}
        if self.algebra == "permutation-blocks":
            tables["elements"] = list(self.values.group.names)
        for name, operation in self.values.operations.items():
            if (
                self.answers == "random"
                or self.algebra == "permutation-blocks"
                or (name == "ADD" and self.addition != "sum")
            ):
                tables[name] = [
                    [operation.plain([a, b]) for b in range(self.values.size)]
                    for a in range(self.values.size)
                ]
        return tables

    # --- what is drawn ----------------------------------------------------------------------------
    def shares(self, operation: str | None = None) -> np.ndarray:
        """How often each operation of the algebra is drawn: the mixture's weights, or `operation`
        alone.
        """
        weights = (
            dict(zip(self.mixture, self.weights or [1.0] * len(self.mixture), strict=True))
            if operation is None
            else {operation: 1.0}
        )
        return np.array([weights.get(name, 0.0) for name in self.values.names])

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
        return self.labelled(*grammar.draw(n, generator, self.patterns, held_out=split == "test"))

    def labelled(self, tokens: ArrayLike, lengths: ArrayLike) -> Batch:
        """Whole texts, tokens (batch, n_ctx) of `lengths` (batch,), with the targets that `loss_on`
        asks for.
        """
        tokens, lengths = np.asarray(tokens), np.asarray(lengths)
        place = np.arange(tokens.shape[1] - 1)
        read = (place < lengths[:, None] - 1) & (
            place >= self.prompts(tokens, self.loss_on)[:, None].numpy() - 1
        )
        targets = np.full_like(tokens, IGNORE)
        np.copyto(targets[:, :-1], tokens[:, 1:], where=read)
        wide = [
            torch.from_numpy(array.astype(np.int64))
            for array in (tokens, targets[..., None], lengths)
        ]
        kinds = torch.from_numpy(self._kinds(tokens, targets))
        return Batch(wide[0], wide[1], lengths=wide[2], kinds=kinds)

    def batch_of(self, tokens: Tensor) -> Batch:
        """Whole texts, labelled; what does not end is taken to fill the context."""
        ends = tokens == self.notation.end_token
        lengths = torch.where(ends.any(1), ends.int().argmax(1) + 1, tokens.shape[1])
        return self.labelled(tokens, lengths)

    def _kinds(self, tokens: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """(batch, pos) int8: the first character of the value is the answer; its further characters
        and the chain of thought are steps; the prompt, marks and the end are form.
        """
        ids, end = self.vocabulary.ids, self.notation.end_token
        equals = tokens == ids["="]  # the answer is read at the =
        solved = np.cumsum(tokens == ids[">"], 1) > 0  # the chain of thought has begun
        solved |= np.cumsum(equals, 1) > 0
        kinds = np.where(solved, TargetKind.STEP, TargetKind.FORM).astype(np.int8)
        kinds[np.isin(targets, (ids[">"], ids["="], end))] = TargetKind.FORM
        kinds[equals] = TargetKind.ANSWER
        kinds[targets == IGNORE] = TargetKind.NONE
        return kinds

    def prompts(self, tokens: ArrayLike, until: str = "output") -> Tensor:
        """(batch,) tokens before the answer, before the output (the first > or =), or 1 for all."""
        tokens = np.asarray(tokens)
        if until == "all":
            return torch.ones(len(tokens), dtype=torch.int64)
        mark = ">" if until == "output" and self.chain_of_thought else "="
        return torch.from_numpy((tokens == self.vocabulary.ids[mark]).argmax(1) + 1)

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
        return self.labelled(
            *(
                torch.cat([getattr(part, name) for part in parts])[order]
                for name in ("tokens", "lengths")
            )
        )

    # --- the plain reading: text, truth by hand, variables ----------------------------------------
    def text(self, tokens: Sequence[int] | Tensor) -> str:
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

    def solution(self, tokens: Sequence[int] | Tensor) -> list[str]:
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

    @property
    def fewest_operands(self) -> int:
        """Operands that every bracket has."""
        return self.grammar.fewest

    @cached_property
    def variables(self) -> Mapping[str, Variable]:  # type: ignore[override]
        """The answer, the outermost operation, the values of the operands that every outermost
        bracket has, and that of the bracket resolved first.
        """
        return variables(self)

    # --- how well it is done ----------------------------------------------------------------------
    @property
    def drawn(self) -> tuple[str, ...]:
        """Operations that expressions are drawn with, the ramp's among them."""
        return tuple(
            name
            for name, weight in zip(self.values.names, self.grammar.weights, strict=True)
            if weight
        )

    def score(self, predict: Predict, split: str, seed: int, n: int) -> dict[str, np.ndarray]:
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

    def accuracy(self, predict: Predict, batch: Batch) -> np.ndarray:
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

    def answers_of(self, tokens: Tensor) -> Tensor:
        """(..., width) characters of the value in whole texts, tokens (..., n_ctx), filled with the
        end; -1 where there is no =.
        """
        ids, width = self.vocabulary.ids, max(map(len, self.notation.values))
        return greedy.after(tokens, ids["="], self.notation.end_token, width)
