"""The truth about a task's own algorithm: causal variables, programs that compute them, symmetry,
controls, chance.

    program.run(tokens, {"carry_0": values})

computes every variable of the examples, with "carry_0" set by hand and all that follows from it
recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.errors import ParameterError, UnknownNameError
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
    an example drawn as an independent source is never its own base. names: of its values, where
    they are no numbers.
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
    names: tuple[str, ...] = ()


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


# --- causal programs: named variables computed one after the other, with interventions ------------
Given = Mapping[str, Tensor | int]
"""Variable → (batch,) values, or one value for all examples."""


@dataclass(frozen=True)
class Step:
    """One variable of a program, with values 0 … n_values-1.

    compute(tokens (batch, pos), *values of `parents` (batch,)) -> (batch,); a count of several
    things is one variable, (batch, thing). positions: the tokens that alone determine it, where
    they are fixed. change(tokens, values) -> tokens: as in `Variable`.
    """

    name: str
    n_values: int
    compute: Callable[..., Tensor]
    parents: tuple[str, ...] = ()
    description: str = ""
    positions: tuple[int, ...] = ()
    change: Callable[[Tensor, Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Program:
    """An algorithm as a causal model: `steps` in an order in which parents come first.

    answers: (answer, output) → name of the step that is this answer of the task, None where it has
    none. shown: the steps that probes are offered as causal variables, in that order; all in the
    order of `steps` when empty. ParameterError or UnknownNameError where steps cannot be followed.

    >>> total = Step("total", 19, lambda tokens: tokens.sum(1))
    >>> carry = Step("carry", 2, lambda tokens, total: total // 10, ("total",))
    >>> program = Program("addition", (total, carry), (("carry",),))
    >>> program.run(torch.tensor([[3, 4]]))["carry"].tolist()
    [0]
    >>> program.run(torch.tensor([[3, 4]]), {"total": 12})["carry"].tolist()
    [1]
    """

    name: str
    steps: tuple[Step, ...]
    answers: tuple[tuple[str | None, ...], ...] = field(repr=False)
    description: str = ""
    shown: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise for steps that cannot be followed in their order, and for answers that are none."""
        where = f"program {self.name!r}"
        names, before = {step.name for step in self.steps}, set[str]()
        for step in self.steps:
            for parent in set(step.parents) - before:
                why = "which comes later" if parent in names else "which is no step"
                raise ParameterError(f"{where}: step {step.name!r} reads {parent!r}, {why}")
            if step.name in before:
                raise ParameterError(f"{where}: two steps are called {step.name!r}")
            before.add(step.name)
        for name in {name for row in self.answers for name in row if name is not None} - names:
            raise UnknownNameError.of(f"step in the answers of {where}", name, names)

    @cached_property
    def variables(self) -> dict[str, Step]:
        """The steps by name."""
        return {step.name: step for step in self.steps}

    def run(
        self,
        tokens: Int[Tensor, "batch pos"],
        given: Given | None = None,
        only: Iterable[str] | None = None,
    ) -> dict[str, Int[Tensor, " batch"]]:
        """Compute the value of every variable; those in `given` are set to the values there.

        only: names of the variables to compute, with what they depend on; all when None.

        Raises:
            UnknownNameError: `given` or `only` names no variable of the program.
        """
        given = given or {}
        wanted = None if only is None else self.needed(only, given)
        for name in given:
            self._known(name)
        values: dict[str, Tensor] = {}
        for step in self.steps:
            if step.name in given:
                value = torch.as_tensor(given[step.name], device=tokens.device)
                values[step.name] = (
                    value.long() if value.dim() else value.long().expand(len(tokens))
                )
            elif wanted is None or step.name in wanted:
                parents = [values[parent] for parent in step.parents]
                values[step.name] = step.compute(tokens, *parents)
        return values

    def needed(self, names: Iterable[str], given: Iterable[str] = ()) -> set[str]:
        """The variables on which `names` depend, with themselves, once `given` are set."""
        found: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            self._known(name)
            if name not in found:
                found.add(name)
                pending += () if name in given else self.variables[name].parents
        return found

    def depends(self, name: str, others: Iterable[str]) -> bool:
        """Return whether the variable `name` is one of `others`, or computed from one."""
        return not self._ancestors[name].isdisjoint(others)

    def reached(self, name: str) -> tuple[int, ...]:
        """Indices of the answers that depend on the variable `name`."""
        self._known(name)
        return tuple(
            index
            for index, row in enumerate(self.answers)
            if any(step is not None and name in self._ancestors[step] for step in row)
        )

    @cached_property
    def _ancestors(self) -> dict[str, set[str]]:
        """Step → the names it depends on, its own included."""
        found: dict[str, set[str]] = {}
        for step in self.steps:
            found[step.name] = {step.name}.union(*(found[parent] for parent in step.parents))
        return found

    def _known(self, name: str) -> None:
        if name not in self.variables:
            raise UnknownNameError.of(f"variable of the program {self.name}", name, self.variables)
