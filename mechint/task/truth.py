"""The truth about a task's own algorithm: causal variables, programs that compute them, symmetry,
controls, chance.

    program.run(tokens, {"carry_0": values})

computes every variable of the examples, with "carry_0" set by hand and all that follows from it
recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mechint.errors import DataError, NotApplicableError, ParameterError, UnknownNameError
from mechint.groups.finite import FiniteGroup
from mechint.task.batch import IGNORE, Batch, rng

if TYPE_CHECKING:
    import mechint


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
        needed: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            self._known(name)
            if name not in needed:
                needed.add(name)
                pending += () if name in given else self.variables[name].parents
        return needed

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
        ancestors: dict[str, set[str]] = {}
        for step in self.steps:
            ancestors[step.name] = {step.name}.union(
                *(ancestors[parent] for parent in step.parents)
            )
        return ancestors

    def _known(self, name: str) -> None:
        if name not in self.variables:
            raise UnknownNameError.of(f"variable of the program {self.name}", name, self.variables)


# --- pairs of examples ----------------------------------------------------------------------------
ROUNDS = 40
"""Pairs drawn before giving up, as a multiple of those wanted."""

POOL = 4096
"""Examples among which the nearest source, or one with the same value, is looked for."""


class Relation(StrEnum):
    """The relation of a pair's source to its base.

    MINIMAL: the variable differs, and as little else as the task allows. INDEPENDENT: an example
    drawn whatever the base is; of the N inputs of a finite task that is once in N draws the base
    itself, of prompts (`Variable.is_example`) never. SAME: another example in which the variable
    has the base's value, so that an interchange of it must change nothing.
    """

    MINIMAL = "minimal"
    INDEPENDENT = "independent"
    SAME = "same"


def find_variable(task: mechint.Task, name: str) -> Variable:
    """The causal variable `name` of `task`; UnknownNameError for a name it lacks."""
    if name not in task.variables:
        raise UnknownNameError.of(f"variable of {task.name}", name, task.variables)
    return task.variables[name]


def choose_answer(task: mechint.Task, variable: Variable, answer: int | None = None) -> int:
    """Index of the answer to ask about: `answer`, or the last one that the variable reaches.

    Raises:
        ParameterError: the task has no such answer.
        NotApplicableError: that answer cannot depend on the variable.
    """
    names, n = task.answer_names, task.n_answers
    reached = tuple(range(n)) if variable.answers is None else variable.answers
    if answer is None:
        return reached[-1]
    if not -n <= answer < n:
        raise ParameterError(f"{task.name}: answer={answer}: expected 0 to {n - 1}")
    index = answer % n
    if index not in reached:
        others = ", ".join(f"{i} ({names[i]})" for i in reached[:8])
        raise NotApplicableError(
            f"{task.name}: answer {index} ({names[index]}) cannot depend on the variable "
            f"{variable.name}; ask about answer {others}{' …' if len(reached) > 8 else ''}"
        )
    return index


def candidates(
    task: mechint.Task,
    variable: Variable,
    n: int,
    seed: int,
    split: str,
    relation: Relation,
    split_seed: int = 0,
    among: Batch | None = None,
) -> Counterfactuals:
    """`n` pairs as drawn: some may not differ in the variable, or leave the answer as it is.

    among: the examples that independent pairs are made of; those of `split` when None.
    """

    def sample(seed: int) -> Batch:
        if among is None:
            return task.sample(n, seed=seed, split=split, split_seed=split_seed)
        return among[torch.as_tensor(rng("among", seed).integers(0, len(among), n))]

    base, other = sample(2 * seed), sample(2 * seed + 1)
    if relation == Relation.INDEPENDENT:
        source = other
    elif relation == Relation.SAME:
        source = _same_value(task, variable, base, seed, split, split_seed)
    else:
        source = minimal_sources(task, variable, base, other, seed, split, split_seed)
    values = variable.value_of(source.tokens)
    return Counterfactuals(variable, base, source, variable.label(base.tokens, values), values)


def fitting(pairs: Counterfactuals, relation: Relation, answer: int) -> Bool[Tensor, " n"]:
    """(n,) whether each pair is what `relation` promises, at the answer of that index."""
    variable, base = pairs.variable, pairs.base
    different = (base.tokens != pairs.source.tokens).any(1)
    if relation == Relation.INDEPENDENT:
        return different | (not variable.is_example)
    if relation == Relation.SAME:
        return different & (variable.value_of(base.tokens) == pairs.values)
    return different & changed(pairs.labels, base, answer)


def changed(labels: Int[Tensor, "n pos output"], base: Batch, answer: int) -> Bool[Tensor, " n"]:
    """(n,) whether the label at the answer differs from the base's own target, in any output."""
    positions, targets = base.answers.at(answer)
    at_answer = labels[torch.arange(len(labels), device=labels.device), positions.clamp_min(0)]
    return ((at_answer != targets) & (at_answer != IGNORE) & (targets != IGNORE)).any(1)


