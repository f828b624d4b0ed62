"""Pairs of examples, what interventions on a variable are measured on."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mechint.task import IGNORE, Variable


@dataclass(frozen=True)
class Pairs:
    """Pairs of examples, tokens (pair, pos) and classes (pair, output), at one answer of each.

    reads, source_reads (pair,): the position at which the answer is read; answers, source_answers:
    the targets of base and source there; labels: what the task says to the base when the variable
    is taken from the source.
    """

    base: Int[Tensor, "pair pos"]
    source: Int[Tensor, "pair pos"]
    reads: Int[Tensor, " pair"]
    source_reads: Int[Tensor, " pair"]
    answers: Int[Tensor, "pair output"]
    source_answers: Int[Tensor, "pair output"]
    labels: Int[Tensor, "pair output"]

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: Any) -> Pairs:
        return Pairs(*(getattr(self, field.name)[index] for field in fields(self)))

    @classmethod
    def cat(cls, parts: list[Pairs]) -> Pairs:
        """All pairs of `parts`, one part after the other."""
        return cls(
            *(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls))
        )

    @property
    def changed(self) -> Bool[Tensor, "pair output"]:
        """(pair, output) bool: the label differs from the base's answer."""
        return (self.labels != self.answers) & (self.labels != IGNORE)


def told_apart(variable: Variable, pairs: Pairs) -> tuple[int, int]:
    """(groups, values): how many values the variable has in `pairs`, and into how many groups the
    answers of the bases tell them apart; values of one group give one answer to every base.

    An interchange shows no more of the variable than the group: of x in ``(x + y) mod 2`` whether
    it is odd.
    """
    tokens, reads, rows = pairs.base.cpu(), pairs.reads.cpu(), torch.arange(len(pairs))
    values = variable.value_of(torch.cat([pairs.base, pairs.source]).cpu()).unique()
    labels = [
        variable.label(tokens, torch.full_like(rows, int(value)))[rows, reads] for value in values
    ]
    return len(torch.stack(labels).flatten(1).unique(dim=0)), len(values)
