"""Parts that tasks of two operands share: the input grid, the prompt ``x y =``, labels from a table
of answers.

A family gives the table (`answers`), the same answers once more one at a time (`plain`), and what
is special to it.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import setting
from mechint.errors import DataError
from mechint.task import (
    IGNORE,
    MAX_SEED,
    Chance,
    Control,
    FiniteTask,
    Program,
    Step,
    Vocabulary,
    rng,
)


@dataclass(frozen=True)
class TwoOperandTask(FiniteTask):
    """Base of tasks on pairs (x, y) of one set of values; value i is token i, the answer is read at
    the last position.
    """

    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 1,
        "d_model": 128,
        "n_heads": 4,
        "d_mlp": 512,
        "act_fn": "relu",
        "normalization_type": None,
        "init_mode": "d_model",
    }
    operands: ClassVar[tuple[str, str]] = ("x", "y")

    train_fraction: float = setting(0.3, "share of the pairs that is trained on", low=0, high=1)
    validation_fraction: float = setting(
        0.0, "share held out for validation; the rest is the test", low=0, high=1
    )
    labels: str = setting(
        "true", "shuffled: the answers permuted over the pairs", choices=("true", "shuffled")
    )
    label_seed: int = setting(0, "seed of the shuffle", low=0, high=MAX_SEED)
    equals: bool = setting(
        True, "whether the prompt ends with '='; otherwise the answer is read at the second operand"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        train, pairs = self.train_fraction, math.prod(self.grid)
        self.require(
            "validation_fraction",
            train + self.validation_fraction <= 1 + 1e-9,
            f"at most {1 - train:g}, what train_fraction={train:g} leaves",
        )
        enough = f"enough to train on at least one of the {pairs} pairs"
        self.require("train_fraction", round(train * pairs) >= 1, enough)

    # --- what a family says -----------------------------------------------------------------------
    @property
    @abc.abstractmethod
    def n_values(self) -> int:
        """Number of values an operand takes."""

    @abc.abstractmethod
    def _answers(self) -> Tensor:
        """(x, y, output) the true answers, by value of the token."""

    @abc.abstractmethod
    def plain(self, x: int, y: int) -> list[int]:
        """The true answers to one pair of tokens, by the plainest possible computation."""

    @property
    def operand_values(self) -> tuple[range, range]:
        """The values that each operand takes."""
        return range(self.n_values), range(self.n_values)

    infix: ClassVar[bool] = False
    """True where a token of the operation stands between the operands."""

    @property
    def value_names(self) -> Sequence[str]:
        """(n_values,) how each value of an operand is written."""
        return [str(value) for value in range(self.n_values)]

    symbol: ClassVar[str] = ""
    """The sign between the operands in the text."""

    @cached_property
    def ranks(self) -> Int[Tensor, " value"]:
        """(n_values,) value of each operand's token as the causal variables count it; a
        permutation.
        """
        return torch.arange(self.n_values)

    _is_addition: ClassVar[bool] = False
    """True if the true answer is the sum of the operands' ranks modulo their number."""

    # --- what follows -----------------------------------------------------------------------------
    second: ClassVar[int] = 0
    """Token of the second operand's first value."""

    @property
    def vocabulary(self) -> Vocabulary:
        names = list(self.value_names)
        signs = [self.symbol] * self.infix + ["="] * self.equals
        return Vocabulary((*names, *(f"{name}′" for name in names[: self.second]), *signs))

    @property
    def n_ctx(self) -> int:
        return 2 + self.infix + self.equals

    @property
    def grid(self) -> tuple[int, int]:
        first, second = self.operand_values
        return len(first), len(second)

    @property
    def fractions(self) -> tuple[float, float]:
        return self.train_fraction, self.validation_fraction

    @cached_property
    def shuffle(self) -> Int[Tensor, " pair"] | None:
        """(pair,) the pair whose answer each pair is given; None when the labels are true."""
        if self.labels == "true":
            return None
        return torch.from_numpy(
            rng("labels", self.name, self.label_seed).permutation(math.prod(self.grid))
        )

    @cached_property
    def answers(self) -> Int[Tensor, "x y output"]:
        """(x, y, output) the answers as labeled, shuffled or not."""
        true = self._answers()
        if self.shuffle is None:
            return true
        x, y = (part.flatten() for part in self._pairs())
        shuffled = true.clone()
        shuffled[x, y] = true[x, y][self.shuffle]
        return shuffled

    def _pairs(self) -> tuple[Int[Tensor, "x y"], Int[Tensor, "x y"]]:
        """The values of both operands over the grid."""
        x, y = torch.meshgrid(
            *(torch.tensor(values) for values in self.operand_values), indexing="ij"
        )
        return x, y

    def inputs(self) -> Int[Tensor, "n pos"]:
        x, y = self._pairs()
        sign = [torch.full_like(x, self.d_vocab - 1 - self.equals)] * self.infix
        equals = [torch.full_like(x, self.d_vocab - 1)] * self.equals
        return torch.stack([x, *sign, y + self.second, *equals], -1).flatten(0, 1)

    def operands_of(self, tokens: Int[Tensor, "batch pos"]) -> tuple[Tensor, Tensor]:
        """The values (batch,) of both operands of inputs."""
        return tokens[:, 0], tokens[:, 1 + self.infix] - self.second

    def label_inputs(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos output"]:
        answers = self.answers.to(tokens.device)[self.operands_of(tokens)]  # (batch, output)
        targets = answers.new_full((len(answers), self.n_ctx, answers.shape[-1]), IGNORE)
        targets[:, -1] = answers
        return targets

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        x, y = int(tokens[0]), int(tokens[1 + self.infix]) - self.second
        if self.shuffle is not None:
            (first, second), width = self.operand_values, self.grid[1]
            row, column = divmod(int(self.shuffle[first.index(x) * width + second.index(y)]), width)
            x, y = first[row], second[column]
        answers = self.plain(x, y)
        return [[IGNORE] * len(answers)] * (self.n_ctx - 1) + [answers]

    @cached_property
    def programs(self) -> Mapping[str, Program]:  # type: ignore[override]
        """The two operands, and each answer, looked up in the table; then the rivals."""
        operands = [
            Step(
                name,
                self.n_values,
                lambda tokens, index=index: self.ranks.to(tokens.device)[
                    self.operands_of(tokens)[index]
                ],
                description=f"value of the {('first', 'second')[index]} operand",
                positions=(index * (1 + self.infix),),
            )
            for index, name in enumerate(self.operands)
        ]
        answers = [self._answer(index) for index in range(len(self.outputs))]
        names = tuple(step.name for step in answers)
        table = Program("table", (*operands, *answers), (names,))
        addition = self._is_addition and self.labels == "true"
        rivals = addition_programs(table, self.n_values) if addition else ()
        return {program.name: program for program in (table, *rivals)}

    def _answer(self, index: int) -> Step:
        output = self.outputs[index]

        def look_up(tokens: Tensor, x: Tensor, y: Tensor) -> Tensor:
            token = self.ranks.argsort().to(tokens.device)  # of each value
            return self.answers.to(tokens.device)[token[x], token[y], index]

        def change(tokens: Tensor, values: Tensor) -> Tensor:
            """The second operand alone where that can give the answer, else the first; the next
            value up that does, in cyclic order.
            """
            x, y = self.operands_of(tokens)
            table = self.answers[..., index].clone()
            taken = torch.zeros_like(table, dtype=torch.bool)
            taken[tuple(self._pairs())] = True
            table = table.where(taken, IGNORE).to(tokens.device)
            first, found_first = _next_hit(table.T[y] == values[:, None], x)
            second, found_second = _next_hit(table[x] == values[:, None], y)
            result, place = tokens.clone(), 1 + self.infix
            result[:, 0] = first.where(found_first & ~found_second, tokens[:, 0])
            result[:, place] = (second + self.second).where(found_second, tokens[:, place])
            return result

        description = f"what the model answers as {output.name!r}"
        return Step(
            output.name, output.n_classes, look_up, self.operands, description, change=change
        )

    @property
    def controls(self) -> tuple[Control, ...]:
        shuffled = Control(
            "shuffled",
            "the answers permuted over the pairs: nothing to generalize",
            {"labels": "shuffled"},
        )
        return (*super().controls, shuffled)

    @cached_property
    def chance(self) -> Mapping[str, Chance]:  # type: ignore[override]
        answers = self.answers[tuple(self._pairs())].flatten(0, 1)
        return {
            output.name: Chance.of(answers[:, index]) for index, output in enumerate(self.outputs)
        }

    def tables(self) -> dict[str, Any]:
        return {} if self.shuffle is None else {"shuffle": self.shuffle.tolist()}

    def text(self, tokens: Sequence[int] | Int[Tensor, " pos"]) -> str:
        words = self.vocabulary.decode(tokens).split(" ")
        if self.infix:
            return " ".join(words)
        return " ".join(words[:1] + [self.symbol] * bool(self.symbol) + words[1:])

    def tokens_of(self, text: str) -> list[int]:
        words = text.split(" ")
        if self.symbol and not self.infix:
            if len(words) < 2 or words[1] != self.symbol:
                raise DataError(f"text {text!r}: expected {self.symbol!r} after the first operand")
            del words[1]
        return self.vocabulary.encode(" ".join(words))


def _next_hit(hit: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """(batch,) the first index after `start` (batch,), in cyclic order, at which hit (batch, n);
    and whether there is one.
    """
    n = hit.shape[1]
    order = (start[:, None] + 1 + torch.arange(n, device=hit.device)) % n
    chosen = hit.gather(1, order).int().argmax(1)
    return order.gather(1, chosen[:, None])[:, 0], hit.any(1)


# --- rival algorithms for addition ----------------------------------------------------------------
N_FREQUENCIES = 5


def addition_programs(table: Program, n: int) -> list[Program]:
    """Clock, pizza (of an odd modulus) and lookup for the task of `table`, whose first two steps
    are the operands and whose last is their sum modulo n.

    clock: "angle_k" is k(x + y) mod n, and the answer the class c with the largest
    Σ_k cos(2π(kc - angle_k)/n). pizza: each term is weighted by |cos(π difference_k/n)|, with
    "difference_k" = k(x - y) mod n; of an even modulus the weight can be zero and the answer
    ambiguous. lookup: "pair" is xn + y.
    """
    *operands, answer = table.steps
    names = tuple(step.name for step in operands)
    frequencies = range(1, min(N_FREQUENCIES, n // 2) + 1)

    def step(name: str, size: int, compute: object, description: str) -> Step:
        return Step(name, size, compute, names, description)  # type: ignore[arg-type]

    angles = [
        step(f"angle_{k}", n, partial(_combined, n, k, 1), f"{k} times the sum, mod {n}")
        for k in frequencies
    ]
    differences = [
        step(f"difference_{k}", n, partial(_combined, n, k, -1), f"{k} times x - y, mod {n}")
        for k in frequencies
    ]
    pair = step("pair", n * n, lambda tokens, x, y: x * n + y, "which pair of operands")

    def program(name: str, between: Sequence[Step], compute: object, description: str) -> Program:
        parents = tuple(step.name for step in between)
        last = Step(answer.name, n, compute, parents, answer.description)  # type: ignore[arg-type]
        return Program(name, (*operands, *between, last), table.answers, description)

    clock = program("clock", angles, partial(_loudest, n, frequencies), "by angles of the sum")
    pizza = program(
        "pizza",
        [*angles, *differences],
        partial(_loudest, n, frequencies),
        "by angles of the mean, weighted by the distance of the operands",
    )
    lookup = program("lookup", [pair], lambda tokens, pair: (pair // n + pair % n) % n, "by pairs")
    return [clock, pizza, lookup] if n % 2 else [clock, lookup]


def _combined(n: int, k: int, sign: int, tokens: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return k * (x + sign * y) % n


def _loudest(
    n: int, frequencies: Sequence[int], tokens: Tensor, *angles: Tensor
) -> Int[Tensor, " batch"]:
    """The class with the largest sum of cosines; weighted where angles of differences follow."""
    classes = torch.arange(n, device=tokens.device)
    logits: Float[Tensor, "batch n"] = torch.zeros(len(tokens), n, device=tokens.device)
    for index, k in enumerate(frequencies):
        waves = torch.cos(2 * torch.pi / n * (k * classes - angles[index][:, None]))
        if len(angles) > len(frequencies):
            difference = angles[len(frequencies) + index]
            waves = waves * torch.cos(torch.pi / n * difference).abs()[:, None]
        logits = logits + waves
    return logits.argmax(1)
