"""The parameters of ListOps, and what follows from them alone: algebra, notation, grammar, held-out
tuples.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from mechint.config import setting
from mechint.errors import UnknownNameError
from mechint.task import MAX_SEED, Control, GeneratedTask, rng
from tasks._listops.algebra import (
    ADDITIONS,
    Algebra,
    addition_table,
    integers,
    permutation_blocks,
    random_answers,
)
from tasks._listops.grammar import Grammar, Patterns
from tasks._listops.notation import LETTERS, SPELLINGS, Notation

ALGEBRAS = {"integers": ("MAX", "MED", "ADD"), "permutation-blocks": ("OP", "OP_TOP", "OP_BOTTOM")}
"""Name of the algebra → the operations mixed where none are named."""

LONGEST = 512
"""Default bound on a text where the grammar could write longer ones."""


@dataclass(frozen=True)
class ListOpsSettings(GeneratedTask):
    """Which expressions there are, and how they are written."""

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

    # --- what follows -----------------------------------------------------------------------------
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
        """How expressions are spelled."""
        return Notation(self.values, self.spelling)

    @cached_property
    def grammar(self) -> Grammar:
        """How expressions are drawn."""
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

    def shares(self, operation: str | None = None) -> Float[np.ndarray, " operation"]:
        """How often each operation of the algebra is drawn: the mixture's weights, or `operation`
        alone.
        """
        weights = (
            dict(zip(self.mixture, self.weights or [1.0] * len(self.mixture), strict=True))
            if operation is None
            else {operation: 1.0}
        )
        return np.array([weights.get(name, 0.0) for name in self.values.names])

    @property
    def drawn(self) -> tuple[str, ...]:
        """Operations that expressions are drawn with, the ramp's among them."""
        return tuple(
            name
            for name, weight in zip(self.values.names, self.grammar.weights, strict=True)
            if weight
        )

    @property
    def fewest_operands(self) -> int:
        """Operands that every bracket has."""
        return self.grammar.fewest

    def tables(self) -> dict[str, Any]:
        """The held-out tuples; the table of every operation on two operands that is not arithmetic,
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
