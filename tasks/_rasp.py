"""Short programs of RASP, whose compiled weights are planted truths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from mechint.config import setting
from mechint.task import Output, Program, Step, Vocabulary
from mechint.tasks.sequences import SequenceTask

PROGRAMS = ("reverse", "sort", "histogram")


@dataclass(frozen=True)
class Rasp(SequenceTask):
    """A list of numbers after BOS: reversed, sorted, or how often each of them occurs.

    Every position answers: with the number that stands there afterwards, or with the count of its
    own. Number k is token k - 1. Variables: "element_i", the numbers, and "answer_i", the answers.

    >>> task = Rasp(program="histogram")
    >>> task.text([4, 0, 2, 0, 1, 0]), task.plain([4, 0, 2, 0, 1, 0])
    ('BOS 1 3 1 2 1', [3, 1, 3, 1, 3])
    """

    name: ClassVar[str] = "rasp"
    topic: ClassVar[str] = "lists"
    source: ClassVar[str] = (
        "Weiss et al. 2021, Thinking Like Transformers; Lindner et al. 2023, Tracr: Compiled "
        "Transformers as a Laboratory for Interpretability"
    )
    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 2,
        "d_model": 64,
        "n_heads": 4,
        "attention_dir": "bidirectional",
        "normalization_type": "LN",
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {"model.d_model": 32, "train.steps": 800, "train.lr": 3e-3},
        "paper": {"train.steps": 5000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 100.0% by step 800, seeds 0–1"
    }

    program: str = setting("reverse", "what is done to the list", choices=PROGRAMS)
    n: int = setting(4, "numbers, 1 to n", low=2, high=1024)
    length: int = setting(5, "numbers of a list", low=2, high=256)

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary((*(str(number) for number in range(1, self.n + 1)), "BOS"))

    @property
    def n_ctx(self) -> int:
        return 1 + self.length

    @property
    def outputs(self) -> tuple[Output, ...]:
        if self.program == "histogram":
            return (Output("count", self.length + 1),)
        return (Output("number", self.n, names=self.vocabulary.tokens[: self.n]),)

    @property
    def answer_positions(self) -> range:
        return range(1, self.n_ctx)

    def draw(self, n: int, generator: np.random.Generator) -> Int[Tensor, "n pos"]:
        tokens = torch.from_numpy(generator.integers(0, self.n, (n, self.n_ctx)))
        tokens[:, 0] = self.n
        return tokens

    def solve(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n answer"]:
        return self._results(tokens[:, 1:])

    def _results(self, numbers: Int[Tensor, "n number"]) -> Int[Tensor, "n number"]:
        if self.program == "reverse":
            return numbers.flip(1)
        if self.program == "sort":
            return numbers.sort(1).values
        counts = F.one_hot(numbers, self.n).sum(1)  # (n, number)
        return counts.gather(1, numbers)

    def plain(self, tokens: Sequence[int]) -> list[int]:
        numbers = [int(token) for token in tokens][1:]
        if self.program == "reverse":
            return numbers[::-1]
        return sorted(numbers) if self.program == "sort" else [numbers.count(x) for x in numbers]

    def true_programs(self) -> list[Program]:
        elements = [
            self.token_step(f"element_{i}", f"number {i} of the list", 1 + i, self.n)
            for i in range(self.length)
        ]
        names = tuple(step.name for step in elements)
        answers = [
            Step(
                name,
                self.outputs[0].n_classes,
                partial(self._number_at, i),
                names if self.program != "reverse" else (names[self.length - 1 - i],),
                f"what position {1 + i} answers",
            )
            for i, name in enumerate(self.answer_names)
        ]
        return [self._program(self.program, elements + answers)]

    def _number_at(self, place: int, tokens: Tensor, *numbers: Tensor) -> Tensor:
        """The answer at the position of number `place`, from the numbers that it depends on."""
        if self.program == "reverse":
            return numbers[0]
        return self._results(torch.stack(numbers, 1))[:, place]
