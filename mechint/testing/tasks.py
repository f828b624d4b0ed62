"""The conformance suite of tasks: what every task, built-in or a third party's, has to keep.

    from mechint.testing import check_task
    check_task(MyTask(n=7))          # AssertionError says which promise is broken

Cost: a few hundred examples a seed, solved one at a time by `brute_force`, and `CHANCE_EXAMPLES`
for the chance level.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import typing
import warnings
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mechint.config import TrainConfig, assign
from mechint.errors import (
    DataError,
    MechintError,
    NotApplicableError,
    ParameterError,
    UnknownNameError,
)
from mechint.models import config_class
from mechint.registry import summary, unfinished
from mechint.task import (
    IGNORE,
    SPLITS,
    Batch,
    Counterfactuals,
    FiniteTask,
    Relation,
    TargetKind,
    Task,
    choose_answer,
)
from mechint.task.truth import changed, fitting
from mechint.training import spec

CHANCE_EXAMPLES = 2048
"""Examples of a generated task on which its chance level is checked."""

PAIRED = 6
"""Variables whose minimal pairs are looked at."""

OPENING = ("task", "device", "model", "data", "workers")
"""Arguments of `mechint.load` and `mechint.runs`, which take a task's parameters beside them."""

TOLERANCE = 2.5 / CHANCE_EXAMPLES**0.5
"""The largest distance of the chance level of a generated task from that of a sample: five standard
errors of a share of one half.
"""


def check_task(task: Task, *, seeds: Sequence[int] = (0, 1), n: int = 32) -> None:
    """Hold `task` to the contract, on `n` examples of each split for each seed.

    Checked: description, JSON round trip of the parameters, errors for bad ones, presets, controls,
    determinism, an honest split of inputs that are there once and in the order of the grid, the
    global random states; and for tasks over tokens, labels against `brute_force`, counterfactual
    labels, the text's round trip and the chance level. A warning names a variable of a
    generated task whose `positions` could not be put to the test, since the task labels no example
    with another's tokens there.

    Raises:
        AssertionError: with the promise that is broken.
    """
    try:
        _check(task, seeds, n)
    except AssertionError as error:
        raise AssertionError(f"{task.name}: {error}") from error


def _check(task: Task, seeds: Sequence[int], n: int) -> None:
    check_class(task)
    check_description(task)
    check_parameters(task)
    check_presets(task)
    check_controls(task)
    if isinstance(task, FiniteTask):
        check_inputs(task)
    for seed in seeds:
        check_determinism(task, seed, n)
        check_split(task, seed, n)
        if len(task.vocabulary):
            check_labels(task, seed, n)
            check_text(task, seed, n)
            if task.variables:
                check_programs(task, seed, n)
            for variable in task.variables:
                check_counterfactuals(task, variable, seed, n)
            for variable in list(task.variables)[:PAIRED]:
                check_pairs(task, variable, seed, n)
    if len(task.vocabulary):
        check_answers(task, seeds[0], n)
        check_chance(task)


def check_description(task: Task) -> None:
    """Name, source and docstring; distinct tokens and outputs; tables that are JSON."""
    assert task.name and task.source, f"{type(task).__name__}: name and source must say something"
    first = summary(type(task).__doc__)
    assert first.strip() and not first.startswith(type(task).__name__ + "("), (
        "the docstring's first line says what the task is"
    )
    for field in settings_of(task):
        assert field.name not in OPENING, (
            f"parameter {field.name} would be taken for an argument of mechint.load "
            "or mechint.runs; name it otherwise"
        )
        assert field.metadata.get("help"), (
            f"parameter {field.name} has no help; declare it with `setting`"
        )
    for kind, names in (
        ("token", task.vocabulary.tokens),
        ("output", [output.name for output in task.outputs]),
    ):
        assert len(set(names)) == len(names), f"two {kind}s have one name"
    for output in task.outputs:
        assert output.group is None or output.group.order == output.n_classes, (
            f"the group of {output.name} is not as large as its classes"
        )
    symmetry = task.symmetry
    if symmetry is not None:
        assert len(set(symmetry.tokens)) == symmetry.group.order, (
            "the symmetry needs one token an element"
        )
        assert all(0 <= token < task.d_vocab for token in symmetry.tokens), (
            "the symmetry names tokens that there are not"
        )
    assert set(task.chance) == set(task.output_slices), (
        f"chance names {sorted(task.chance)}; the outputs are {sorted(task.output_slices)}"
    )
    assert json.loads(json.dumps(task.tables())) is not None