def draw_pairs(
    task: mechint.Task,
    variable: Variable,
    n: int,
    seed: int,
    split: str,
    split_seed: int,
    relation: Relation,
    answer: int,
) -> Counterfactuals:
    """`n` pairs that are what `relation` promises.

    Raises:
        DataError: fewer than `n` of them among ``ROUNDS * n`` drawn.
    """
    kept: list[Counterfactuals] = []
    have, part = 0, 0
    for part in range(ROUNDS):
        pairs = candidates(task, variable, n, ROUNDS * seed + part, split, relation, split_seed)
        rows = fitting(pairs, relation, answer).nonzero().flatten()[: n - have]
        kept.append(pairs[rows])
        have += len(rows)
        if have == n:
            return Counterfactuals(
                variable,
                Batch.cat([pairs.base for pairs in kept]),
                Batch.cat([pairs.source for pairs in kept]),
                torch.cat([pairs.labels for pairs in kept]),
                torch.cat([pairs.values for pairs in kept]),
            )
        if part == 1 and not have:  # what two rounds do not show at all is not there
            break
    advice = "this answer does not depend on it; ask about another answer or variable"
    if have:
        advice = "ask for fewer pairs"
    elif relation == Relation.SAME:
        advice = "no two examples agree in it; ask about another variable"
    raise DataError(
        f"{task.name}: {have} of {n} {relation} pairs for the variable {variable.name} at the "
        f"answer {task.answer_names[answer]} among {(part + 1) * n} drawn; {advice}"
    )


# --- sources --------------------------------------------------------------------------------------
def minimal_sources(
    task: mechint.Task,
    variable: Variable,
    base: Batch,
    other: Batch,
    seed: int,
    split: str,
    split_seed: int = 0,
) -> Batch:
    """The base changed as the variable says; else with the tokens it is read from taken from
    `other`; else the nearest example in which it differs.
    """
    if variable.change is not None:
        return task.batch_of(variable.change(base.tokens, variable.value_of(other.tokens)))
    if variable.positions:
        tokens, where = base.tokens.clone(), list(variable.positions)
        tokens[:, where] = other.tokens[:, where]
        return task.batch_of(tokens)
    pool = _pool(task, seed, split, split_seed)
    allowed = variable.value_of(pool.tokens) != variable.value_of(base.tokens)[:, None]
    distance = torch.zeros(allowed.shape, dtype=torch.int32, device=base.tokens.device)
    for position in range(base.tokens.shape[1]):
        distance += base.tokens[:, position, None] != pool.tokens[:, position]
    return pool[distance.masked_fill(~allowed, base.tokens.shape[1] + 1).argmin(1)]


def _same_value(
    task: mechint.Task, variable: Variable, base: Batch, seed: int, split: str, split_seed: int
) -> Batch:
    """Examples in which the variable has the base's value, at random; any where there is none."""
    pool = _pool(task, seed, split, split_seed)
    values, wanted = variable.value_of(pool.tokens), variable.value_of(base.tokens)
    order = values.argsort(stable=True)
    counts = torch.bincount(values, minlength=variable.n_values)
    first = counts.cumsum(0) - counts
    drawn = torch.as_tensor(rng("same value", task.name, seed).random(len(wanted)))
    place = first[wanted] + (drawn.to(wanted.device) * counts[wanted]).long()
    return pool[order[place.clamp_max(len(order) - 1)]]


def _pool(task: mechint.Task, seed: int, split: str, split_seed: int) -> Batch:
    """Examples to choose sources from, in random order."""
    return task.sample(POOL, seed=2 * seed + 1, split=split, split_seed=split_seed)
