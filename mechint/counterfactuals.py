"""Counterfactual pairs that a model answers: what interchange interventions and activation patching
are measured on.

An intervention on a pair that the model gets wrong says nothing about its algorithm, so such pairs
are left out. At most half of the pairs leave the answer as it is: an intervention that does nothing
then scores one half, not more.

Cost: two forwards a pair drawn.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from mechint.errors import DataError, UnknownNameError
from mechint.interventions import RecordedForward, asked, select_positions
from mechint.subject import Subject
from mechint.task import IGNORE, Batch, Task, Variable

ROUNDS = 40
"""How many times the number of pairs wanted is drawn before giving up."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of examples, tokens (pair, pos) and classes (pair, output).

    reads, source_reads (pair,): the position at which each is read; answers, source_answers: the
    targets of base and source; labels: what the task says to the base when the variable is taken
    from the source.
    """

    base: Tensor
    source: Tensor
    reads: Tensor
    source_reads: Tensor
    answers: Tensor
    source_answers: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: Any) -> Pairs:
        return Pairs(*(getattr(self, field.name)[index] for field in fields(self)))

    @classmethod
    def cat(cls, parts: list[Pairs]) -> Pairs:
        return cls(
            *(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls))
        )

    @property
    def changed(self) -> Tensor:
        """(pair, output) bool: the label differs from the base's answer."""
        return (self.labels != self.answers) & (self.labels != IGNORE)


def choose_variable(task: Task, name: str | None) -> Variable:
    """The causal variable `name` of `task`, its first one when None; UnknownNameError for a name it
    lacks.
    """
    if name is None:
        return next(iter(task.variables.values()))
    if name not in task.variables:
        raise UnknownNameError.of(f"variable of {task.name}", name, task.variables)
    return task.variables[name]


def draw(
    subject: Subject,
    variable: Variable,
    n: int,
    seed: int,
    *,
    only_correct: bool = True,
    minimal: bool = False,
) -> Pairs:
    """`n` different pairs for an interchange of `variable`, in random order.

    Args:
        only_correct: only pairs whose base and source the model answers correctly in every output.
        minimal: only pairs whose answer changes, read at one position, and, where the variable has
            fixed positions, whose source differs from the base at these alone; the label then is
            the source's own answer.

    Raises:
        DataError: fewer than `n` such pairs among ``ROUNDS * n`` drawn.
    """
    assert subject.task is not None
    kept: list[Pairs] = []
    room = {True: n, False: 0 if minimal else n // 2}
    seen: set[tuple[int, ...]] = set()
    for part in range(ROUNDS):
        pairs = _pairs(subject.task, variable, n, ROUNDS * seed + part, minimal, subject.device)
        keep = (
            answered(subject, pairs)
            if only_correct
            else torch.ones(len(pairs), dtype=torch.bool, device=subject.device)
        )
        keep &= (pairs.reads == pairs.source_reads) | (not minimal)
        kept.append(pairs[_choose(pairs, keep, room, seen)])
        if sum(map(len, kept)) == n:
            return Pairs.cat(kept)[
                torch.randperm(n, generator=torch.Generator().manual_seed(seed)).to(subject.device)
            ]
    kind = "pairs that the model answers correctly" if only_correct else "different pairs"
    raise DataError(
        f"{subject.describe()}: {sum(map(len, kept))} {kind} for variable {variable.name} "
        f"among {ROUNDS * n} drawn, expected {n}; "
        "ask for fewer pairs, train the model further, or set only_correct=false"
    )


def _choose(
    pairs: Pairs, keep: Tensor, room: dict[bool, int], seen: set[tuple[int, ...]]
) -> list[int]:
    """Indices of new pairs among those to `keep`; `room` says how many more there may be, in all
    and of unchanged ones.
    """
    chosen = []
    changes = pairs.changed.any(-1).tolist()
    keys = torch.cat((pairs.base, pairs.source), 1).tolist()
    for index in keep.nonzero().flatten().tolist():
        key = tuple(keys[index])
        if room[True] and (changes[index] or room[False]) and key not in seen:
            seen.add(key)
            chosen.append(index)
            room[True] -= 1
            room[False] -= not changes[index]
    return chosen


def _pairs(
    task: Task, variable: Variable, n: int, seed: int, minimal: bool, device: torch.device
) -> Pairs:
    drawn = task.counterfactuals(variable.name, n, seed)
    base, source, labels = drawn.base, drawn.source, drawn.labels
    if minimal:
        source, labels = _minimal(base, source, labels, variable)
    (reads, answers), (source_reads, source_answers) = asked(base), asked(source)
    parts = (
        base.tokens,
        source.tokens,
        reads,
        source_reads,
        answers,
        source_answers,
        select_positions(labels, reads),
    )
    return Pairs(*(part.to(device) for part in parts))


def _minimal(
    base: Batch, source: Batch, labels: Tensor, variable: Variable
) -> tuple[Batch, Tensor]:
    """The source that differs from the base at the variable's positions alone; as it is where these
    vary.
    """
    if not variable.positions:
        return source, source.targets
    tokens, where = base.tokens.clone(), list(variable.positions)
    tokens[:, where] = source.tokens[:, where]
    return dataclasses.replace(base, tokens=tokens, targets=labels), labels


def answered(subject: Subject, pairs: Pairs) -> Tensor:
    """(pair,) bool: base and source are both answered correctly in every output that is read."""
    result = torch.ones(len(pairs), dtype=torch.bool, device=subject.device)
    for tokens, reads, targets in (
        (pairs.base, pairs.reads, pairs.answers),
        (pairs.source, pairs.source_reads, pairs.source_answers),
    ):
        for rows in torch.arange(len(pairs), device=subject.device).split(subject.chunk):
            logits = RecordedForward(subject.model, tokens[rows], reads[rows]).logits
            result[rows] &= (
                subject.correct(logits, targets[rows]) | (targets[rows] == IGNORE)
            ).all(-1)
    return result
