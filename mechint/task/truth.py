"""The truth about a task's own algorithm: causal variables, symmetry, controls, chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.groups.finite import FiniteGroup
from mechint.task.batch import IGNORE, Batch


@dataclass(frozen=True)
class Variable:
    """A causal variable of the task's algorithm.

    value_of(tokens (batch, pos)) -> values (batch,) in 0 … n_values-1; label(tokens, values) ->
    targets (batch, pos, output): the task's answer when the variable is set to `values` and
    everything else follows `tokens`.

    positions: the tokens that alone determine its value, where they are fixed. parents: names of
    the variables that it is computed from. answers: the answers that can depend on it, counted from
    0; all of them when None. change(tokens, values) -> tokens (batch, pos) in which the variable
    has `values`, as little else as possible differs, and nothing else on which those answers depend
    (of an output's own variable: on which this output depends); a row for which there are none is
    returned as it is. is_example: the value is which example it is, as of prompts in a file, where
    an example drawn as an independent source is never its own base.
    """

    name: str
    n_values: int
    description: str
    value_of: Callable[[Tensor], Tensor]
    label: Callable[[Tensor, Tensor], Tensor]
    positions: tuple[int, ...] = ()
    parents: tuple[str, ...] = ()
    answers: tuple[int, ...] | None = None
    change: Callable[[Tensor, Tensor], Tensor] | None = None
    is_example: bool = False


@dataclass(frozen=True)
class Counterfactuals:
    """Pairs for interchange interventions: running `base` with the variable taken from `source`
    should give `labels`.

    base, source: Batch of n examples; labels (n, pos, output) like targets; values (n,) the
    source's value.
    """

    variable: Variable
    base: Batch
    source: Batch
    labels: Int[Tensor, "n pos output"]
    values: Int[Tensor, " n"]

    def __getitem__(self, rows: Any) -> Counterfactuals:
        base, source = self.base[rows], self.source[rows]
        return Counterfactuals(self.variable, base, source, self.labels[rows], self.values[rows])


@dataclass(frozen=True)
class Symmetry:
    """The group that acts on the value tokens: element i of `group` is token ``tokens[i]``."""

    group: FiniteGroup
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Control:
    """A task without the mechanism: `parameters` replaced, or untrained weights."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    untrained: bool = False


@dataclass(frozen=True)
class Chance:
    """Accuracy (0 … 1) and loss (nats) of the best constant answer."""

    accuracy: float
    loss: float

    @classmethod
    def of(cls, answers: Int[Tensor, "*shape"]) -> Chance:
        """Chance level of the best constant prediction: accuracy is the modal frequency, loss the
        entropy in nats.

        answers (n,), or (…, character) where a whole row is one answer. Rows with IGNORE are
        dropped.

        >>> import torch
        >>> Chance.of(torch.tensor([0, 1, 1, 1])).accuracy
        0.75
        """
        unique: Any = torch.unique  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        counts: Tensor
        if answers.dim() == 1 or answers.shape[-1] == 1:
            _, counts = unique(answers[answers != IGNORE], return_counts=True)
        else:
            rows = answers.reshape(-1, answers.shape[-1])
            _, counts = unique(rows[(rows != IGNORE).all(1)], dim=0, return_counts=True)
        shares = counts.double() / counts.sum()
        return cls(float(shares.max()), abs(float((shares * shares.log()).sum())))  # never -0
