"""A two-digit number in base p, and its remainder by every prime below p: many tasks on one
input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from mechint.config import setting
from mechint.groups import finite
from mechint.task import Control, Output, Symmetry
from mechint.tasks.two_operands import TwoOperandTask


@dataclass(frozen=True)
class Remainders(TwoOperandTask):
    """Remainders of x = x0 + x1·p by all primes q < p at once, one group of classes a prime.

    The prompt is ``x0 x1 =``. Shuffled labels are the source's "basis" control: the row of all
    remainders of another number. `masked` leaves primes out.

    >>> task = Remainders(p=11)
    >>> [output.name for output in task.outputs]
    ['mod 2', 'mod 3', 'mod 5', 'mod 7']
    """

    name: ClassVar[str] = "remainders"
    topic: ClassVar[str] = "arithmetic"
    source: ClassVar[str] = (
        "Mechanistic Interpretability on (Multi-task) Irreducible Integer Identifiers, Sec. 3"
    )
    operands: ClassVar[tuple[str, str]] = ("x0", "x1")
    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 1,
        "d_model": 256,
        "n_heads": 4,
        "d_mlp": 1024,
        "act_fn": "relu",
        "use_bias": False,
        "init_mode": "he",
        "dropout": 0.1,
    }
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 65_536,
        "lr": 3e-4,
        "betas": (0.9, 0.98),
        "weight_decay": 1 / 3,
        "grokfast": "ema",
        "grokfast_lamb": 0.5,
        "grokfast_alpha": 0.98,
        "output_weights": "log",
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {
            "task.p": 29,
            "task.masked": (7, 11, 13, 17, 19, 23),
            "task.validation_fraction": 0.05,
            "model.d_model": 64,
            "model.dropout": 0.0,
            "train.steps": 1500,
            "train.lr": 1e-2,
            "train.weight_decay": 1.0,
            "train.stop_accuracy": 0.99,
        },
        "grokking": {"task.p": 113, "train.stop_accuracy": 0.999},
        "paper": {"task.p": 113, "train.steps": 65_536},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 92.2–100.0% by step 1500, seeds 0–2"
    }

    p: int = setting(
        113, "the base of the two digits; the primes are those below it", low=3, high=1024
    )
    masked: tuple[int, ...] = setting((), "primes that are left out", low=2, high=1024)
    target: str = setting(
        "remainder", "x mod q, or whether q divides x", choices=("remainder", "divisibility")
    )
    validation_fraction: float = setting(
        1000 / 12769, "share held out for validation; the rest is the test", low=0, high=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        primes = _primes_below(self.p)
        self.require(
            "masked",
            set(self.masked) < set(primes),
            f"some, not all, of the primes below p={self.p}: {', '.join(map(str, primes))}",
        )

    @property
    def n_values(self) -> int:
        return self.p

    @cached_property
    def primes(self) -> tuple[int, ...]:
        """The primes below p that are not masked, ascending."""
        return tuple(q for q in _primes_below(self.p) if q not in self.masked)

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        if self.target == "divisibility":
            return tuple(Output(f"divisible by {q}", 2, names=("no", "yes")) for q in self.primes)
        return tuple(Output(f"mod {q}", q, finite.cyclic(q)) for q in self.primes)

    def _answers(self) -> Tensor:
        digits = torch.arange(self.p)
        remainders = (digits[:, None] + self.p * digits)[..., None] % torch.tensor(self.primes)
        return remainders if self.target == "remainder" else (remainders == 0).long()

    def plain(self, x: int, y: int) -> list[int]:
        number = int(x) + int(y) * self.p
        multiples = [number // q * q for q in self.primes]
        return [
            number - multiple if self.target == "remainder" else int(number == multiple)
            for multiple in multiples
        ]

    @property
    def symmetry(self) -> Symmetry:
        return Symmetry(finite.cyclic(self.p), tuple(range(self.p)))

    @property
    def controls(self) -> tuple[Control, ...]:
        easy = [q for q in (2, 3, 5, 7) if q in _primes_below(self.p)]
        masked = Control(
            "masked",
            "without the easiest primes " + ", ".join(map(str, easy)),
            {"masked": tuple(easy)},
        )
        return (
            (*super().controls, masked)
            if len(easy) < len(_primes_below(self.p))
            else super().controls
        )


def _primes_below(n: int) -> tuple[int, ...]:
    return tuple(q for q in range(2, n) if all(q % r for r in range(2, int(q**0.5) + 1)))
