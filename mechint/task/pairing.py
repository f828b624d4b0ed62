"""Pairs of examples that differ in one causal variable, or agree in it: drawn from a task alone.

Which of them a model answers is asked in ``mechint/subject/counterfactuals.py``. Cost: two samples
of the task per round; where a variable says neither how it is changed nor where it stands, a search
for the nearest example among `POOL` others.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mechint.errors import DataError, NotApplicableError, ParameterError, UnknownNameError
from mechint.task.batch import IGNORE, Batch, rng
from mechint.task.truth import Counterfactuals, Variable

if TYPE_CHECKING:
    import mechint

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
    own = labels[torch.arange(len(labels), device=labels.device), positions.clamp_min(0)]
    return ((own != targets) & (own != IGNORE) & (targets != IGNORE)).any(1)


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
                Batch.cat([one.base for one in kept]),
                Batch.cat([one.source for one in kept]),
                torch.cat([one.labels for one in kept]),
                torch.cat([one.values for one in kept]),
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