def check_controls(task: Task) -> None:
    """Every control is another task over the same tokens, or this one untrained."""
    names = [control.name for control in task.controls]
    assert len(set(names)) == len(names), "two controls have one name"
    for described in task.controls:
        control = task.control(described.name)
        assert control.vocabulary.tokens == task.vocabulary.tokens, (
            f"the control {described.name} has another vocabulary"
        )
        untrained = described.untrained and not described.parameters
        assert untrained or described.parameters, f"the control {described.name} changes nothing"


def check_labels(task: Task, seed: int, n: int) -> None:
    """Shapes, types and ranges of a batch; its targets are those of `brute_force`."""
    for split in (split for split in SPLITS if has_split(task, split, seed)):
        batch = task.sample(n, seed, split)
        assert batch.tokens.shape == (n, task.n_ctx), (
            f"tokens are {tuple(batch.tokens.shape)}; expected {(n, task.n_ctx)}"
        )
        assert (
            batch.tokens.dtype == torch.int64
            and 0 <= int(batch.tokens.min())
            and int(batch.tokens.max()) < task.d_vocab
        ), "tokens outside"
        _check_targets(task, batch.targets, n)
        for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            solved = [list(row) for row in task.brute_force(tokens)]
            assert solved == targets, (
                f"{task.text(tokens)!r} is labeled {targets}; brute force gives {solved}"
            )


def _check_targets(task: Task, targets: Tensor, n: int) -> None:
    shape = (n, task.n_ctx, len(task.outputs))
    assert targets.shape == shape and targets.dtype == torch.int64, (
        f"targets {tuple(targets.shape)} {targets.dtype}; expected {shape} int64"
    )
    for index, output in enumerate(task.outputs):
        values = targets[..., index]
        inside = (values == IGNORE) | ((values >= 0) & (values < output.n_classes))
        assert inside.all(), f"{output.name} is labeled outside 0 … {output.n_classes - 1}"


def _check_batch_of(task: Task, batch: Batch) -> None:
    """`batch_of` gives the tokens of what probes look at what these examples have."""
    again = task.batch_of(batch.tokens)
    for member in ("targets", "lengths", "kinds"):
        own, other = getattr(batch, member), getattr(again, member)
        same = own is other if own is None or other is None else torch.equal(own, other)
        assert same, (
            f"`batch_of` gives the tokens of {task.probe_split} examples other "
            f"{member} than they have; sources of interchanges are made with it, so it has to know "
            "targets, lengths and kinds"
        )


def check_text(task: Task, seed: int, n: int) -> None:
    """Text gives the tokens back, on one line."""
    for tokens in task.sample(
        n, seed, "test" if has_split(task, "test", seed) else "train"
    ).tokens.tolist():
        text = task.text(tokens)
        assert task.tokens_of(text) == tokens, f"{text!r} gives other tokens back"


def check_answers(task: Task, seed: int, n: int) -> None:
    """Examples for probes have `n_answers` named answers; targets have kinds, classes names."""
    names, outputs = task.answer_names, task.class_names
    assert len(names) == task.n_answers == len(set(names)), (
        f"{task.n_answers} answers are named {names}"
    )
    for output in task.outputs:
        assert len(set(outputs[output.name])) == output.n_classes, (
            f"{output.name} needs {output.n_classes} different class names"
        )
    batch = task.sample(n, seed, task.probe_split)
    _check_batch_of(task, batch)
    answers = batch.answers
    assert len(answers) == task.n_answers and bool((answers.positions[:, 0] != IGNORE).all()), (
        f"the {task.probe_split} split shows {len(answers)} answers per example; "
        f"expected {task.n_answers}, and at least one in each"
    )
    for answer in range(len(answers)):
        positions, targets = answers.at(answer)
        asked = targets[positions != IGNORE] != IGNORE
        assert bool((asked == asked[:1]).all()), (
            f"answer {answer} ({names[answer]}) is of one output in some examples and "
            "of another in others; answers are counted from an example's first, so that only the "
            "last ones may be missing"
        )
    if batch.kinds is not None:
        asked = (batch.targets != IGNORE).any(-1)
        assert torch.equal(asked, batch.kinds != TargetKind.NONE), (
            "a target without a kind, or a kind without a target"
        )


