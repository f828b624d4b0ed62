"""The suite of tasks itself: a task that breaks one promise is told which, and one that keeps them
all passes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from mechint import Batch, Chance, GeneratedTask, Output, Variable, Vocabulary, setting
from mechint.task import IGNORE, TargetKind
from mechint.testing import check_task
from tasks.lists import MaxOfList
from tasks.modular import ModularArithmetic
from tests.conformance.three_operands import ThreeOperands
from tests.marks import full_where


def broken(kind: type[Any], **changes: Any) -> type[Any]:
    """The task with other members; no decorator has seen what they annotate."""
    return type("Broken", (kind,), {"__doc__": kind.__doc__, **changes})


def sizes(*axes: str, more: int = 0) -> property:
    """A grid of these axes, the last one longer by `more`."""
    return property(
        lambda self: (*(getattr(self, one) for one in axes[:-1]), getattr(self, axes[-1]) + more)
    )


def twice(self: ThreeOperands) -> Tensor:
    """Every input twice, so that most test inputs are trained on."""
    once = ThreeOperands.inputs(self).reshape(self.m, self.n_b, self.n_c, -1)
    return torch.cat([once, once], 2).flatten(0, 2)


@dataclass(frozen=True)
class UnlikeLengths(GeneratedTask):
    """Parity of four or more bits, then the end of the text."""

    name: ClassVar[str] = "unlike-lengths"
    source: ClassVar[str] = "these tests"

    n: int = setting(6, "bits, at most", low=4, high=12)

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(("0", "1", "=", "_"))

    @property
    def n_ctx(self) -> int:
        return self.n + 2

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("parity", 3, names=("even", "odd", "end")),)

    @property
    def chance(self) -> Mapping[str, Chance]:
        return {"parity": Chance(0.5, math.log(2) * 1.5)}  # the end, else even or odd

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        equals = list(tokens).index(2)
        rows = [[IGNORE] for _ in tokens]
        rows[equals], rows[equals + 1] = [sum(tokens[:equals]) % 2], [2]
        return rows

    def generate(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        tokens = torch.full((n, self.n_ctx), 3)
        for row, length in zip(tokens, generator.integers(4, self.n + 1, n), strict=True):
            bits = torch.from_numpy(generator.integers(0, 2, length))
            bits[0] = 1 if split == "train" else 0
            row[:length], row[length] = bits, 2
        return self.labeled(tokens)

    def labeled(self, tokens: Tensor) -> Batch:
        targets = torch.tensor([self.brute_force(row) for row in tokens.tolist()])
        kinds = torch.zeros(tokens.shape, dtype=torch.int8)
        kinds[targets[..., 0] != IGNORE] = TargetKind.ANSWER
        kinds[targets[..., 0] == 2] = TargetKind.FORM
        lengths = (tokens == 2).int().argmax(1) + 2
        return Batch(tokens, targets, lengths=lengths, kinds=kinds)

    @property
    def variables(self) -> Mapping[str, Variable]:
        def change(tokens: Tensor, values: Tensor) -> Tensor:
            changed = tokens.clone()
            changed[:, 3] = values
            return changed

        def label(tokens: Tensor, values: Tensor) -> Tensor:
            return self.labeled(change(tokens, values)).targets

        fourth = Variable(
            "bit 3",
            2,
            "the fourth bit",
            lambda tokens: tokens[:, 3],
            label,
            positions=(3,),
            change=change,
        )
        return {"bit 3": fourth}


LabeledAlike = broken(UnlikeLengths, batch_of=UnlikeLengths.labeled)
"""The same, whose `batch_of` knows lengths and kinds."""


@dataclass(frozen=True)
class Swallowed(ThreeOperands):
    """A parameter that `mechint.load(path, device=3)` takes for its own."""

    device: int = setting(0, "which device")


class Undecorated(ThreeOperands):
    """A parameter of its own, which is not there without the decorator."""

    more: int = setting(3, "more", low=1, high=9)


def of_another(self: MaxOfList) -> Mapping[str, Variable]:
    """Where a number changed, another one is said to move too."""

    def label(tokens: Tensor, values: Tensor) -> Tensor:
        changed = tokens.clone()
        changed[:, 0] = values
        changed[:, 1] = torch.where(values == tokens[:, 0], tokens[:, 1], 0)
        return self.targets_of(self.solve(changed))

    own = MaxOfList(n=self.n, length=self.length).variables["element_0"]
    return {"element_0": replace(own, label=label)}


def deaf(self: ModularArithmetic) -> Mapping[str, Variable]:
    """The first operand is said to change no answer."""
    own = ModularArithmetic(p=self.p).variables["x"]
    return {"x": replace(own, label=lambda tokens, _: self.label_inputs(tokens), positions=())}


@pytest.mark.parametrize("kind", full_where([LabeledAlike], [ThreeOperands, LabeledAlike]))
def test_a_task_that_keeps_its_promises_passes(kind: type[Any]) -> None:
    check_task(kind())


BROKEN: dict[str, tuple[type[Any], dict[str, int], str]] = {
    "a parameter without the decorator": (
        Undecorated,
        {},
        r"Undecorated declares more .* decorate it with @dataclass\(frozen=True\)",
    ),
    "a preset that names no setting": (
        broken(ThreeOperands, presets={"fast": {"train.stepz": 20}}),
        {},
        "preset 'fast' cannot be trained with: unknown train parameter 'stepz'",
    ),
    "a parameter that load takes": (Swallowed, {}, "parameter device would be taken for an arg"),
    "answers that are one too high": (
        broken(
            ModularArithmetic,
            plain=lambda self, x, y: [(ModularArithmetic.plain(self, x, y)[0] + 1) % self.p],
        ),
        {"p": 7},
        "brute force gives",
    ),
    "a label that hears no change": (
        broken(ModularArithmetic, programs={}, variables=property(deaf)),
        {"p": 7},
        r"changes in \d+ of 2048 pairs, the label in none",
    ),
    "a label of another change": (
        broken(MaxOfList, programs={}, variables=property(of_another)),
        {"n": 20, "length": 3},
        "labels of the answer are not those of the changed",
    ),
    "axes in another order than the inputs": (
        broken(ThreeOperands, grid=sizes("n_b", "m", "n_c")),
        {},
        "follow axis 0 of the grid .* tell 1 of its 5 indices apart",
    ),
    "inputs that are there twice": (
        broken(
            ThreeOperands,
            grid=property(lambda self: (self.m, self.n_b, 2 * self.n_c)),
            inputs=twice,
        ),
        {},
        "120 inputs, of which 60 differ",
    ),
    "a grid with places that no input has": (
        broken(ThreeOperands, grid=sizes("m", "n_b", "n_c", more=3)),
        {},
        "has 105 places; there are 60 inputs",
    ),
    "a first answer that is not asked everywhere": (
        broken(
            ThreeOperands,
            asks=lambda self, answer, b: ThreeOperands.asks(self, 1 - answer, b),
            variables=property(lambda self: {}),
        ),
        {},
        r"answer 0 \(sum\) is of one output in some examples and of another",
    ),
    "a sum that is read from another operand": (
        broken(ThreeOperands, read_from=(0, 2)),
        {},
        r"positions \(0, 2\) do not determine it alone",
    ),
    "a bit that is read where short examples end": (
        broken(
            LabeledAlike,
            variables=property(
                lambda self: {
                    name: replace(one, positions=(4,))
                    for name, one in UnlikeLengths.variables.fget(self).items()
                }
            ),
        ),
        {},
        r"positions \(4,\) do not determine it alone",
    ),
    "lengths that batch_of does not know": (
        UnlikeLengths,
        {},
        "`batch_of` gives the tokens of test examples other lengths",
    ),
}
"""What is broken → the task, its parameters, and what is said."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_task_is_told_which_promise_it_breaks(name: str) -> None:
    kind, parameters, said = BROKEN[name]
    with pytest.raises(AssertionError, match=said):
        check_task(kind(**parameters), seeds=(0,))
