"""Sums of numbers of several digits, written out: carries are the hidden variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
class DigitSum(SequenceTask):
    """The sum of two numbers of as many digits, a character each: ``1234+2345=3579``.

    The digits of the sum are read from the ``=`` on, each from the digit before it. Places count
    from 0, the least significant. Variables: "sum_i", the two digits at place i added; "carry_i",
    what place i hands on to place i + 1; "digit_i" of the answer. A carry reaches the places above
    it alone.

    >>> task = DigitSum(digits=4)
    >>> tokens = torch.tensor([task.tokens_of("1234+2345=3579")])
    >>> task.solve(tokens).tolist(), task.n_ctx, task.answer_names
    ([[3, 5, 7, 9]], 14, ('digit_3', 'digit_2', 'digit_1', 'digit_0'))
    """

    name: ClassVar[str] = "digit-sum"
    topic: ClassVar[str] = "arithmetic"
    source: ClassVar[str] = (
        "Nanda et al. 2023, Progress measures for grokking, 5-digit addition; Quirke & Barez 2024, "
        "Understanding Addition in Transformers; ARENA monthly problem, September 2023; AdderBoard "
        "2026, the smallest transformer that adds ten-digit numbers"
    )
    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 2,
        "d_model": 48,
        "n_heads": 3,
        "d_head": 24,
        "attn_only": True,
        "normalization_type": "LN",
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {"task.digits": 2, "train.steps": 1500, "train.lr": 3e-3},
        "paper": {"task.digits": 4, "train.steps": 20_000, "train.batch_size": 512},
        "ten-digits": {
            "task.digits": 10,
            "task.leading": 9,
            "task.reversed_answer": True,
            "train.steps": 50_000,
            "train.batch_size": 512,
        },
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 100.0% by step 1500, seed 0"
    }

    digits: int = setting(4, "digits of each number", low=1, high=16)
    leading: int = setting(
        4, "largest leading digit; above 4 the sum has one digit more", low=1, high=9
    )
    extra_digit: bool = setting(
        False,
        "write one digit more than needed, 1234+2345=03579; always so where leading is above 4",
    )
    base: int = setting(10, "base of the digits", low=2, high=10)
    reversed_answer: bool = setting(False, "write the sum from its least significant digit on")

    def __post_init__(self) -> None:
        super().__post_init__()
        most = f"at most base - 1 = {self.base - 1}"
        self.require("leading", self.leading < self.base, most)

    # --- how it is written ------------------------------------------------------------------------
    @property
    def sum_digits(self) -> int:
        """Digits of the sum as written."""
        overflows = 2 * self.leading + 1 >= self.base
        return self.digits + (overflows or self.extra_digit)

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary((*"0123456789"[: self.base], "+", "="), separator="")

    @property
    def n_ctx(self) -> int:
        return 2 * self.digits + 2 + self.sum_digits

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("next", self.d_vocab, names=self.vocabulary.tokens),)

    @property
    def answer_positions(self) -> range:
        equals = 2 * self.digits + 1
        return range(equals, equals + self.sum_digits)

    @property
    def _random_classes(self) -> int:
        return self.base

    @property
    def places(self) -> list[int]:
        """(answer,) the place that each answer is the digit of."""
        places = list(range(self.sum_digits))
        return places if self.reversed_answer else places[::-1]

    @property
    def answer_names(self) -> tuple[str, ...]:
        return tuple(f"digit_{place}" for place in self.places)

    def operand_positions(self, place: int) -> tuple[int, int]:
        """Positions of the digits of both numbers at `place`."""
        first = self.digits - 1 - place
        return first, first + self.digits + 1

    def draw(self, n: int, generator: np.random.Generator) -> Int[Tensor, "n pos"]:
        tokens = np.empty((n, self.n_ctx), np.int64)
        tokens[:, : 2 * self.digits + 1] = generator.integers(
            0, self.base, (n, 2 * self.digits + 1)
        )
        for start in (0, self.digits + 1):
            tokens[:, start] = generator.integers(0, self.leading + 1, n)
        tokens[:, self.digits], tokens[:, 2 * self.digits + 1] = self.base, self.base + 1
        return self.completed(torch.from_numpy(tokens))

    def completed(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n pos"]:
        tokens = tokens.clone()
        tokens[:, 2 * self.digits + 2 :] = self.solve(tokens)
        return tokens

    # --- the algorithm ----------------------------------------------------------------------------
    def place_sums(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n place"]:
        """The digits of both numbers added at each place, the least significant first."""
        columns = [tokens[:, list(self.operand_positions(i))].sum(1) for i in range(self.digits)]
        return torch.stack(columns, 1)

    def solve(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n answer"]:
        sums = self.place_sums(tokens)
        carry, digits = torch.zeros_like(sums[:, 0]), []
        for place in range(self.sum_digits):
            total = carry + sums[:, place] if place < self.digits else carry
            digits.append(total % self.base)
            carry = total // self.base
        return torch.stack([digits[place] for place in self.places], 1)

    def plain(self, tokens: Sequence[int]) -> list[int]:
        text = "".join(self.vocabulary.tokens[token] for token in tokens)
        a, b = text.partition("=")[0].split("+")
        total, written = int(a, self.base) + int(b, self.base), []
        for _ in range(self.sum_digits):
            total, digit = divmod(total, self.base)
            written.append(digit)
        return written if self.reversed_answer else written[::-1]

    # --- programs ---------------------------------------------------------------------------------
    @property
    def _carries(self) -> range:
        """Places whose carry another digit needs."""
        return range(min(self.digits, self.sum_digits - 1))

    def true_programs(self) -> list[Program]:
        """Ripple: carries go from the least significant place on. Lookahead: every carry follows at
        once from "generate_i" (the sum there is at least the base) and "propagate_i" (it is one
        less) of the places up to its own.
        """
        ripple = [
            self._step("carry", i, lambda tokens, total, carry=0: (total + carry) // self.base)
            for i in self._carries
        ]
        signals = [
            Step(
                f"{kind}_{i}",
                2,
                lambda tokens, total, least=least, most=most: (
                    (total >= least) & (total <= most)
                ).long(),
                (f"sum_{i}",),
                f"place {i} {kind}s a carry",
            )
            for i in self._carries
            for kind, least, most in (
                ("generate", self.base, 2 * self.base),
                ("propagate", self.base - 1, self.base - 1),
            )
        ]
        lookahead = [
            Step(
                f"carry_{i}",
                2,
                _looked_ahead,
                tuple(f"{kind}_{k}" for k in range(i + 1) for kind in ("generate", "propagate")),
                f"what place {i} hands on",
            )
            for i in self._carries
        ]
        return [
            self._addition("ripple", ripple, ()),
            self._addition("lookahead", lookahead, signals),
        ]

    def _addition(self, name: str, carries: Sequence[Step], signals: Sequence[Step]) -> Program:
        """Sums, what follows from them alone, carries, digits; shown from carries to digits."""
        sums = [
            self._step("sum", i, lambda tokens, i=i: self.place_sums(tokens)[:, i])
            for i in range(self.digits)
        ]
        digits = [
            self._step("digit", i, lambda tokens, total, carry=0: (total + carry) % self.base)
            for i in range(self.sum_digits)
        ]
        shown = [step.name for step in (*carries, *signals, *sums, *digits)]
        return self._program(name, [*sums, *signals, *carries, *digits], shown)

    def _step(self, kind: str, place: int, compute: Callable[..., Tensor]) -> Step:
        """A variable of the addition at one place; above the numbers the digit is the carry."""
        before = (f"carry_{place - 1}",) if place else ()
        summed = (f"sum_{place}",) if place < self.digits else ()
        descriptions = {
            "sum": f"the two digits at place {place}, added",
            "carry": f"what place {place} hands on",
            "digit": f"digit of the answer at place {place}",
        }
        return Step(
            f"{kind}_{place}",
            {"sum": 2 * self.base - 1, "carry": 2, "digit": self.base}[kind],
            compute,
            () if kind == "sum" else summed + before,
            descriptions[kind],
            positions=self.operand_positions(place) if kind == "sum" else (),
            change=partial(self._change, kind, place),
        )

    def _change(self, kind: str, place: int, tokens: Tensor, values: Tensor) -> Tensor:
        """The two digits at the place changed: for a carry such that the digit there stays, where
        ten more or less can be written; a digit above the numbers follows from the carry below.
        """
        if place >= self.digits:
            return self._change("carry", place - 1, tokens, values)
        total = self.place_sums(tokens)[:, place]
        values_before = self.run(tokens)
        arriving = values_before[f"carry_{place - 1}"] if place else total * 0
        if kind == "sum":
            wanted = values
        elif kind == "digit":
            wanted = total + values - values_before[f"digit_{place}"]
            wanted = wanted + self.base * (
                (wanted < 0).long() - (wanted > 2 * self.base - 2).long()
            )
        else:
            wanted = total + self.base * (values - values_before[f"carry_{place}"])
            carried = torch.where(values > 0, self.base - arriving, self.base - 1 - arriving)
            possible = (wanted >= 0) & (wanted <= 2 * self._limit(place))
            wanted = torch.where(possible, wanted, carried)
        return self._with_sum(tokens, place, wanted)

    def _limit(self, place: int) -> int:
        """Largest digit at a place."""
        return self.leading if place == self.digits - 1 else self.base - 1

    def _with_sum(self, tokens: Tensor, place: int, wanted: Tensor) -> Tensor:
        """The digits at `place` moved to add up to `wanted`, the second one first; as they are
        where they cannot.
        """
        first, second = self.operand_positions(place)
        limit = self._limit(place)
        b = (wanted - tokens[:, first]).clamp(0, limit)
        a = wanted - b
        fits = (a >= 0) & (a <= limit)
        changed = tokens.clone()
        changed[:, first] = a.where(fits, tokens[:, first])
        changed[:, second] = b.where(fits, tokens[:, second])
        return self.completed(changed)


def _looked_ahead(tokens: Tensor, *signals: Tensor) -> Tensor:
    """The carry of the last of some places, from (generate, propagate) of each: generated there, or
    further below with nothing but propagating places in between.
    """
    carry = torch.zeros_like(signals[0])
    for generate, propagate in zip(signals[::2], signals[1::2], strict=True):
        carry = generate | (propagate & carry)
    return carry
