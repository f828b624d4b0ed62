"""Lists as sets: how many different numbers there are; what one list leaves of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from mechint.config import setting
from mechint.task import Output, Program, Step, Vocabulary
from mechint.tasks.lists import ListTask
from mechint.tasks.sequences import SequenceTask


@dataclass(frozen=True)
class CountDistinct(ListTask):
    """The count of different numbers in a list, read at the = behind it.

    Programs: by "present_v", whether number v occurs; by "new_i", whether number i of the list has
    not occurred before.

    >>> task = CountDistinct(n=10, length=4)
    >>> task.text([3, 1, 3, 4, 10]), task.solve(torch.tensor([[3, 1, 3, 4, 10]])).tolist()
    ('3 1 3 4 =', [[3]])
    """

    name: ClassVar[str] = "count-distinct"
    marks: ClassVar[tuple[str, ...]] = ("=",)
    topic: ClassVar[str] = "lists"
    source: ClassVar[str] = "Weiss et al. 2021, Thinking Like Transformers (histograms)"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {"model.d_model": 32, "train.steps": 1000, "train.lr": 3e-3},
        "paper": {"task.n": 20, "task.length": 12, "train.steps": 6000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 76.8% by step 1000, seed 0"
    }

    n: int = setting(8, "numbers, 0 to n - 1", low=2, high=256)
    length: int = setting(6, "numbers in a list", low=2, high=256)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("count", min(self.n, self.length) + 1),)

    def draw(self, n: int, generator: np.random.Generator) -> Int[Tensor, "n pos"]:
        tokens = np.full((n, self.n_ctx), self.n, np.int64)
        # from a few of the numbers, so that all counts occur
        some = generator.integers(1, self.n + 1, (n, 1))
        order = generator.random((n, self.n)).argsort(1)
        index = generator.integers(0, some, (n, self.length))
        tokens[:, : self.length] = np.take_along_axis(order, index, 1)
        return torch.from_numpy(tokens)

    def present(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n number"]:
        """Return whether each number occurs."""
        occurs = tokens[:, : self.length, None] == torch.arange(self.n, device=tokens.device)
        return occurs.any(1).long()

    def solve(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n answer"]:
        return self.present(tokens).sum(1, keepdim=True)

    def plain(self, tokens: Sequence[int]) -> list[int]:
        return [len(set(tokens[: self.length]))]

    def true_programs(self) -> list[Program]:
        present = [
            Step(
                f"present_{v}",
                2,
                lambda tokens, v=v: self.present(tokens)[:, v],
                description=f"whether {v} occurs",
            )
            for v in range(self.n)
        ]
        new = [
            Step(
                f"new_{i}",
                2,
                lambda tokens, i=i: (tokens[:, :i] != tokens[:, i : i + 1]).all(1).long(),
                description=f"whether number {i} has not occurred before",
                positions=tuple(range(i + 1)),
            )
            for i in range(self.length)
        ]
        return [self._counted("presence", present), self._counted("first occurrences", new)]

    def _counted(self, name: str, parts: Sequence[Step]) -> Program:
        most = self.outputs[0].n_classes - 1  # interventions may count further
        names = tuple(step.name for step in parts)
        count = Step(
            "count",
            most + 1,
            lambda tokens, *values: torch.stack(values).sum(0).clamp_max(most),
            names,
            "how many different numbers there are",
        )
        return self._program(name, [*parts, count], ("count", *names))


@dataclass(frozen=True)
class SetDifference(SequenceTask):
    """The numbers of a list that are not in another, which is read first.

    ``3 5 - 5 1 3 5`` removes 3 and 5 from the list behind the -: each of its positions answers
    whether its number is kept. Variables: "removed_v" for each number v, "kept_i" for each answer.

    >>> task = SetDifference(n=8, removed=2, length=4)
    >>> task.text([3, 5, 8, 5, 1, 3, 5]), task.solve(torch.tensor([[3, 5, 8, 5, 1, 3, 5]])).tolist()
    ('3 5 - 5 1 3 5', [[0, 1, 0, 0]])
    """

    name: ClassVar[str] = "set-difference"
    outputs: ClassVar[tuple[Output, ...]] = (Output("kept", 2, names=("removed", "kept")),)
    topic: ClassVar[str] = "lists"
    source: ClassVar[str] = "Weiss et al. 2021, Thinking Like Transformers (selection by equality)"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {"model.d_model": 32, "train.steps": 800, "train.lr": 3e-3},
        "paper": {"task.n": 32, "task.removed": 6, "task.length": 10, "train.steps": 4000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 100.0% by step 800, seed 0"
    }

    n: int = setting(10, "numbers, 0 to n - 1", low=2, high=256)
    removed: int = setting(4, "numbers that are removed", low=1, high=128)
    length: int = setting(5, "numbers of the list", low=1, high=128)
    _answer: ClassVar[str] = "kept"

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary((*map(str, range(self.n)), "-"))

    @property
    def n_ctx(self) -> int:
        return self.removed + 1 + self.length

    @property
    def answer_positions(self) -> range:
        return range(self.removed + 1, self.n_ctx)

    def draw(self, n: int, generator: np.random.Generator) -> Int[Tensor, "n pos"]:
        tokens = generator.integers(0, self.n, (n, self.n_ctx))
        tokens[:, self.removed] = self.n
        # half of the list from what is removed
        again = generator.integers(0, self.removed, (n, self.length))
        chosen = generator.random((n, self.length)) < 0.5
        rest = tokens[:, self.removed + 1 :]
        rest[chosen] = np.take_along_axis(tokens, again, 1)[chosen]
        return torch.from_numpy(tokens)

    def solve(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n answer"]:
        removed, rest = tokens[:, None, : self.removed], tokens[:, self.removed + 1 :, None]
        return (removed != rest).all(2).long()

    def plain(self, tokens: Sequence[int]) -> list[int]:
        gone = set(tokens[: self.removed])
        return [int(number not in gone) for number in tokens[self.removed + 1 :]]

    def true_programs(self) -> list[Program]:
        removed = [
            Step(
                f"removed_{v}",
                2,
                lambda tokens, v=v: (tokens[:, : self.removed] == v).any(1).long(),
                description=f"whether {v} is removed",
                positions=tuple(range(self.removed)),
            )
            for v in range(self.n)
        ]
        names = tuple(step.name for step in removed)
        kept = [
            Step(name, 2, partial(self._kept, i), names, f"whether number {i} is kept")
            for i, name in enumerate(self.answer_names)
        ]
        return [self._program("look up", removed + kept)]

    def _kept(self, place: int, tokens: Tensor, *removed: Tensor) -> Tensor:
        number = tokens[:, self.removed + 1 + place]
        return 1 - torch.stack(removed, 1).gather(1, number[:, None])[:, 0]
