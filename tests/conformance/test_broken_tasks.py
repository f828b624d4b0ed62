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


class SwappedAxes(ThreeOperands):
    """The axes of the grid in another order than the inputs are in."""

    @property
    def grid(self) -> tuple[int, ...]:
        return (self.n_b, self.m, self.n_c)


class Twice(ThreeOperands):
    """Every input there twice, so that most test inputs are trained on."""

    @property
    def grid(self) -> tuple[int, ...]:
        return (self.m, self.n_b, 2 * self.n_c)

    def inputs(self) -> Tensor:
        once = super().inputs().reshape(self.m, self.n_b, self.n_c, -1)
        return torch.cat([once, once], 2).flatten(0, 2)


class TooLargeAGrid(ThreeOperands):
    """A grid with places that no input has."""

    @property
    def grid(self) -> tuple[int, ...]:
        return (self.m, self.n_b, self.n_c + 3)


class FirstIsMissing(ThreeOperands):
    """The first answer is not asked everywhere, which makes the second the first there."""

    def asks(self, answer: int, b: Any) -> Any:
        return super().asks(1 - answer, b)

    @property
    def variables(self) -> Mapping[str, Variable]:
        return {}


@dataclass(frozen=True)
class WrongPositions(ThreeOperands):
    """The sum is said to be read from another operand."""

    read_from: ClassVar[tuple[int, ...]] = (0, 2)


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


class LabeledAlike(UnlikeLengths):
    """The same, whose `batch_of` knows lengths and kinds."""

    def batch_of(self, tokens: Tensor) -> Batch:
        return self.labeled(tokens)


class ReadElsewhere(LabeledAlike):
    """The fourth bit is said to be read where short examples end, so that some mixed inputs have no
    end.
    """

    @property
    def variables(self) -> Mapping[str, Variable]:
        return {name: replace(one, positions=(4,)) for name, one in super().variables.items()}


class Undecorated(ThreeOperands):
    """A parameter of its own, which is not there without the decorator."""

    more: int = setting(3, "more", low=1, high=9)


@dataclass(frozen=True)
class Swallowed(ThreeOperands):
    """A parameter that `mechint.load(path, device=3)` takes for its own."""

    device: int = setting(0, "which device")


class WrongAnswers(ModularArithmetic):
    """Plain answers that are one too high, on which brute force does not agree with the labels."""

    def plain(self, x: int, y: int) -> list[int]:
        return [(super().plain(x, y)[0] + 1) % self.p]


class DeafLabel(ModularArithmetic):
    """The first operand is said to change no answer."""

    programs: ClassVar[Any] = {}

    @property
    def variables(self) -> Mapping[str, Variable]:
        own = ModularArithmetic(p=self.p).variables["x"]
        deaf = replace(own, label=lambda tokens, _: self.label_inputs(tokens), positions=())
        return {"x": deaf}


class LabelOfAnother(MaxOfList):
    """Where a number changed, another one is said to move too."""

    programs: ClassVar[Any] = {}

    @property
    def variables(self) -> Mapping[str, Variable]:
        def label(tokens: Tensor, values: Tensor) -> Tensor:
            changed = tokens.clone()
            changed[:, 0] = values
            changed[:, 1] = torch.where(values == tokens[:, 0], tokens[:, 1], 0)
            return self.targets_of(self.solve(changed))

        own = MaxOfList(n=self.n, length=self.length).variables["element_0"]
        return {"element_0": replace(own, label=label)}


class UnknownInAPreset(ThreeOperands):
    """A preset that names no setting."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fast": {"train.stepz": 20}}


@pytest.mark.parametrize("kind", full_where([LabeledAlike], [ThreeOperands, LabeledAlike]))
def test_a_task_that_keeps_its_promises_passes(kind: type[Any]) -> None:
    check_task(kind())


SMALL: dict[type[Any], dict[str, int]] = {
    WrongAnswers: {"p": 7},
    DeafLabel: {"p": 7},
    LabelOfAnother: {"n": 20, "length": 3},
}


BROKEN = {
    Undecorated: r"Undecorated declares more .* decorate it with @dataclass\(frozen=True\)",
    UnknownInAPreset: "preset 'fast' cannot be trained with: unknown train parameter 'stepz'",
    Swallowed: "parameter device would be taken for an argument",
    WrongAnswers: "brute force gives",
    DeafLabel: r"changes in \d+ of 2048 pairs, the label in none",
    LabelOfAnother: "labels of the answer are not those of the changed",
    SwappedAxes: "follow axis 0 of the grid .* tell 1 of its 5 indices apart",
    Twice: "120 inputs, of which 60 differ",
    TooLargeAGrid: "has 105 places; there are 60 inputs",
    FirstIsMissing: r"answer 0 \(sum\) is of one output in some examples and of another",
    WrongPositions: r"positions \(0, 2\) do not determine it alone",
    ReadElsewhere: r"positions \(4,\) do not determine it alone",
    UnlikeLengths: "`batch_of` gives the tokens of test examples other lengths",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_task_is_told_which_promise_it_breaks(kind: type[Any]) -> None:
    with pytest.raises(AssertionError, match=BROKEN[kind]):
        check_task(kind(**SMALL.get(kind, {})), seeds=(0,))
