"""Repeated tokens: what an induction head continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from mechint.config import LLAMA, setting
from mechint.task import Batch, Output, Program, Step, Vocabulary
from mechint.tasks.sequences import SequenceTask

SORTED = 4096
"""Largest vocabulary of which every piece is the start of a random order of all tokens; a larger
one would take gigabytes, and its pieces are drawn one by one.
"""


@dataclass(frozen=True)
class RepeatedTokens(SequenceTask):
    """A random piece that occurs twice or more often: continue it from the second time on.

    The copies stand side by side, or, in a longer context, at random places among random tokens:
    side by side, a head that looks back by a fixed distance is enough.
    Answers: every token of a further copy but its first, read from the token before it. Variables:
    "token_k", the token at place k of the piece.

    >>> task = RepeatedTokens(n=5, length=3, held_out=False)
    >>> task.brute_force([4, 0, 2, 4, 0, 2])
    [[-1], [-1], [-1], [0], [2], [-1]]
    """

    name: ClassVar[str] = "repeated-tokens"
    topic: ClassVar[str] = "lists"
    source: ClassVar[str] = "Olsson et al. 2022, In-context Learning and Induction Heads"
    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 2,
        "d_model": 48,
        "n_heads": 4,
        "attn_only": True,
        "normalization_type": None,
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {"task.length": 8, "task.context": 32, "train.steps": 3000, "train.lr": 3e-3},
        "llama": {
            **{f"model.{name}": value for name, value in LLAMA.items()},
            "task.length": 8,
            "task.context": 32,
            "train.steps": 1500,
            "train.lr": 3e-3,
        },
        "paper": {
            "task.n": 128,
            "task.length": 16,
            "task.copies": 3,
            "task.context": 85,
            "task.distinct": False,
            "train.steps": 20_000,
        },
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 96.3% by step 3000, seed 0"
    }

    n: int = setting(20, "tokens", low=2, high=65_536)
    length: int = setting(10, "tokens of the piece", low=2, high=1024)
    copies: int = setting(2, "how often the piece occurs", low=2, high=16)
    context: int | None = setting(
        None, "tokens of a sequence; the copies and no others when none", low=4, high=16_384
    )
    distinct: bool = setting(True, "no token occurs twice in the piece")
    held_out: bool = setting(
        True, "whether validation and test sequences are kept out of training, by their hash"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        enough = self.length <= self.n or not self.distinct
        self.require("length", enough, f"at most n={self.n}: tokens are drawn without replacement")
        repeats = self.copies * self.length
        self.require("context", repeats <= self.n_ctx, f"at least copies × length = {repeats}")

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(tuple(map(str, range(self.n))))

    @property
    def n_ctx(self) -> int:
        return self.copies * self.length if self.context is None else self.context

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("next", self.n),)

    @property
    def adjacent(self) -> bool:
        """True if the copies fill the sequence, so that their places are fixed."""
        return self.n_ctx == self.copies * self.length

    @property
    def n_answers(self) -> int:
        return (self.copies - 1) * (self.length - 1)

    @property
    def answer_positions(self) -> list[int]:
        """The positions at which the answers are read, copies side by side."""
        return [
            copy * self.length + k for copy in range(1, self.copies) for k in range(self.length - 1)
        ]

    @property
    def answer_names(self) -> tuple[str, ...]:
        """Copy (from 1) and place in it of the token that is asked for."""
        return tuple(
            f"copy {copy} token {k + 1}"
            for copy in range(1, self.copies)
            for k in range(self.length - 1)
        )

    # --- drawing ----------------------------------------------------------------------------------
    def generate(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        if self.held_out:
            return super().generate(n, split, generator)
        return self.batch_of(self.draw(n, generator))

    def draw(self, n: int, generator: np.random.Generator) -> Int[Tensor, "n pos"]:
        if self.distinct and self.n > SORTED:
            drawn = (generator.choice(self.n, self.length, replace=False) for _ in range(n))
            piece = np.stack(list(drawn))
        elif self.distinct:
            piece = generator.random((n, self.n)).argsort(1)[:, : self.length]
        else:
            piece = generator.integers(0, self.n, (n, self.length))
        if self.adjacent:
            return torch.from_numpy(np.tile(piece, (1, self.copies)))
        tokens = generator.integers(0, self.n, (n, self.n_ctx))
        free = self.n_ctx - self.copies * self.length
        gaps = np.sort(generator.integers(0, free + 1, (n, self.copies)), 1)
        starts = gaps + self.length * np.arange(self.copies)  # (n, copy)
        for copy in range(self.copies):
            index = starts[:, copy, None] + np.arange(self.length)
            np.put_along_axis(tokens, index, piece, 1)
        return torch.from_numpy(tokens)

    # --- where the copies stand -------------------------------------------------------------------
    def starts(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n copy"]:
        """First position of each copy: of the first piece that occurs `copies` times without
        overlap.
        """
        if self.adjacent:
            fixed = torch.arange(0, self.n_ctx, self.length, device=tokens.device)
            return fixed.expand(len(tokens), -1)
        windows = tokens.unfold(1, self.length, 1)  # (n, start, length)
        codes = torch.zeros_like(windows[..., 0])
        for k in range(self.length):
            codes = codes * 1_000_003 + windows[..., k] + 1
        starts = torch.zeros(len(tokens), self.copies, dtype=torch.int64, device=tokens.device)
        open_rows = torch.ones(len(tokens), dtype=torch.bool, device=tokens.device)
        for first in range(codes.shape[1]):
            if not open_rows.any():
                break
            chain, whole = self._chain(codes, first)
            hit = open_rows & whole
            starts[hit] = chain[hit]
            open_rows &= ~hit
        return starts

    def _chain(self, codes: Tensor, first: int) -> tuple[Tensor, Tensor]:
        """(n, copy) the window `first` and its next occurrences without overlap; (n,) whether there
        are enough.
        """
        same = codes == codes[:, first : first + 1]
        place = torch.full_like(codes[:, 0], first)
        chain, whole = [place], torch.ones_like(same[:, 0])
        index = torch.arange(codes.shape[1], device=codes.device)
        for _ in range(1, self.copies):
            later = same & (index >= place[:, None] + self.length)
            whole = whole & later.any(1)
            place = later.int().argmax(1)
            chain.append(place)
        return torch.stack(chain, 1), whole

    def _places(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(n, answer) where the answers are read, and (n, answer) what is right there."""
        starts = self.starts(tokens)[:, 1:]
        inside = torch.arange(self.length - 1, device=tokens.device)
        read = (starts[:, :, None] + inside).flatten(1)
        return read, tokens.gather(1, read + 1)

    def solve(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n answer"]:
        return self._places(tokens)[1]

    def batch_of(self, tokens: Int[Tensor, "n pos"]) -> Batch:
        answers = self.solve(tokens) if self.labels == "true" else self._random(tokens)
        return Batch(tokens, self._placed(tokens, answers))

    def _placed(self, tokens: Tensor, answers: Tensor) -> Tensor:
        """Targets (n, pos, 1) of answers (n, answer) at the places that `tokens` has them."""
        targets = torch.full((*tokens.shape, 1), -1, device=tokens.device)
        return targets.scatter(1, self._places(tokens)[0][..., None], answers[..., None])

    def plain(self, tokens: Sequence[int]) -> list[int]:
        return [tokens[position + 1] for position in self._plain_positions(tokens)]

    def _plain_positions(self, tokens: Sequence[int]) -> list[int]:
        """The positions at which the answers to one example are read, by trying every piece in
        turn.
        """
        tokens = list(tokens)
        for first in range(len(tokens)):
            piece, starts, place = tokens[first : first + self.length], [first], first + self.length
            while place + self.length <= len(tokens) and len(starts) < self.copies:
                if tokens[place : place + self.length] == piece:
                    starts.append(place)
                    place += self.length
                else:
                    place += 1
            if len(starts) == self.copies:
                return [start + k for start in starts[1:] for k in range(self.length - 1)]
        raise AssertionError("no piece is repeated")

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        if self.adjacent:
            return super().brute_force(tokens)
        answers = [row[0] for row in super().brute_force(tokens) if row[0] != -1]
        targets = [[-1] for _ in tokens]
        for position, answer in zip(self._plain_positions(tokens), answers, strict=True):
            targets[position] = [answer]
        return targets

    # --- the algorithm ----------------------------------------------------------------------------
    def true_programs(self) -> list[Program]:
        """Each further copy shows the tokens of the piece again."""
        tokens = [self._token(k) for k in range(1, self.length)]
        answers = [
            Step(
                name,
                self.n,
                lambda tokens, token: token,
                (tokens[k % (self.length - 1)].name,),
                name,
            )
            for k, name in enumerate(self.answer_names)
        ]
        return [self._program("copy", tokens + answers, [step.name for step in tokens])]

    def _token(self, place: int) -> Step:
        """The token at a place of the piece."""

        def read(tokens: Tensor) -> Tensor:
            return tokens.gather(1, self.starts(tokens)[:, :1] + place)[:, 0]

        return Step(
            f"token_{place}",
            self.n,
            read,
            description=f"token {place} of the piece",
            positions=(place,) if self.adjacent else (),
            change=partial(self._with_token, place),
        )

    def _with_token(self, place: int, tokens: Tensor, values: Tensor) -> Tensor:
        """The token put at that place of every copy; what stood there goes where the token was, if
        no token is to occur twice.
        """
        starts = self.starts(tokens)
        piece = tokens.gather(1, starts[:, :1] + torch.arange(self.length, device=tokens.device))
        new = piece.clone()
        if self.distinct:
            new = torch.where(piece == values[:, None], piece[:, place : place + 1], new)
        new[:, place] = values
        changed = tokens.clone()
        for copy in range(self.copies):
            index = starts[:, copy, None] + torch.arange(self.length, device=tokens.device)
            changed.scatter_(1, index, new)
        return changed
