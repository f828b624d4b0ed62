"""Formal languages of finite automata: the seven of Tomita, and brackets of bounded depth."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from mechint.config import setting
from mechint.task import Output, Program, Step, Vocabulary
from mechint.tasks.sequences import SequenceTask

Table = tuple[tuple[int, ...], ...]
TOMITA: Mapping[str, tuple[Table, tuple[int, ...]]] = {
    # state → (state after 0, state after 1); the accepting states; state 0 is the first
    "tomita-1": (((1, 0), (1, 1)), (0,)),
    "tomita-2": (((2, 1), (0, 2), (2, 2)), (0,)),
    "tomita-3": (((0, 1), (2, 0), (3, 4), (2, 1), (4, 4)), (0, 1, 3)),
    "tomita-4": (((1, 0), (2, 0), (3, 0), (3, 3)), (0, 1, 2)),
    "tomita-5": (((1, 2), (0, 3), (3, 0), (2, 1)), (0,)),
    "tomita-6": (((2, 1), (0, 2), (1, 0)), (0,)),
    "tomita-7": (((0, 1), (2, 1), (2, 3), (4, 3), (4, 4)), (0, 1, 2, 3)),
}
"""Tomita 1982: 1*; (10)*; no odd run of 0s after an odd run of 1s; no 000; evenly many of both;
as many 0s as 1s modulo 3; 0*1*0*1*."""

DYCK = tuple(f"dyck-{k}" for k in (1, 2, 3, 4))
PAIRS = ("()", "[]", "{}", "<>")


@dataclass(frozen=True)
class FormalLanguage(SequenceTask):
    """Membership of each prefix of a string in a formal language: Tomita 1 to 7, or Dyck-k,
    balanced brackets of k kinds at most `depth` deep.

    Variables: "state_i", the state of the automaton after symbol i. Of Dyck-k a state is the stack
    of open brackets, and the last state is that of strings that cannot be completed. The first
    symbols of a string, 0 to all of them, are such that it can be completed; the others are
    uniformly random.

    >>> task = FormalLanguage(language="tomita-2", length=6)
    >>> task.solve(torch.tensor([task.tokens_of("101100")])).tolist()
    [[0, 1, 0, 0, 0, 0]]
    """

    name: ClassVar[str] = "formal-language"
    outputs: ClassVar[tuple[Output, ...]] = (Output("accepted", 2, names=("no", "yes")),)
    topic: ClassVar[str] = "languages"
    source: ClassVar[str] = (
        "Tomita 1982; Weiss et al. 2018, Extracting Automata from Recurrent Neural Networks; "
        "Hewitt et al. 2020, RNNs can generate bounded hierarchical languages"
    )
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {"model.d_model": 32, "train.steps": 1000, "train.lr": 3e-3},
        "paper": {"task.length": 40, "train.steps": 10_000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {}

    language: str = setting("tomita-5", "which language", choices=(*TOMITA, *DYCK))
    length: int = setting(10, "symbols of a string", low=2, high=256)
    depth: int = setting(3, "open brackets at most, of Dyck-k", low=1, high=5)
    _answer: ClassVar[str] = "accepted"

    @property
    def symbols(self) -> str:
        """The alphabet."""
        if self.language in TOMITA:
            return "01"
        return "".join(PAIRS[: int(self.language[-1])])

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(tuple(self.symbols), separator="")

    @property
    def n_ctx(self) -> int:
        return self.length

    @property
    def answer_positions(self) -> range:
        return range(self.length)

    # --- the automaton ----------------------------------------------------------------------------
    @cached_property
    def automaton(self) -> tuple[Int[Tensor, "state symbol"], Int[Tensor, " state"]]:
        """State and symbol → next state; whether each state accepts. The first state is 0."""
        if self.language in TOMITA:
            table, accepting = TOMITA[self.language]
            return torch.tensor(table), torch.tensor(
                [int(s in accepting) for s in range(len(table))]
            )
        return self._dyck()

    def _dyck(self) -> tuple[Tensor, Tensor]:
        kinds = range(len(self.symbols) // 2)
        stacks = [
            stack
            for height in range(self.depth + 1)
            for stack in itertools.product(kinds, repeat=height)
        ]
        index = {stack: state for state, stack in enumerate(stacks)}
        failed = len(stacks)
        table = torch.full((failed + 1, len(self.symbols)), failed)
        for stack, state in index.items():
            for kind in kinds:
                table[state, 2 * kind] = index.get((*stack, kind), failed)
                if stack and stack[-1] == kind:
                    table[state, 2 * kind + 1] = index[stack[:-1]]
        accepts = torch.zeros(failed + 1, dtype=torch.int64)
        accepts[0] = 1
        return table, accepts

    @cached_property
    def alive(self) -> Int[Tensor, " state"]:
        """For each state, whether an accepting state can be reached from it (int64)."""
        table, alive = self.automaton
        for _ in range(len(table)):
            alive = alive | alive[table].amax(1)
        return alive

    def states(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n pos"]:
        """The state after each symbol."""
        table = self.automaton[0].to(tokens.device)
        state, found = torch.zeros_like(tokens[:, 0]), []
        for i in range(tokens.shape[1]):
            state = table[state, tokens[:, i]]
            found.append(state)
        return torch.stack(found, 1)

    def draw(self, n: int, generator: np.random.Generator) -> Int[Tensor, "n pos"]:
        table, alive = self.automaton[0].numpy(), self.alive.numpy()
        tokens = generator.integers(0, len(self.symbols), (n, self.length))
        completable = generator.integers(0, self.length + 1, (n, 1))
        state = np.zeros(n, np.int64)
        for i in range(self.length):
            weight = generator.random((n, len(self.symbols))) * (0.01 + alive[table[state]])
            tokens[:, i] = np.where(i < completable[:, 0], weight.argmax(1), tokens[:, i])
            state = table[state, tokens[:, i]]
        return torch.from_numpy(tokens)

    def solve(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n answer"]:
        return self.automaton[1].to(tokens.device)[self.states(tokens)]

    def plain(self, tokens: Sequence[int]) -> list[int]:
        text = "".join(self.symbols[token] for token in tokens)
        return [int(self._accepts(text[: i + 1])) for i in range(len(text))]

    def _accepts(self, text: str) -> bool:
        """By the definition of the language, without the automaton."""
        if self.language in DYCK:
            return self._is_balanced(text)
        zeros, ones = text.count("0"), text.count("1")
        match self.language[-1]:
            case "3":
                runs = [(symbol, len(list(run))) for symbol, run in itertools.groupby(text)]
                return not any(
                    one == "1" and a % 2 and b % 2 for (one, a), (_, b) in itertools.pairwise(runs)
                )
            case "4":
                return "000" not in text
            case "5":
                return zeros % 2 == ones % 2 == 0
            case "6":
                return (zeros - ones) % 3 == 0
            case number:
                pattern = {"1": "1*", "2": "(10)*", "7": "0*1*0*1*"}[number]
                return re.fullmatch(pattern, text) is not None

    def _is_balanced(self, text: str) -> bool:
        """By a stack of characters."""
        stack: list[str] = []
        for symbol in text:
            closes = next((pair[0] for pair in PAIRS if pair[1] == symbol), None)
            if closes is None:
                stack.append(symbol)
            elif not stack or stack.pop() != closes:
                return False
            if len(stack) > self.depth:
                return False
        return not stack

    # --- programs ---------------------------------------------------------------------------------
    def true_programs(self) -> list[Program]:
        states = [
            Step(
                f"state_{i}",
                len(self.automaton[0]),
                partial(self._after, i),
                (f"state_{i - 1}",) if i else (),
                f"state after symbol {i}",
                change=partial(self._with_state, i),
            )
            for i in range(self.length)
        ]
        answers = [
            Step(
                name,
                2,
                lambda tokens, state: self.automaton[1].to(tokens.device)[state],
                (f"state_{i}",),
                f"whether the first {i + 1} symbols are in the language",
            )
            for i, name in enumerate(self.answer_names)
        ]
        shown = [step.name for step in (*reversed(states), *reversed(answers))]
        return [self._program("automaton", states + answers, shown)]

    def _after(self, place: int, tokens: Tensor, *before: Tensor) -> Tensor:
        state = before[0] if before else torch.zeros_like(tokens[:, 0])
        return self.automaton[0].to(tokens.device)[state, tokens[:, place]]

    def _with_state(self, place: int, tokens: Tensor, values: Tensor) -> Tensor:
        """The symbol at `place` replaced by one that leads to the state, where there is one."""
        before = torch.zeros_like(values)
        if place:
            before = self.states(tokens[:, :place])[:, -1]
        hit = self.automaton[0].to(tokens.device)[before] == values[:, None]  # (n, symbol)
        changed = tokens.clone()
        changed[:, place] = hit.int().argmax(1).where(hit.any(1), tokens[:, place])
        return changed
