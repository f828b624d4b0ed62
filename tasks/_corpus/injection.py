"""A token task written into a language: its tokens drawn from the language's vocabulary, its answer
as the next token.

Source: "Why Larger Models Learn More", Sec. 4.1 and App. B.3: the instance and an end-of-document
token stand at the beginning of a text; task tokens (and labels with no token of their own) are
words drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mechint.errors import ParameterError
from mechint.task import (
    IGNORE,
    Batch,
    FiniteTask,
    GeneratedTask,
    Symmetry,
    TargetKind,
    Task,
    Variable,
    rng,
)


@dataclass(frozen=True, eq=False)
class Injection:
    """`task` over the words of a language of `n_words` tokens, whose token `eod` ends a document.

    Class c of the answer is written with the task's own token for it where there is one (an answer
    in the group that acts on the tokens, or over the whole vocabulary), else with a word of its
    own.
    """

    task: Task
    n_words: int
    eod: int
    seed: int

    def __post_init__(self) -> None:
        if len(self.task.outputs) != 1 or not len(self.task.vocabulary):
            raise ParameterError(
                f"corpus: inject={self.task.name!r}: expected a token task with one output; "
                f"it has {len(self.task.outputs)} outputs"
            )
        if len(self._needed) > self.n_words:
            raise ParameterError(
                f"corpus: inject={self.task.name!r}: needs {len(self._needed)} words; the "
                f"background has {self.n_words}: raise vocab_size"
            )

    @property
    def _needed(self) -> range:
        own_labels = self._class_tokens is None
        return range(self.task.d_vocab + own_labels * self.task.outputs[0].n_classes)

    @cached_property
    def _class_tokens(self) -> Tensor | None:
        """(class,) the task's token that stands for each class, None where classes need words of
        their own.
        """
        output, symmetry = self.task.outputs[0], self.task.symmetry
        if (
            output.group is not None
            and symmetry is not None
            and len(symmetry.tokens) == output.n_classes
        ):
            return torch.tensor(symmetry.tokens)
        if output.n_classes == self.task.d_vocab:
            return torch.arange(output.n_classes)
        return None

    @cached_property
    def _drawn(self) -> Tensor:
        chosen = rng("injection", self.n_words, self.seed).choice(
            self.n_words, len(self._needed), replace=False
        )
        return torch.from_numpy(chosen)

    @property
    def token_words(self) -> Int[Tensor, " token"]:
        """(task token,) the language's token for each."""
        return self._drawn[: self.task.d_vocab]

    @property
    def class_words(self) -> Int[Tensor, " answer"]:
        """(class,) the language's token for each class of the answer."""
        return (
            self._drawn[self.task.d_vocab :]
            if self._class_tokens is None
            else self.token_words[self._class_tokens]
        )

    @cached_property
    def _parts(self) -> dict[str, Tensor]:
        """Finite tasks: indices of the examples of each split; an empty validation part is replaced
        by the test.
        """
        assert isinstance(self.task, FiniteTask)
        parts = self.task.split(self.seed)
        return parts if len(parts["validation"]) else {**parts, "validation": parts["test"]}

    def examples(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        """`n` examples of the task itself, never a held-out one in "train"."""
        if isinstance(self.task, GeneratedTask):
            return self.task.generate(n, split, generator)
        assert isinstance(self.task, FiniteTask)
        part = self._parts[split]
        if not len(part):
            raise ParameterError(
                f"corpus: inject={self.task.name!r}: its {split} part is empty; change its "
                "fractions in inject_parameters"
            )
        return self.task.examples()[part[torch.from_numpy(generator.integers(0, len(part), n))]]

    def targets(self, targets: Int[Tensor, "batch pos output"]) -> Int[Tensor, "batch pos output"]:
        """Targets (batch, pos, 1) in classes as targets in words."""
        return torch.where(targets == IGNORE, IGNORE, self.class_words[targets.clamp_min(0)])

    def prompts(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        """`n` examples alone, in words: what is asked, with the answers as the only targets."""
        return self._in_words(self.examples(n, split, generator))

    def batch_of(self, tokens: Int[Tensor, "batch pos"]) -> Batch:
        """Prompts given in words (batch, pos), labeled."""
        return self._in_words(self.task.batch_of(self.own_tokens(tokens)))

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        """Targets (pos, 1) of one prompt in words, by the task's own plainest computation."""
        words, classes = self.token_words.tolist(), self.class_words.tolist()
        solved = self.task.brute_force([words.index(word) for word in tokens])
        return [[IGNORE if row[0] == IGNORE else classes[row[0]]] for row in solved]

    def _in_words(self, batch: Batch) -> Batch:
        return Batch(
            self.token_words[batch.tokens],
            self.targets(batch.targets),
            lengths=batch.lengths,
            kinds=batch.kinds,
            masks={"task": torch.ones_like(batch.tokens).bool()},
        )

    def texts(
        self, n: int, split: str, generator: np.random.Generator
    ) -> tuple[Int[Tensor, "n pos"], Int[Tensor, " n"], Bool[Tensor, "n pos"]]:
        """`n` examples as text: words (n, pos), each with its answers written in and an end of
        document; lengths (n,) without it; (n, pos) bool where an answer is the next word.

        Raises:
            ParameterError: an answer is not the word that comes next.
        """
        prompts = self.prompts(n, split, generator)
        tokens, answers = prompts.tokens, prompts.targets[..., 0]
        width = tokens.shape[1]
        lengths = torch.full((n,), width) if prompts.lengths is None else prompts.lengths
        following = torch.full((n, width + 1), IGNORE)
        following[:, 1:] = answers
        written = torch.cat([tokens, torch.full((n, 1), self.eod)], 1)
        inside = torch.arange(width + 1) < lengths.unsqueeze(1)
        if bool(((following != IGNORE) & inside & (following != written)).any()):
            raise ParameterError(
                f"corpus: inject={self.task.name!r}: its answers are read inside the input; "
                "expected a task whose answer is the next token"
            )
        written = torch.where(following == IGNORE, written, following)
        ends = (
            torch.where(following == IGNORE, 0, torch.arange(1, width + 2)).amax(1).maximum(lengths)
        )
        written = torch.cat([written, torch.full((n, 1), self.eod)], 1)
        asked = answers != IGNORE
        if prompts.kinds is not None:
            asked &= prompts.kinds == TargetKind.ANSWER
        asked = torch.cat([asked, torch.zeros(n, 2, dtype=torch.bool)], 1)
        return written.scatter(1, ends.unsqueeze(1), self.eod), ends, asked

    # --- the task's truth, in words ---------------------------------------------------------------
    @cached_property
    def _back(self) -> Tensor:
        """(word,) the task's token for it; 0 for words that are none."""
        back = torch.zeros(self.eod + 1, dtype=torch.int64)
        back[self.token_words] = torch.arange(self.task.d_vocab)
        return back

    def own_tokens(self, tokens: Tensor) -> Tensor:
        """Prompts in words as the task's own tokens."""
        return self._back[tokens]

    def variable(self, variable: Variable) -> Variable:
        """The task's causal variable, read from and labeled in words; for `prompts`."""

        def label(tokens: Tensor, values: Tensor) -> Tensor:
            return self.targets(variable.label(self.own_tokens(tokens), values))

        own = variable.change

        def change(tokens: Tensor, values: Tensor) -> Tensor:
            assert own is not None
            return self.token_words[own(self.own_tokens(tokens), values)]

        return replace(
            variable,
            value_of=lambda tokens: variable.value_of(self.own_tokens(tokens)),
            label=label,
            change=None if own is None else change,
        )

    @property
    def symmetry(self) -> Symmetry | None:
        own = self.task.symmetry
        return own and Symmetry(own.group, tuple(self.token_words[list(own.tokens)].tolist()))
