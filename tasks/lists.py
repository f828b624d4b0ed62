"""The largest number of a list, how many different ones there are, and a list in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
class ListTask(SequenceTask):
    """Base of tasks on lists of `length` numbers 0 … n-1, number i token i, and `marks` behind."""

    n: int = setting(64, "numbers, 0 to n - 1", low=2, high=1024)
    length: int = setting(4, "numbers in a list", low=2, high=256)

    marks: ClassVar[tuple[str, ...]] = ()
    """Tokens that are no numbers."""

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary((*map(str, range(self.n)), *self.marks))

    @property
    def n_ctx(self) -> int:
        return self.length + len(self.marks)

    def elements(self) -> list[Step]:
        """Each number of the list."""
        return [
            self.token_step(f"element_{i}", f"number {i} of the list", i, self.n)
            for i in range(self.length)
        ]

    @property
    def element_names(self) -> tuple[str, ...]:
        """Names of the variables of the list's numbers."""
        return tuple(f"element_{i}" for i in range(self.length))


@dataclass(frozen=True)
class MaxOfList(ListTask):
    """The largest number of a list, read at its last position.

    >>> task = MaxOfList(n=10, length=4)
    >>> task.text([3, 9, 1, 4]), task.solve(torch.tensor([[3, 9, 1, 4]])).tolist()
    ('3 9 1 4', [[9]])
    """

    name: ClassVar[str] = "max-of-list"
    topic: ClassVar[str] = "lists"
    source: ClassVar[str] = (
        "Gross et al. 2024, Compact Proofs of Model Performance via Mechanistic Interpretability"
    )
    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 1,
        "d_model": 32,
        "n_heads": 1,
        "attn_only": True,
        "normalization_type": None,
        "use_bias": False,
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {"task.n": 16, "train.steps": 1000, "train.lr": 5e-3},
        "paper": {"task.n": 64, "task.length": 4, "train.steps": 3000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 99.9% by step 1000, seed 0"
    }

    marker: bool = setting(False, "whether a token = follows the list, where the answer is read")
    close: float = setting(
        0.0, "share of lists whose numbers all lie within 2 of one another", low=0, high=1
    )

    @property
    def marks(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("=",) * self.marker

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("max", self.n),)

    def draw(self, n: int, generator: np.random.Generator) -> Int[Tensor, "n pos"]:
        numbers = generator.integers(0, self.n, (n, self.length))
        if self.close:
            near = numbers[:, :1] - generator.integers(0, 3, (n, self.length))
            chosen = generator.random((n, 1)) < self.close
            numbers = np.where(chosen, near.clip(0), numbers)
        ends = np.full((n, int(self.marker)), self.n)
        return torch.from_numpy(np.concatenate([numbers, ends], 1).astype(np.int64))

    def solve(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n answer"]:
        return tokens[:, : self.length].amax(1, keepdim=True)

    def plain(self, tokens: Sequence[int]) -> list[int]:
        return [sorted(tokens[: self.length])[-1]]

    def true_programs(self) -> list[Program]:
        """All numbers at once."""
        answer = Step(
            "max",
            self.n,
            lambda tokens, *numbers: torch.stack(numbers).amax(0),
            self.element_names,
            "the largest number",
            change=self._with_max,
        )
        shown = ("max", *self.element_names)
        return [self._program("maximum", [*self.elements(), answer], shown)]

    def _with_max(self, tokens: Tensor, values: Tensor) -> Tensor:
        """Lower what is larger than the value to it; else the largest number is raised."""
        changed = tokens.clone()
        numbers = tokens[:, : self.length]
        rows, largest = torch.arange(len(tokens)), numbers.argmax(1)
        changed[:, : self.length] = numbers.minimum(values[:, None])
        changed[rows, largest] = values
        return changed


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
        few = generator.integers(1, self.n + 1, (n, 1))
        order = generator.random((n, self.n)).argsort(1)
        index = generator.integers(0, few, (n, self.length))
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
class SortedList(ListTask):
    """A list, a separator, and the list in ascending order, each number read from the one before.

    Variables: "smallest_k", the number at place k of the order (from 0), and the numbers
    themselves. With `distinct`, minimal sources are lists of different numbers too; a number that
    is taken from any other list may be in the list already, and the label then has it twice.

    >>> task = SortedList(n=10, length=3)
    >>> task.text(task.completed(torch.tensor([[7, 2, 5, 10, 0, 0, 0]]))[0])
    '7 2 5 | 2 5 7'
    """

    name: ClassVar[str] = "sorted-list"
    marks: ClassVar[tuple[str, ...]] = ("|",)
    topic: ClassVar[str] = "lists"
    source: ClassVar[str] = "ARENA monthly problem, October 2023; Weiss et al. 2021, RASP"
    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 1,
        "d_model": 96,
        "n_heads": 2,
        "d_head": 48,
        "attn_only": True,
        "normalization_type": "LN",
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {"task.n": 12, "task.length": 4, "train.steps": 1200, "train.lr": 3e-3},
        "paper": {"task.n": 51, "task.length": 10, "train.steps": 15_000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 99.8–100.0% by step 1200, seeds 0–2"
    }

    n: int = setting(51, "numbers, 0 to n - 1", low=2, high=1024)
    length: int = setting(10, "numbers in a list", low=2, high=256)
    distinct: bool = setting(False, "no number occurs twice in a list")
    _answer: ClassVar[str] = "smallest"

    def __post_init__(self) -> None:
        super().__post_init__()
        enough = self.length <= self.n or not self.distinct
        self.require("length", enough, f"at most n={self.n} where no number occurs twice")

    @property
    def n_ctx(self) -> int:
        return 2 * self.length + 1

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("next", self.d_vocab, names=self.vocabulary.tokens),)

    @property
    def _random_classes(self) -> int:
        return self.n

    @property
    def answer_positions(self) -> range:
        return range(self.length, 2 * self.length)

    def draw(self, n: int, generator: np.random.Generator) -> Int[Tensor, "n pos"]:
        if self.distinct:
            numbers = generator.random((n, self.n)).argsort(1)[:, : self.length]
        else:
            numbers = generator.integers(0, self.n, (n, self.length))
        tokens = np.full((n, self.n_ctx), self.n, np.int64)
        tokens[:, : self.length] = numbers
        return self.completed(torch.from_numpy(tokens))

    def completed(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n pos"]:
        tokens = tokens.clone()
        tokens[:, self.length + 1 :] = self.solve(tokens)
        return tokens

    def solve(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n answer"]:
        return tokens[:, : self.length].sort(1).values

    def plain(self, tokens: Sequence[int]) -> list[int]:
        left, ordered = list(tokens[: self.length]), []
        while left:
            smallest = min(left)
            left.remove(smallest)
            ordered.append(smallest)
        return ordered

    def true_programs(self) -> list[Program]:
        places = [
            Step(
                name,
                self.d_vocab,
                lambda tokens, *numbers, k=k: torch.stack(numbers, 1).sort(1).values[:, k],
                self.element_names,
                f"number at place {k} of the order",
                change=partial(self._with_place, k),
            )
            for k, name in enumerate(self.answer_names)
        ]
        shown = (*self.answer_names, *self.element_names)
        return [self._program("sort", self.elements() + places, shown)]

    def elements(self) -> list[Step]:
        elements = super().elements()
        if not self.distinct:
            return elements
        return [
            replace(element, change=partial(self._with_element, i))
            for i, element in enumerate(elements)
        ]

    def _with_element(self, position: int, tokens: Tensor, values: Tensor) -> Tensor:
        """The number put at that position, where the list does not hold it already."""
        taken = (tokens[:, : self.length] == values[:, None]).any(1)
        changed = tokens.clone()
        changed[:, position] = tokens[:, position].where(taken, values)
        return self.completed(changed)

    def _with_place(self, place: int, tokens: Tensor, values: Tensor) -> Tensor:
        """The number at that place of the order replaced, where the order stays."""
        order = self.solve(tokens)
        low = order[:, place - 1] if place else torch.zeros_like(values)
        last = place + 1 == self.length
        high = torch.full_like(values, self.n - 1) if last else order[:, place + 1]
        fits = (values >= low) & (values <= high)
        if self.distinct:
            fits &= ~(tokens[:, : self.length] == values[:, None]).any(1)
        where = (tokens[:, : self.length] == order[:, place : place + 1]).int().argmax(1)
        changed = tokens.clone()
        changed[torch.arange(len(tokens)), where] = values.where(fits, order[:, place])
        return self.completed(changed)
