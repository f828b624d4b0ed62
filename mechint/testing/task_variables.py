"""Checks of a task's causal variables: labels of interchanges, and the pairs they are drawn in."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from mechint.errors import DataError
from mechint.task import IGNORE, Counterfactuals, FiniteTask, Relation, Task, choose_answer
from mechint.task.pairing import changed, fitting

MANY = 2048
"""Pairs among which a label has to change that did not among the first few."""


def check_counterfactuals(task: Task, variable: str, seed: int, n: int) -> None:
    """A variable set to its own value changes nothing, to another input's it gives that label.

    The label has the form of a target, is the base's own wherever the values agree, and does not
    depend on what else is in the batch. Where the variable says how it is changed, or is read off
    one token, the label is that of the input so changed; of any other, some label depends on it.
    """
    pairs = task.counterfactuals(variable, n, seed, relation="independent")
    chosen, base = pairs.variable, pairs.base.tokens
    own = chosen.value_of(base)
    where = f"{task.name}: variable {variable!r}"
    assert own.shape == (n,) and int(own.min()) >= 0 and int(own.max()) < chosen.n_values, (
        f"{where} is outside 0 … {chosen.n_values - 1}"
    )
    assert torch.equal(pairs.values, chosen.value_of(pairs.source.tokens)), (
        f"{where}: the values are not the sources'"
    )
    assert torch.equal(chosen.label(base, own), pairs.base.targets), (
        f"{where} set to its own value changes the label"
    )
    assert pairs.labels.shape == pairs.base.targets.shape and pairs.labels.dtype == torch.int64, (
        f"{where}: labels are not of the form of targets"
    )
    same = own == pairs.values
    assert torch.equal(pairs.labels[same], pairs.base.targets[same]), (
        f"{where}: the label changes although the value does not"
    )
    _check_reach(task, pairs)
    _check_positions(task, pairs)
    alone = torch.cat(
        [chosen.label(base[i : i + 1], pairs.values[i : i + 1]) for i in range(min(n, 4))]
    )
    assert torch.equal(alone, pairs.labels[:4]), (
        f"{where}: a label depends on the rest of the batch"
    )
    if chosen.change is not None or len(chosen.positions) == 1:
        _check_changed(task, pairs)
    else:
        _check_depends(task, pairs, seed)
    if isinstance(task, FiniteTask) and len(chosen.positions) == 1:
        read = chosen.positions[0]
        changed = base.clone()
        changed[:, read] = pairs.source.tokens[:, read]
        solved = torch.tensor([task.brute_force(tokens) for tokens in changed.tolist()])
        # a language model's target before `read` may be the changed token itself
        assert torch.equal(solved[:, read:], pairs.labels[:, read:]), (
            f"{where}: the label is not that of the input with the source's token"
        )


def check_programs(task: Task, seed: int, n: int) -> None:
    """Every program gives the task's answers, and goes on doing so when variables are set to their
    own values; `Task.run` and the labels of the variables are those of the first program.
    """
    if task.variables:  # a task in a language has them at its prompts alone
        pairs = task.counterfactuals(next(iter(task.variables)), n, seed, relation="independent")
        base, other = pairs.base.tokens, pairs.source.tokens
    else:
        base, other = task.sample(n, seed).tokens, task.sample(n, seed + 1).tokens
    right = task.batch_of(base).targets
    own, source = task.run(base), task.run(other)
    for name, variable in task.variables.items():
        where = f"{task.name}: variable {name!r}"
        assert torch.equal(own[name], variable.value_of(base)), f"{where}: run gives other values"
        assert torch.equal(
            task.targets(base, {name: source[name]}), variable.label(base, source[name])
        ), f"{where}: its label is not that of run with it set"
    for name, program in task.programs.items():
        where = f"{task.name}: program {name!r}"
        assert program.name == name, f"{where} is named {program.name!r}"
        values = program.run(base)
        for step in program.steps:
            value = values[step.name]
            assert value.shape == (len(base),) and value.dtype == torch.int64, (
                f"{where}: {step.name!r} is not one integer an example"
            )
            assert 0 <= int(value.min()) <= int(value.max()) < step.n_values, (
                f"{where}: {step.name!r} is outside 0 … {step.n_values - 1}"
            )
        assert torch.equal(task.targets_by(program, base), right), f"{where} gives other answers"
        assert torch.equal(task.targets_by(program, base, values), right)
        halves = {key: values[key] for key in list(values)[::2]}
        assert torch.equal(task.targets_by(program, base, halves), right), (
            f"{where} answers otherwise when variables are set to their own values"
        )
        swapped = program.run(base, program.run(other))
        assert all(torch.equal(swapped[key], value) for key, value in program.run(other).items())


def _check_changed(task: Task, pairs: Counterfactuals) -> None:
    """At every answer it reaches, the label is what the task answers to the changed input; of a
    variable that is one of several outputs, at this output.
    """
    chosen, base = pairs.variable, pairs.base
    if chosen.change is not None:
        inputs = chosen.change(base.tokens, pairs.values)
    else:
        inputs, read = base.tokens.clone(), list(chosen.positions)
        inputs[:, read] = pairs.source.tokens[:, read]
    solved = task.batch_of(inputs)
    labels = chosen.label(base.tokens, chosen.value_of(inputs))  # a row may have had to stay as is
    outputs = list(task.output_slices)
    columns = [outputs.index(chosen.name)] if chosen.name in outputs else list(range(len(outputs)))
    for answer in range(task.n_answers) if chosen.answers is None else chosen.answers:
        (positions, _), (asked, targets) = base.answers.at(answer), solved.answers.at(answer)
        own = labels[torch.arange(len(labels)), positions.clamp_min(0)]
        differs = (own != targets) & (own != IGNORE) & (targets != IGNORE)
        wrong = differs[:, columns].any(1) & (positions == asked) & (positions != IGNORE)
        assert not wrong.any(), (
            f"{task.name}: variable {chosen.name!r}: {int(wrong.sum())} of {len(wrong)} labels of "
            f"the {task.answer_names[answer]} are not those of the changed input"
        )


def _check_positions(task: Task, pairs: Counterfactuals) -> None:
    """The tokens that are said to determine the value do: where they are another example's, the
    value is that example's, whatever stands elsewhere. Held against all inputs of a finite task; of
    a generated one against what it labels of these pairs mixed, and a warning where that is none.
    """
    chosen, base, other = pairs.variable, pairs.base.tokens, pairs.source.tokens
    if not chosen.positions:
        return
    read = list(chosen.positions)
    if isinstance(task, FiniteTask):
        mixed = task.examples().tokens
        _, groups = mixed[:, read].unique(dim=0, return_inverse=True)
        one_of = torch.zeros_like(groups).scatter_(0, groups, torch.arange(len(mixed)))
        other = mixed[one_of[groups]]  # (input, pos) one with the same tokens there
    else:
        mixed = base.clone()
        mixed[:, read] = other[:, read]
        labeled = _labeled(task, mixed)
        mixed, other = mixed[labeled], other[labeled]
    if not len(mixed):
        warnings.warn(
            (
                f"{task.name}: variable {chosen.name!r}: not checked that the tokens at positions "
                f"{chosen.positions} determine it: with another example's there, {task.name} "
                f"labels none of {len(base)} examples"
            ),
            stacklevel=2,
        )
        return
    wrong = chosen.value_of(mixed) != chosen.value_of(other)
    assert not wrong.any(), (
        f"{task.name}: variable {chosen.name!r}: the tokens at positions {chosen.positions} do not "
        f"determine it alone: {int(wrong.sum())} of {len(wrong)} examples have another value than "
        "one with the same tokens there"
    )


def _labeled(task: Task, tokens: Tensor) -> Tensor:
    """(example,) which rows of `tokens` (example, pos) the task labels."""

    def labels(rows: Tensor) -> bool:
        try:
            task.batch_of(rows)
        except Exception:  # whatever a task raises on what it never generates
            return False
        return True

    whole = labels(tokens)
    return torch.tensor([whole or labels(row[None]) for row in tokens], dtype=torch.bool)


def _check_depends(task: Task, pairs: Counterfactuals, seed: int) -> None:
    """Some label changes with the value."""
    if not torch.equal(pairs.labels, pairs.base.targets):
        return
    name = pairs.variable.name
    more = task.counterfactuals(name, MANY, seed, relation="independent")
    differing = int((pairs.variable.value_of(more.base.tokens) != more.values).sum())
    assert not differing or not torch.equal(more.labels, more.base.targets), (
        f"{task.name}: variable {name!r}: its value changes in {differing} of {MANY} pairs, the "
        "label in none"
    )


def _check_reach(task: Task, pairs: Counterfactuals) -> None:
    """Parents are variables; an answer that the variable is said not to reach keeps its label."""
    chosen = pairs.variable
    where = f"{task.name}: variable {chosen.name!r}"
    unknown = set(chosen.parents) - set(task.variables)
    assert not unknown, f"{where}: its parents {sorted(unknown)} are not variables"
    reached = range(task.n_answers) if chosen.answers is None else chosen.answers
    assert set(reached) <= set(range(task.n_answers)) and list(reached) == sorted(set(reached)), (
        f"{where}: answers {chosen.answers}; expected some of 0 to {task.n_answers - 1}, ascending"
    )
    for answer in set(range(task.n_answers)) - set(reached):
        assert not changed(pairs.labels, pairs.base, answer).any(), (
            f"{where} changes answer {answer}, which it is said not to reach"
        )


def check_pairs(task: Task, variable: str, seed: int, n: int) -> None:
    """A minimal source differs in the variable and changes the answer, in no more tokens than
    independent ones; a source of the same value agrees in the variable. Both are labeled as brute
    force does; of a finite task, they are inputs of it.
    """
    where = f"{task.name}: variable {variable!r}"
    independent = task.counterfactuals(variable, n, seed, relation="independent")
    answer = choose_answer(task, independent.variable)
    for relation in (Relation.MINIMAL, Relation.SAME):
        try:
            pairs = task.counterfactuals(variable, n, seed, relation=relation)
        except DataError:  # too few inputs, or the answer does not depend on it at these parameters
            assert not bool(fitting(independent, relation, answer).all()), (
                f"{where}: no {relation} pairs, although the examples differ in it"
            )
            continue
        value_of = pairs.variable.value_of
        same = value_of(pairs.base.tokens) == value_of(pairs.source.tokens)
        assert bool((same == (relation == Relation.SAME)).all()), f"{where}: not {relation} pairs"
        assert bool((pairs.base.tokens != pairs.source.tokens).any(1).all())
        if isinstance(task, FiniteTask):
            inputs = set(map(tuple, task.examples().tokens.tolist()))
            assert inputs.issuperset(map(tuple, pairs.source.tokens.tolist())), (
                f"{where}: a {relation} source is no input of the task"
            )
        for tokens, targets in zip(pairs.source.tokens, pairs.source.targets, strict=True):
            assert [list(row) for row in task.brute_force(tokens.tolist())] == targets.tolist(), (
                f"{where}: the {relation} source {task.text(tokens)!r} is labeled wrongly"
            )
        if relation == Relation.MINIMAL:
            assert bool(changed(pairs.labels, pairs.base, answer).all())
            differing = (pairs.base.tokens != pairs.source.tokens).sum(1).double().mean()
            moved = fitting(independent, relation, answer)
            others = (independent.base.tokens != independent.source.tokens)[moved].sum(1)
            assert not moved.any() or differing <= int(others.max()) + 1, (
                f"{where}: minimal pairs differ in {differing} tokens, independent ones in {others}"
            )