def check_chance(task: Task) -> None:
    """Accuracy and loss of the best constant answer, as counted on examples."""
    sampled = task.sample(CHANCE_EXAMPLES, seed=17)
    counted = [(sampled, TOLERANCE)]
    if isinstance(task, FiniteTask):
        tested = task.examples()[task.split(0)["test"]]
        counted = [(task.examples(), 1e-9)]
        if len(tested):
            counted.append((tested, 2.5 / len(tested) ** 0.5))
    for index, output in enumerate(task.outputs):
        stated = task.chance[output.name]
        best = [(_best_constant(batch.targets[..., index]), slack) for batch, slack in counted]
        agrees = [
            abs(stated.accuracy - accuracy) <= slack
            and abs(stated.loss - loss) <= slack * (1 + loss)
            for (accuracy, loss), slack in best
        ]
        assert any(agrees), (
            f"chance of {output.name} is {stated}; the best constant has "
            f"accuracy and loss {best[0][0]}"
        )


def _best_constant(targets: Tensor) -> tuple[float, float]:
    counts = torch.bincount(targets[targets != IGNORE]).double()
    shares = counts[counts > 0] / counts.sum()
    return float(shares.max()), float(-(shares * shares.log()).sum())


# --- settings ------------------------------------------------------------------------------------
def check_class(task: Task) -> None:
    """The class is a dataclass of its own: without the decorator a new parameter is not there."""
    reason = unfinished(type(task))
    assert reason is None, f"{reason}"


def check_presets(task: Task) -> None:
    """The defaults and every preset make a training; results are of presets that there are."""
    kind = type(task)
    unknown = set(kind.preset_results) - set(kind.presets)
    assert not unknown, f"results of presets that there are not: {sorted(unknown)}"
    targets = {"task": kind, "model": config_class(kind.model_kind), "train": TrainConfig}
    for preset, settings in {None: {}, **kind.presets}.items():
        texts = [
            f"{name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, value in settings.items()
        ]
        try:
            values = assign(texts, targets)
            spec(kind.from_dict(values["task"]), values["model"], values["train"])
        except MechintError as error:
            what = "model_defaults and train_defaults" if preset is None else f"preset {preset!r}"
            raise AssertionError(f"{what} cannot be trained with: {error}") from error


