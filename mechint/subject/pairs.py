"""Pairs of examples, what interventions on a variable are measured on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.models.foreign.untouched import evaluating
from mechint.task import IGNORE, Task, Variable, logits_of
from mechint.task.batch import own_positions


@dataclass(frozen=True)
class Pairs:
    """Pairs of examples, tokens (pair, pos) and classes (pair, output), at one answer of each.

    reads, source_reads (pair,): the position at which the answer is read; answers, source_answers:
    the targets of base and source there; labels: what the task says to the base when the variable
    is taken from the source; lengths (pair,): of the bases, where examples are padded, else None.
    """

    base: Int[Tensor, "pair pos"]
    source: Int[Tensor, "pair pos"]
    reads: Int[Tensor, " pair"]
    source_reads: Int[Tensor, " pair"]
    answers: Int[Tensor, "pair output"]
    source_answers: Int[Tensor, "pair output"]
    labels: Int[Tensor, "pair output"]
    lengths: Int[Tensor, " pair"] | None = None

    def __len__(self) -> int:
        return len(self.base)

    def _map(self, function: Callable[[Tensor], Tensor]) -> Pairs:
        every = (getattr(self, field.name) for field in fields(self))
        members: list[Any] = [None if member is None else function(member) for member in every]
        return Pairs(*members)

    def __getitem__(self, index: Any) -> Pairs:
        return self._map(lambda tensor: tensor[index])

    def to(self, device: torch.device | str) -> Pairs:
        """The pairs on another device."""
        return self._map(lambda tensor: tensor.to(device))

    @classmethod
    def cat(cls, parts: list[Pairs]) -> Pairs:
        """All pairs of `parts`, one part after the other; all of them have lengths, or none."""
        every = ([getattr(part, field.name) for part in parts] for field in fields(cls))
        members: list[Any] = [
            None if several[0] is None else torch.cat(several) for several in every
        ]
        return cls(*members)

    @property
    def own_positions(self) -> Bool[Tensor, "pair pos"] | None:
        """(pair, pos) True at the positions that each base has; None where none is padded."""
        return own_positions(self.lengths, self.base.shape[1])

    def made_of(self, inputs: Int[Tensor, "n pos"]) -> Bool[Tensor, " pair"]:
        """(pair,) bool: base and source are both among `inputs`."""
        known = {tuple(row) for row in inputs.tolist()}
        both = zip(self.base.tolist(), self.source.tolist(), strict=True)
        both_known = [tuple(base) in known and tuple(source) in known for base, source in both]
        return torch.tensor(both_known, dtype=torch.bool, device=self.base.device)

    @property
    def examples(self) -> Int[Tensor, " pair"]:
        """(pair,) which of the different bases each pair has, numbered as they come: several pairs
        have one where they are of several of its answers, and then they are not independent.
        """
        known: dict[tuple[int, ...], int] = {}
        numbers = [known.setdefault(tuple(row), len(known)) for row in self.base.tolist()]
        return torch.tensor(numbers, dtype=torch.int64, device=self.base.device)

    @property
    def n_examples(self) -> int:
        """The number of different bases of the pairs."""
        return len(self.base.unique(dim=0))

    @property
    def changed(self) -> Bool[Tensor, "pair output"]:
        """(pair, output) bool: the label differs from the base's answer."""
        return (self.labels != self.answers) & (self.labels != IGNORE)


def logit_difference(
    task: Task, logits: Float[Tensor, "*site pair d_vocab_out"], pairs: Pairs
) -> Float[Tensor, "*site pair"]:
    """(..., pair) logit of the counterfactual label minus logit of the base's answer, mean over the
    outputs that change.
    """
    total, changed = torch.zeros(()), pairs.changed
    for output, columns in enumerate(task.output_slices.values()):
        both = torch.stack((pairs.answers[:, output], pairs.labels[:, output]), 1)
        difference = logits_of(task, logits[..., columns], both).diff(dim=-1)[..., 0]
        total = total + difference * changed[:, output]
    return total / changed.sum(-1).clamp_min(1)


def differences(
    model: Any, task: Task, pairs: Pairs
) -> tuple[Float[Tensor, " pair"], Float[Tensor, "pair d_vocab_out"]]:
    """`logit_difference` of the model on the bases, answers of several tokens in whole; and its
    logits there.
    """
    parts, index = task.spelled(pairs)
    with torch.no_grad(), evaluating(model):
        every = model(parts.base)
    logits = every[torch.arange(len(parts), device=parts.reads.device), parts.reads]
    each = logit_difference(task, logits, parts)
    return each.new_zeros(len(pairs)).index_add(0, index, each), logits[: len(pairs)]


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
