"""The conformance suite of tasks: what every task, built-in or a third party's, has to keep.

    from mechint.testing import check_task
    check_task(MyTask(n=7))          # AssertionError says which promise is broken

Cost: a few hundred examples a seed, solved one at a time by `brute_force`, and `CHANCE_EXAMPLES`
for the chance level.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch
from torch import Tensor

from mechint.registry import summary
from mechint.task import (
    IGNORE,
    SPLITS,
    Batch,
    FiniteTask,
    TargetKind,
    Task,
)
from mechint.testing.task_settings import (
    check_class,
    check_parameters,
    check_presets,
    settings_of,
)
from mechint.testing.task_splits import (
    check_determinism,
    check_inputs,
    check_split,
    has_split,
)
from mechint.testing.task_variables import check_counterfactuals, check_pairs, check_programs

CHANCE_EXAMPLES = 2048
"""Examples of a generated task on which its chance level is checked."""

PAIRED = 6
"""Variables whose minimal pairs are looked at."""

OPENING = ("task", "device", "model", "data", "workers")
"""Arguments of `mechint.load` and `mechint.runs`, which take a task's parameters beside them."""

TOLERANCE = 2.5 / CHANCE_EXAMPLES**0.5
"""How far the chance level of a generated task may lie from that of a sample: five standard errors
of a share of one half.
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
    """Name, source, first line of the docstring; distinct tokens, outputs and variables; tables
    that are JSON.
    """
    assert task.name and task.source, f"{type(task).__name__}: name and source must say something"
    first = summary(type(task).__doc__)
    assert first.strip() and not first.startswith(type(task).__name__ + "("), (
        f"{task.name}: the docstring's first line says what the task is"
    )
    for field in settings_of(task):
        assert field.name not in OPENING, (
            f"{task.name}: parameter {field.name} would be taken for an argument of mechint.load "
            "or mechint.runs; name it otherwise"
        )
        assert field.metadata.get("help"), (
            f"{task.name}: parameter {field.name} has no help; declare it with `setting`"
        )
    for kind, names in (
        ("token", task.vocabulary.tokens),
        ("output", [output.name for output in task.outputs]),
    ):
        assert len(set(names)) == len(names), f"{task.name}: two {kind}s have one name"
    for output in task.outputs:
        assert output.group is None or output.group.order == output.n_classes, (
            f"{task.name}: the group of {output.name} is not as large as its classes"
        )
    symmetry = task.symmetry
    if symmetry is not None:
        assert len(set(symmetry.tokens)) == symmetry.group.order, (
            f"{task.name}: the symmetry needs one token an element"
        )
        assert all(0 <= token < task.d_vocab for token in symmetry.tokens), (
            f"{task.name}: the symmetry names tokens that there are not"
        )
    assert set(task.chance) == set(task.output_slices), (
        f"{task.name}: chance names {sorted(task.chance)}; the outputs are "
        f"{sorted(task.output_slices)}"
    )
    assert json.loads(json.dumps(task.tables())) is not None


def check_controls(task: Task) -> None:
    """Every control can be made, and is another task over the same tokens, or this one with
    untrained weights.
    """
    names = [control.name for control in task.controls]
    assert len(set(names)) == len(names), f"{task.name}: two controls have one name"
    for described in task.controls:
        control = task.control(described.name)
        assert control.vocabulary.tokens == task.vocabulary.tokens, (
            f"{task.name}: the control {described.name} has another vocabulary"
        )
        untrained = described.untrained and not described.parameters
        assert untrained or described.parameters, (
            f"{task.name}: the control {described.name} changes nothing"
        )


def check_labels(task: Task, seed: int, n: int) -> None:
    """Shapes, types and ranges of a batch; its targets are those of `brute_force`; every answer is
    an output's class.
    """
    for split in (split for split in SPLITS if has_split(task, split, seed)):
        batch = task.sample(n, seed, split)
        assert batch.tokens.shape == (n, task.n_ctx), (
            f"{task.name}: tokens are {tuple(batch.tokens.shape)}; expected {(n, task.n_ctx)}"
        )
        assert (
            batch.tokens.dtype == torch.int64
            and 0 <= int(batch.tokens.min())
            and int(batch.tokens.max()) < task.d_vocab
        ), f"{task.name}: tokens outside"
        _check_targets(task, batch.targets, n)
        for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            solved = [list(row) for row in task.brute_force(tokens)]
            assert solved == targets, (
                f"{task.name}: {task.text(tokens)!r} is labeled {targets}; brute force gives "
                f"{solved}"
            )


def _check_targets(task: Task, targets: Tensor, n: int) -> None:
    shape = (n, task.n_ctx, len(task.outputs))
    assert targets.shape == shape and targets.dtype == torch.int64, (
        f"{task.name}: targets {tuple(targets.shape)} {targets.dtype}; expected {shape} int64"
    )
    for index, output in enumerate(task.outputs):
        values = targets[..., index]
        inside = (values == IGNORE) | ((values >= 0) & (values < output.n_classes))
        assert inside.all(), (
            f"{task.name}: {output.name} is labeled outside 0 … {output.n_classes - 1}"
        )


def _check_batch_of(task: Task, batch: Batch) -> None:
    """`batch_of` gives the tokens of what probes look at what these examples have: sources of
    interchanges are made of them, and labeled by it.
    """
    again = task.batch_of(batch.tokens)
    for member in ("targets", "lengths", "kinds"):
        own, other = getattr(batch, member), getattr(again, member)
        same = own is other if own is None or other is None else torch.equal(own, other)
        assert same, (
            f"{task.name}: `batch_of` gives the tokens of {task.probe_split} examples other "
            f"{member} than they have; sources of interchanges are made with it, so it has to know "
            "targets, lengths and kinds"
        )


def check_text(task: Task, seed: int, n: int) -> None:
    """Text gives the tokens back, on one line."""
    for tokens in task.sample(
        n, seed, "test" if has_split(task, "test", seed) else "train"
    ).tokens.tolist():
        text = task.text(tokens)
        assert task.tokens_of(text) == tokens, f"{task.name}: {text!r} gives other tokens back"


def check_answers(task: Task, seed: int, n: int) -> None:
    """Check that what probes look at has `n_answers` answers, each with a name; every target has a
    kind, and every class a name.
    """
    names, outputs = task.answer_names, task.class_names
    assert len(names) == task.n_answers == len(set(names)), (
        f"{task.name}: {task.n_answers} answers are named {names}"
    )
    for output in task.outputs:
        assert len(set(outputs[output.name])) == output.n_classes, (
            f"{task.name}: {output.name} needs {output.n_classes} different class names"
        )
    batch = task.sample(n, seed, task.probe_split)
    _check_batch_of(task, batch)
    answers = batch.answers
    assert len(answers) == task.n_answers and bool((answers.positions[:, 0] != IGNORE).all()), (
        f"{task.name}: the {task.probe_split} split shows {len(answers)} answers per example; "
        f"expected {task.n_answers}, and at least one in each"
    )
    for answer in range(len(answers)):
        positions, targets = answers.at(answer)
        asked = targets[positions != IGNORE] != IGNORE
        assert bool((asked == asked[:1]).all()), (
            f"{task.name}: answer {answer} ({names[answer]}) is of one output in some examples and "
            "of another in others; answers are counted from an example's first, so that only the "
            "last ones may be missing"
        )
    if batch.kinds is not None:
        asked = (batch.targets != IGNORE).any(-1)
        assert torch.equal(asked, batch.kinds != TargetKind.NONE), (
            f"{task.name}: a target without a kind, or a kind without a target"
        )


def check_chance(task: Task) -> None:
    """Accuracy and loss of the best constant answer, as counted on all inputs of a finite task or
    on test examples.
    """
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
            f"{task.name}: chance of {output.name} is {stated}; the best constant has "
            f"accuracy and loss {best[0][0]}"
        )


def _best_constant(targets: Tensor) -> tuple[float, float]:
    counts = torch.bincount(targets[targets != IGNORE]).double()
    shares = counts[counts > 0] / counts.sum()
    return float(shares.max()), float(-(shares * shares.log()).sum())