def check_parameters(task: Task) -> None:
    """The parameters survive JSON; wrong ones are refused in one line."""
    again = type(task).from_dict(json.loads(json.dumps(task.to_dict())))
    assert again == task, f"{task.to_dict()} gives another task back"
    _refused(task, {"no_such_parameter": 1}, UnknownNameError)
    hints = typing.get_type_hints(type(task))
    for field in settings_of(task):
        _refused(task, {field.name: object()}, ParameterError)
        low, high = (field.metadata.get(end) for end in ("low", "high"))
        assert not _takes_numbers(hints[field.name]) or None not in (low, high), (
            f"{field.name} takes numbers from {low} to {high}; both bounds are needed"
        )
        value = getattr(task, field.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            for bound, step in ((low, -1), (high, 1)):
                if bound is not None:
                    _refused(task, {field.name: type(value)(bound + step)}, ParameterError)


def _takes_numbers(hint: Any) -> bool:
    """Return whether a field of this type holds numbers of a range, alone or in a flat tuple."""
    members = typing.get_args(hint) or (hint,)
    nested = any(typing.get_origin(member) is tuple for member in members)
    if nested:
        members = [inner for member in members for inner in typing.get_args(member)]
    return any(member in (int, float) for member in members)


def _refused(task: Task, changed: dict[str, object], expected: type[MechintError]) -> None:
    values = {field.name: getattr(task, field.name) for field in settings_of(task)} | changed
    try:
        type(task).from_dict(values)
    except expected as error:
        assert "\n" not in str(error), f"the error for {changed} has several lines"
        return
    raise AssertionError(f"{changed} is accepted; expected {expected.__name__}")


def settings_of(task: Task) -> tuple[dataclasses.Field[Any], ...]:
    """The declared parameters."""
    return dataclasses.fields(task)  # type: ignore[arg-type]


# --- what a task hands out -----------------------------------------------------------------------
def check_determinism(task: Task, seed: int, n: int) -> None:
    """Samples and streams are functions of their arguments, and no global seed moves."""
    before = _global_randomness()
    fresh = type(task).from_dict(task.to_dict())  # nothing cached
    for split in SPLITS:
        if not has_split(task, split, seed):
            continue
        assert _same(task.sample(n, seed, split), fresh.sample(n, seed, split)), (
            f"the same seed gives other {split} examples"
        )
        first = list(islice(task.stream(split, seed, 8), 4))
        later = next(iter(fresh.stream(split, seed, 8, start=3)))
        assert _same(first[3], later), (
            f"the {split} stream entered at batch 3 differs from the one read from the start"
        )
    assert before == _global_randomness(), "a global random state was touched"


def check_inputs(task: FiniteTask) -> None:
    """The inputs are as many as the grid has places, each is there once, and in the grid's order:
    along every axis some tokens follow the index of this axis alone and tell its indices apart.
    """
    tokens = task.examples().tokens
    n = len(tokens)
    assert math.prod(task.grid) == n, (
        f"a grid of {task.grid} has {math.prod(task.grid)} places; there are {n} inputs"
    )
    distinct = len(set(map(tuple, tokens.tolist())))
    assert distinct == n, (
        f"{n} inputs, of which {distinct} differ; expected every input once, since a "
        "copy of a training input is no test of anything"
    )
    if len(task.grid) < 2:
        return
    placed = tokens.reshape(*task.grid, tokens.shape[1])
    for axis, size in enumerate(task.grid):
        slices = placed.movedim(axis, 0).flatten(1, -2)  # (index on the axis, all others, pos)
        follow = (slices == slices[:, :1]).all(1).all(0)
        seen = len(set(map(tuple, slices[:, 0, follow].tolist())))
        assert seen == size, (
            f"the tokens that follow axis {axis} of the grid {task.grid} alone tell "
            f"{seen} of its {size} indices apart; expected `inputs` in the order of `grid`, "
            "operand k on axis k"
        )


def check_split(task: Task, seed: int, n: int) -> None:
    """A finite task's split is a partition; a generated task's test is not in training."""
    if isinstance(task, FiniteTask):
        parts = task.split(seed)
        everything = torch.cat([parts[split] for split in SPLITS]).sort().values
        assert torch.equal(everything, torch.arange(len(task.examples()))), (
            "the split is not a partition of the inputs"
        )
        for split in (split for split in SPLITS if len(parts[split])):
            own = set(_rows(task.examples()[parts[split]]))
            assert set(_rows(next(iter(task.stream(split, seed, n))))) <= own, (
                f"the {split} stream leaves its part"
            )
        return
    trained = {row for batch in islice(task.stream("train", seed, 64), 8) for row in _rows(batch)}
    held_out = set(_rows(task.sample(n, seed, "test"))) | set(
        _rows(next(iter(task.stream("test", seed, n))))
    )
    assert not trained & held_out, "a test example is in the training stream"


def has_split(task: Task, split: str, seed: int) -> bool:
    """Return whether there are examples of `split`."""
    return not isinstance(task, FiniteTask) or len(task.split(seed)[split]) > 0


def _global_randomness() -> str:
    generator = np.random.get_bit_generator()  # type: ignore[attr-defined]
    return repr((random.getstate(), generator.state["state"], torch.get_rng_state().tolist()))


def _same(a: Batch, b: Batch) -> bool:
    return torch.equal(a.tokens, b.tokens) and torch.equal(a.targets, b.targets)


def _rows(batch: Batch) -> list[tuple[float, ...]]:
    return [tuple(row) for row in batch.tokens.tolist()]


# --- causal variables ----------------------------------------------------------------------------
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
    where = f"variable {variable!r}"
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
    # a task in a language has variables at its prompts alone
    pairs = task.counterfactuals(next(iter(task.variables)), n, seed, relation="independent")
    base, other = pairs.base.tokens, pairs.source.tokens
    right = task.batch_of(base).targets
    try:
        own, source = task.run(base), task.run(other)
    except NotApplicableError:  # variables alone
        return
    for name, variable in task.variables.items():
        where = f"variable {name!r}"
        assert torch.equal(own[name], variable.value_of(base)), f"{where}: run gives other values"
        assert torch.equal(
            task.targets(base, {name: source[name]}), variable.label(base, source[name])
        ), f"{where}: its label is not that of run with it set"
    for name, program in task.programs.items():
        where = f"program {name!r}"
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
            f"variable {chosen.name!r}: {int(wrong.sum())} of {len(wrong)} labels of "
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
        f"variable {chosen.name!r}: the tokens at positions {chosen.positions} do not "
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
        f"variable {name!r}: its value changes in {differing} of {MANY} pairs, the label in none"
    )


def _check_reach(task: Task, pairs: Counterfactuals) -> None:
    """Parents are variables; an answer that the variable is said not to reach keeps its label."""
    chosen = pairs.variable
    where = f"variable {chosen.name!r}"
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
    where = f"variable {variable!r}"
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
