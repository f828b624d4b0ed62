"""Choose the task of a checkpoint and fit the model to it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.checkpoints.reader import Assumption, ParsedCheckpoint
from mechint.config import ModelConfig
from mechint.config.settings import set_options
from mechint.errors import CheckpointError, MechintError
from mechint.registry import TASKS
from mechint.task import Task

if TYPE_CHECKING:
    from mechint.models.pair_config import PairNetworkConfig


def choose_task(
    path: Path, found: ParsedCheckpoint, name: str | Task | None, parameters: Mapping[str, Any]
) -> Task | None:
    """The caller's task, by name or itself, or the file's with the caller's changes; None where
    nobody names one.

    Raises:
        CheckpointError: parameters without a task, or a task of the file that cannot be made here.
        UnknownNameError, ParameterError: the caller's task or parameters are wrong.
    """
    if isinstance(name, Task):
        return type(name).from_dict(name.to_dict() | dict(parameters)) if parameters else name
    if name is not None and name != found.task:
        return TASKS[name].from_dict(parameters)
    if found.task is None:
        if parameters:
            raise CheckpointError(
                f"{path}: does not say which task it was trained on, so "
                f"{', '.join(parameters)} belongs to none; name the task too"
            )
        return None
    if found.task not in TASKS:
        raise CheckpointError(
            f"{path}: the task it names cannot be made: unknown task {found.task!r}; give the "
            "task itself, mechint.load(path, task=MyTask(...)) or --plugin FILE.py:NAME, or name "
            "another"
        )
    try:
        made = TASKS[found.task].from_dict(found.parameters)
    except MechintError as error:
        raise CheckpointError(
            f"{path}: the task it names cannot be made: {error}; name another one"
        ) from error
    return type(made).from_dict(made.to_dict() | dict(parameters)) if parameters else made


def misfits(config: ModelConfig, task: Task) -> list[str]:
    """Sizes of the model that do not fit the task, in words; none where it fits.

    A larger vocabulary, more classes and more positions than the task's fit: tokens past the task's
    never occur in its data, and classes past the task's are never asked for.
    """
    pairs = {
        "d_vocab": (config.d_vocab, task.d_vocab),
        "d_vocab_out": (config.d_vocab_out, task.d_vocab_out),
        "n_ctx": (config.n_ctx, task.n_ctx),
    }
    fits = {
        "d_vocab": task.d_vocab < config.d_vocab
        and (config.d_vocab <= task.d_vocab + MAX_UNUSED or config.d_vocab_out == config.d_vocab),
        "d_vocab_out": len(task.outputs) == 1 and config.d_vocab_out > task.d_vocab_out,
        "n_ctx": config.n_ctx >= task.n_ctx,
    }
    return [
        f"{name}={got} in the file, {expected} in the task"
        for name, (got, expected) in pairs.items()
        if got != expected and not fits[name]
    ]


MAX_UNUSED = 8
"""Tokens that a task may leave unused, such as a pad; of a language model any number."""


def fit(path: Path, found: ParsedCheckpoint, task: Task | None) -> ParsedCheckpoint:
    """`found` as the task needs it: tokens past the task's are left out of the embedding, and
    classes that the task never asks for of the unembedding, both listed as assumed.

    Raises:
        CheckpointError: the model does not fit the task, or fits it under other parameters exactly.
    """
    config = found.config
    if task is None:
        return found
    if not isinstance(config, ModelConfig):
        from mechint.models.pair_config import PairNetworkConfig

        is_pair = isinstance(config, PairNetworkConfig)
        return _fit_pair_network(path, found, config, task) if is_pair else found
    wrong = misfits(config, task)
    exact = (config.d_vocab, config.d_vocab_out) == (task.d_vocab, task.d_vocab_out)
    own_surplus = config.d_vocab_out == config.d_vocab == task.d_vocab
    fitting = [] if exact or own_surplus else propose(config)
    others = [text for text in fitting if text.startswith(f"--task {task.name} ")]
    if wrong or others:
        wrong = wrong or [f"d_vocab={config.d_vocab} in the file, {task.d_vocab} in the task"]
        hint = _named(path, found, task)
        if hint is None and fitting:
            hint = f"{' or '.join(fitting)} would fit"
        if hint is None and config.d_vocab_out < task.d_vocab_out:
            value = f"model.d_vocab_out={task.d_vocab_out}"
            hint = f"where the answers it lacks never occur, --set {value}"
        raise CheckpointError(
            f"{path}: does not fit {task.name}: {'; '.join(wrong)}; "
            f"{hint or 'give the parameters it was trained with (--set)'}"
        )
    sizes = tuple(output.n_classes for output in task.outputs)
    weights, assumed, extra = dict(found.weights), dict(found.assumed), dict(found.extra)
    unused, surplus = config.d_vocab - task.d_vocab, config.d_vocab_out - task.d_vocab_out
    if unused:
        weights["embed.W_E"] = weights["embed.W_E"][: task.d_vocab]
        why = f"the file has {config.d_vocab} tokens, of which the data of the task hold the first"
        assumed["d_vocab"] = Assumption(task.d_vocab, f"{why} {task.d_vocab}")
    if surplus:
        for name in {"unembed.W_U", "unembed.b_U"} & set(weights):
            weights[name] = weights[name][..., : task.d_vocab_out]
        extra["classes_left_out"] = surplus
        if not own_surplus:
            why = f"the file has {config.d_vocab_out} classes, of which the task asks for the first"
            assumed["d_vocab_out"] = Assumption(task.d_vocab_out, f"{why} {task.d_vocab_out}")
    changed = dataclasses.replace(
        config, d_vocab=task.d_vocab, d_vocab_out=task.d_vocab_out, output_sizes=sizes
    )
    if changed == config:
        return found
    return dataclasses.replace(found, config=changed, weights=weights, assumed=assumed, extra=extra)


def _fit_pair_network(
    path: Path, found: ParsedCheckpoint, config: PairNetworkConfig, task: Task
) -> ParsedCheckpoint:
    """A network of two operands under the task's prompt, which may end with "=", a token that the
    network does not read.
    """
    values = task.d_vocab - (task.n_ctx - 2)
    if task.n_ctx not in (2, 3) or (values, task.d_vocab_out) != (
        config.d_vocab,
        config.d_vocab_out,
    ):
        raise CheckpointError(
            f"{path}: does not fit {task.name}: {config.d_vocab} values and {config.d_vocab_out} "
            f"answers in the file, {values} and {task.d_vocab_out} in the task; "
            f"{_named(path, found, task) or 'give the parameters it was trained with (--set)'}"
        )
    return dataclasses.replace(found, config=dataclasses.replace(config, n_ctx=task.n_ctx))


def _named(path: Path, found: ParsedCheckpoint, task: Task) -> str | None:
    """Name the task of the file in words, where it fits and is another one than `task`."""
    try:
        own = choose_task(path, found, None, {})
        if own is None or own == task:
            return None
        fit(path, found, own)
    except CheckpointError:
        return None
    p = getattr(own, "p", None)
    return (
        f"the file names {own.name}{'' if p is None else f' with p={p}'}; leave out --task and "
        "--set"
    )


def propose(config: ModelConfig) -> list[str]:
    """Tasks with a modulus p under which the model's vocabulary, answers and positions fit, as
    command-line text.
    """
    found = []
    for name in TASKS:
        with contextlib.suppress(MechintError):  # a broken plug-in proposes nothing
            family = TASKS[name]
            fields = {field.name for field in dataclasses.fields(family)}  # type: ignore[arg-type]
            moduli = dict.fromkeys((config.d_vocab_out, config.d_vocab - 1, config.d_vocab))
            trials = [
                {"p": p} | more
                for p in moduli
                for more in ({}, {"equals": False})
                if {"p", *more} <= fields
            ]
            fitting = next((trial for trial in trials if _suits(config, family, trial)), None)
            if fitting is not None:
                found.append(" ".join([f"--task {name}", *set_options(fitting)]))
    return found


def _suits(config: ModelConfig, family: type[Task], parameters: Mapping[str, Any]) -> bool:
    try:
        task = family.from_dict(parameters)
    except MechintError:
        return False
    return task.n_ctx == config.n_ctx and not misfits(config, task)
