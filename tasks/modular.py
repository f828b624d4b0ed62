"""Arithmetic modulo p on two operands: the reference task of mechanistic interpretability."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from mechint.config import LLAMA, setting
from mechint.errors import DataError
from mechint.groups import finite
from mechint.groups.finite import FiniteGroup
from mechint.task import Output, Symmetry
from mechint.tasks.two_operands import TwoOperandTask

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x * y,  # y is inverted first
    "x^2+y^2": lambda x, y: x * x + y * y,
    "x^2+xy+y^2": lambda x, y: x * x + x * y + y * y,
}
TITLES = {
    "add": "Addition",
    "subtract": "Subtraction",
    "multiply": "Multiplication",
    "divide": "Division",
    "x^2+y^2": "x² + y²",
    "x^2+xy+y^2": "x² + xy + y²",
}
SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}


@dataclass(frozen=True)
class ModularArithmetic(TwoOperandTask):
    """Addition, subtraction, multiplication, division, x²+y² or x²+xy+y² modulo p, or a p×p table
    of the caller's.

    Tokens 0 … p-1 are the residues; ``=`` is the last token, before it the operation's where it has
    one. The symmetry is Z/p on the residues; for multiplication and division modulo a prime p it is
    the cyclic group of order p-1 on the non-zero residues, in the order of their discrete
    logarithms. No divisor is 0, and with ``zero=False`` no operand is.

    >>> task = ModularArithmetic(p=7)
    >>> task.text(task.inputs()[12]), task.label_inputs(task.inputs()[12:13])[0, -1].tolist()
    ('1 + 5 =', [6])
    """

    name: ClassVar[str] = "modular-arithmetic"
    topic: ClassVar[str] = "arithmetic"
    source: ClassVar[str] = (
        "Power et al. 2022, Grokking; Nanda et al. 2023, Progress measures for grokking, Sec. "
        "3; Zhong et al. 2023, The Clock and the Pizza"
    )
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 15_000,
        "lr": 1e-3,
        "weight_decay": 1.0,
        "betas": (0.9, 0.98),
        "warmup": 10,
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {
            "task.p": 29,
            "task.train_fraction": 0.7,
            "model.d_model": 64,
            "train.steps": 2000,
            "train.lr": 5e-3,
            "train.weight_decay": 2.0,
            "train.grokfast": "ema",
            "train.stop_accuracy": 0.999,
        },
        "grokking": {
            "task.train_fraction": 0.4,
            "train.steps": 4000,
            "train.lr": 2e-3,
            "train.grokfast": "ema",
            "train.stop_accuracy": 0.999,
        },
        "llama": {
            **{f"model.{name}": value for name, value in LLAMA.items()},
            "model.d_model": 64,
            "model.d_mlp": 256,
            "task.p": 31,
            "task.train_fraction": 0.7,
            "train.steps": 2000,
            "train.lr": 5e-3,
            "train.weight_decay": 2.0,
            "train.grokfast": "ema",
            "train.stop_accuracy": 0.999,
        },
        "paper": {"task.p": 113, "task.train_fraction": 0.3, "train.steps": 40_000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 98.4–100.0% by step 2000, seeds 0–2",
        "llama": "test accuracy 100.0% by step 900, seeds 0–1",
    }

    p: int = setting(113, "the modulus, prime or not", low=2, high=1024)
    operation: str = setting("add", "what is computed modulo p", choices=OPERATIONS)
    table: tuple[tuple[int, ...], ...] | None = setting(
        None, "p rows of p answers 0 … p-1, in place of the operation", low=0, high=1023
    )
    zero: bool = setting(True, "whether 0 is an operand of multiplication and a dividend")
    operation_token: bool = setting(False, "a token of the operation between the operands")
    separate_vocabulary: bool = setting(False, "the second operand has tokens of its own, p … 2p-1")

    @property
    def title(self) -> str:
        """Operation and modulus: "Addition mod 113"."""
        word = "A table" if self.table is not None else TITLES[self.operation]
        return f"{word} mod {self.p}"

    def __post_init__(self) -> None:
        super().__post_init__()
        product = self.operation in ("multiply", "divide") and self.table is None
        divides = self.operation == "divide" and product
        prime = not divides or _powers_of_primitive_root(self.p) is not None
        self.require("p", prime, "an odd prime, so that what is not 0 divides")
        self.require("zero", self.zero or product, "true but for products and quotients")
        if self.table is None:
            return
        if len(self.table) != self.p or any(len(row) != self.p for row in self.table):
            raise DataError(
                f"{self.name}: table of {len(self.table)} rows: expected p={self.p} rows of "
                f"{self.p} answers"
            )
        if not all(0 <= answer < self.p for row in self.table for answer in row):
            raise DataError(f"{self.name}: table: expected answers from 0 to p-1={self.p - 1}")

    @property
    def n_values(self) -> int:
        return self.p

    @property
    def operand_values(self) -> tuple[range, range]:
        divides = self.operation == "divide" and self.table is None
        return range(int(not self.zero), self.p), range(int(divides or not self.zero), self.p)

    @property
    def infix(self) -> bool:  # type: ignore[override]
        return self.operation_token

    @property
    def second(self) -> int:  # type: ignore[override]
        return self.p if self.separate_vocabulary else 0

    @property
    def symbol(self) -> str:  # type: ignore[override]
        return "∘" if self.table is not None else SYMBOLS.get(self.operation, self.operation)

    def _answers(self) -> Tensor:
        if self.table is not None:
            return torch.tensor(self.table)[..., None]
        x = y = torch.arange(self.p)
        if self.operation == "divide":
            y = torch.tensor([0, *(pow(divisor, -1, self.p) for divisor in range(1, self.p))])
        return (OPERATIONS[self.operation](x[:, None], y) % self.p)[..., None]

    @property
    def _is_addition(self) -> bool:  # type: ignore[override]
        return self.operation == "add" and self.table is None

    def plain(self, x: int, y: int) -> list[int]:
        if self.table is not None:
            return [self.table[x][y]]
        if self.operation == "divide":
            return [next(z for z in range(self.p) if z * y % self.p == x)]
        steps = {"add": [x, y], "subtract": [x] + [self.p - 1] * y, "multiply": [x] * y}
        squares = [x] * x + [y] * y
        return [
            sum(steps.get(self.operation, squares + [x] * y * (self.operation == "x^2+xy+y^2")))
            % self.p
        ]

    @property
    def outputs(self) -> tuple[Output, ...]:
        symmetry = self.symmetry
        return (
            Output(
                "answer",
                self.p,
                symmetry.group if symmetry and symmetry.group.order == self.p else None,
            ),
        )

    @cached_property
    def symmetry(self) -> Symmetry | None:
        if self.table is not None:
            try:
                return Symmetry(FiniteGroup(self.table), tuple(range(self.p)))
            except (
                DataError
            ):  # a table that is not a group's has no symmetry, and is welcome all the same
                return None
        if self.operation not in ("multiply", "divide"):
            return Symmetry(finite.cyclic(self.p), tuple(range(self.p)))
        powers = _powers_of_primitive_root(self.p)
        return Symmetry(finite.cyclic(self.p - 1), powers) if powers else None

    def tables(self) -> dict[str, Any]:
        given = {} if self.table is None else {"answers": [list(row) for row in self.table]}
        return {**super().tables(), **given}


def _powers_of_primitive_root(p: int) -> tuple[int, ...] | None:
    """g⁰ … gᵖ⁻² modulo the prime p for its smallest primitive root g > 1; None when p is not an odd
    prime.

    >>> _powers_of_primitive_root(7)
    (1, 3, 2, 6, 4, 5)
    """
    for root in range(2, p):
        powers = [1]
        while (following := powers[-1] * root % p) not in (0, 1) and len(powers) < p:
            powers.append(following)
        if len(powers) == p - 1:
            return tuple(powers)
    return None
