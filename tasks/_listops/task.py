"""ListOps: nested operations over a finite algebra, solved with or without a chain of thought."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float

from mechint.config import setting
from mechint.errors import UnknownNameError
from mechint.task import MAX_SEED, Batch, Chance, Control, GeneratedTask, epochs, rng
from mechint.tasks._listops.algebra import (
    ADDITIONS,
    Algebra,
    addition_table,
    integers,
    permutation_blocks,
    random_answers,
)
from mechint.tasks._listops.expression import (
    LETTERS,
    Bracket,
    ExpressionGrammar,
    HeldOutTuples,
    Notation,
    solve,
)
from mechint.tasks._listops.text import ExpressionTask, Predict

ALGEBRAS = {"integers": ("MAX", "MED", "ADD"), "permutation-blocks": ("OP", "OP_TOP", "OP_BOTTOM")}
"""Name of the algebra → the operations mixed where none are named."""

LONGEST = 512
"""Default bound on a text where the grammar could write longer ones."""


@dataclass(frozen=True)
class ListOps(ExpressionTask, GeneratedTask):
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
    topic: ClassVar[str] = "languages"
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
        self.require("min_operands", fewest <= self.operands, f"at most operands={self.operands}")
        object.__setattr__(self, "min_operands", fewest)
        if self.operations is None:
            object.__setattr__(self, "operations", ALGEBRAS[self.algebra])
        for name in (*self.mixture, *((self.ramp_operation,) if self.ramp_operation else ())):
            if name not in self.values.names:
                raise UnknownNameError.of(f"operation of {self.algebra}", name, self.values.names)
        count = len(self.mixture)
        each_once = 0 < count == len(set(self.mixture))
        self.require("operations", each_once, "at least one, and every one once")
        weights = self.weights
        self.require(
            "weights",
            weights is None or (len(weights) == count and sum(weights) > 0),
            f"{count} numbers, one for each of {', '.join(self.mixture)}, not all 0",
        )
        length = self.pattern_length
        possible = self.values.size**length
        self.require(
            "excluded",
            (self.excluded or 0) <= possible // 2,
            f"1 to {possible // 2}, half of the {possible} tuples of {length} operands",
        )
        shortest = self._length(self.grammar().chain(0))
        self.require(
            "context",
            shortest <= self.n_ctx,
            f"at least {shortest} characters, for operands={self.operands} at depth={self.depth}",
        )
        both = self.ramp_operation and self.train_examples
        self.require("train_examples", not both, "none beside a ramp_operation")

    # --- what follows from the parameters ---------------------------------------------------------
    @cached_property
    def values(self) -> Algebra:
        """The algebra itself."""
        if self.algebra == "integers":
            addition = addition_table(self.addition, self.n, self.table_seed)
            algebra = integers(self.n, addition)
        else:
            algebra = permutation_blocks()
        return random_answers(algebra, self.table_seed) if self.answers == "random" else algebra

    @cached_property
    def notation(self) -> Notation:  # type: ignore[override]
        """The spelling of expressions."""
        return Notation(self.values)

    @property
    def mixture(self) -> tuple[str, ...]:
        """`operations`, which are never none once the task is made."""
        assert self.operations is not None
        return self.operations

    @property
    def fewest_operands(self) -> int:  # type: ignore[override]
        """Operands that every bracket has."""
        assert self.min_operands is not None
        return self.min_operands

    @property
    def drawn(self) -> tuple[str, ...]:  # type: ignore[override]
        """Operations that expressions are drawn with, the ramp's among them."""
        weights = self.shares() + (self.shares(self.ramp_operation) if self.ramp_operation else 0)
        return tuple(
            name for name, weight in zip(self.values.names, weights, strict=True) if weight
        )

    def shares(self, operation: str | None = None) -> Float[np.ndarray, " operation"]:
        """The share with which each operation of the algebra is drawn: the mixture's weights, or
        `operation` alone.
        """
        weights = {} if operation is None else {operation: 1.0}
        if operation is None:
            given = self.weights or [1.0] * len(self.mixture)
            weights = dict(zip(self.mixture, given, strict=True))
        return np.array([weights.get(name, 0.0) for name in self.values.names])

    def grammar(self, operation: str | None = None) -> ExpressionGrammar:
        """The grammar by which expressions are drawn, of the mixture or of `operation` alone."""
        return ExpressionGrammar(
            self.values.size,
            self.shares(operation).tolist(),
            self.fewest_operands,
            self.operands,
            self.depth,
            self._most_brackets(self.context or LONGEST),
        )

    def _most_brackets(self, n_ctx: int) -> int:
        """No text with more brackets fits: each takes two characters and an operand at every step
        that still shows it.
        """
        if not self.chain_of_thought:
            return n_ctx // 3
        return next(b for b in itertools.count() if 3 * (b + 1) * (b + 2) // 2 > n_ctx)

    @cached_property
    def n_ctx(self) -> int:  # type: ignore[override]
        """`context`, or else the characters of the longest text."""
        if self.context is not None:
            return self.context
        grammar = self.grammar()
        if sum(self.operands**level for level in range(self.depth)) > grammar.max_brackets:
            return LONGEST
        return min(LONGEST, self._length(grammar.complete(0)))

    def _length(self, tree: Bracket) -> int:
        """Characters of the text of a tree."""
        return len(self.notation.write(self.notation.texts(tree), self.chain_of_thought))

    @property
    def pattern_length(self) -> int:
        """Operands of a held-out tuple: three, where brackets can hold just three."""
        return min(max(3, self.fewest_operands), self.operands)

    @cached_property
    def patterns(self) -> HeldOutTuples:
        """The held-out tuples."""
        size, length = self.values.size, self.pattern_length
        count = max(1, min(100, size**length // 10)) if self.excluded is None else self.excluded
        generator = rng("excluded", size, length, self.excluded_seed)
        codes = np.sort(generator.choice(size**length, count, replace=False))
        digits = np.stack([codes // size**place % size for place in reversed(range(length))], 1)
        return HeldOutTuples(tuple(map(tuple, digits.tolist())))

    # --- what is drawn ----------------------------------------------------------------------------
    def generate(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        """`n` expressions of `split`; of the ramp operation alone where there is one, as after the
        ramp.
        """
        return self.expressions(n, split, generator, self.ramp_operation)

    def expressions(
        self, n: int, split: str, generator: np.random.Generator, operation: str | None = None
    ) -> Batch:
        """`n` expressions of `split`, of the mixture or of `operation` alone.

        Of the test each shows one of the held-out tuples as all operands of a bracket; of the other
        splits none shows any.
        """
        random = Random(int(generator.integers(1 << 62)))
        grammar, texts = self.grammar(operation), list[str]()
        while len(texts) < n:
            tree = grammar.draw(random)
            if tree is not None and split == "test":
                tree = self.patterns.plant(tree, random)
            if tree is None:
                continue
            steps = solve(self.values, tree)
            if split != "test" and self.patterns.occur(steps):
                continue
            text = self.notation.write(self.notation.texts(tree, steps), self.chain_of_thought)
            if len(text) <= self.n_ctx:
                texts.append(text)
        return self.batch_of(self.written(texts))

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
            self.expressions(int(rows.sum()), split, generator, operation).tokens
            for rows, operation in ((~ramped, None), (ramped, self.ramp_operation))
        ]
        order = torch.argsort(torch.argsort(ramped.int(), stable=True))
        return self.batch_of(torch.cat(parts)[order])

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
            generator = rng("score", self.name, split, seed, name)
            batch = self.expressions(max(1, n // len(self.drawn)), split, generator, name)
            scores[f"accuracy.{name}"] = self.accuracy(predict, batch)
        return scores

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

    def tables(self) -> dict[str, Any]:
        """The held-out tuples; the table of every operation on two operands that is not arithmetic,
        and what permutations are numbered.
        """
        tables: dict[str, Any] = {"excluded": [list(pattern) for pattern in self.patterns.tuples]}
        if self.algebra == "permutation-blocks":
            tables["elements"] = list(self.values.group.names)
        for name, operation in self.values.operations.items():
            if (
                self.answers == "random"
                or self.algebra == "permutation-blocks"
                or (name == "ADD" and self.addition != "sum")
            ):
                tables[name] = [
                    [operation.compute([a, b]) for b in range(self.values.size)]
                    for a in range(self.values.size)
                ]
        return tables

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
