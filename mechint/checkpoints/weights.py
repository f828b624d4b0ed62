"""The weights of a parsed checkpoint, checked, fitted to a task and made a model.

Everything is compared before a model is built, so that a file of a few kilobytes cannot ask for one
of a few gigabytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mechint.checkpoints.reader import Assumption, ParsedCheckpoint, StateDict
from mechint.config import ModelConfig, Settings
from mechint.config.settings import set_options
from mechint.errors import CheckpointError, MechintError, ParameterError
from mechint.models import build, parameter_shapes
from mechint.registry import TASKS
from mechint.task import Task

if TYPE_CHECKING:
    from mechint.models.pair_network import PairNetworkConfig

NUMBERS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
NEVER = -100.0
"""Bias of a class that the file does not have; nats."""

MAX_DEPTH = 4096
"""Blocks passed through, repeated ones counted."""


def build_model(path: Path, parsed: ParsedCheckpoint) -> Any:
    """A model of the parsed configuration with the parsed weights, in float64 where they are.

    Raises:
        CheckpointError: a weight is missing, of another shape or type, or not finite.
    """
    check_weights(path, parsed.config, parsed.weights)
    model = build(parsed.config, seed=None if isinstance(parsed.config, ModelConfig) else 0)
    numbers = (value for value in parsed.weights.values() if value.is_floating_point())
    if {value.dtype for value in numbers} == {torch.float64}:
        model = model.double()
    try:
        model.load_weights(parsed.weights)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return model


def check_weights(path: Path, config: Settings, weights: StateDict) -> None:
    """CheckpointError where `weights` are not the parameters of a model of `config`, of
    floating-point type, and finite.
    """
    if isinstance(config, ModelConfig) and (
        config.n_layers > len(weights) or config.depth > MAX_DEPTH
    ):
        raise CheckpointError(
            f"{path}: its configuration speaks of {config.depth:,} blocks, its {len(weights):,} "
            f"tensors of fewer (at most {MAX_DEPTH:,} are served)"
        )
    check_shapes(
        path,
        parameter_shapes(config),
        weights,
        holder="state dict ",
        advice="; the model diverged, so open an earlier checkpoint",
    )


def check_shapes(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, Tensor],
    holder: str = "",
    advice: str = "",
) -> None:
    """CheckpointError where one of `shapes` is not among `tensors`, or not of that shape, of
    floating-point type, and finite.

    holder: what lacks a tensor, in words; advice: what to do about values that are not finite.
    """
    for name, shape in shapes.items():
        value = tensors.get(name)
        if value is None:
            raise CheckpointError(f"{path}: {holder}lacks {name}, shape {shape}")
        if tuple(value.shape) != tuple(shape):
            raise CheckpointError(
                f"{path}: {name}: got shape {tuple(value.shape)}, expected {shape}"
            )
        if value.dtype not in NUMBERS:
            kind = str(value.dtype).removeprefix("torch.")
            raise CheckpointError(
                f"{path}: {name} holds {kind} numbers, expected floating-point ones"
            )
        least, most = torch.aminmax(value) if value.numel() else (value, value)
        if not bool(torch.isfinite(least).all() and torch.isfinite(most).all()):
            wrong = int((~torch.isfinite(value)).sum())
            raise CheckpointError(
                f"{path}: {name} holds {wrong:,} of {value.numel():,} values that are not "
                f"finite{advice}"
            )


def fill_zeros(config: ModelConfig, weights: dict[str, Tensor]) -> list[str]:
    """Add zeros for positions and biases that `weights` lack; the names of what was added."""
    shapes = parameter_shapes(config)
    missing = [
        name
        for name in shapes
        if name not in weights and re.search(r"\.b(_\w+)?$|^pos_embed\.W_pos$", name)
    ]
    for name in missing:
        weights[name] = weights["embed.W_E"].new_zeros(shapes[name])
    return missing


def override(path: Path, parsed: ParsedCheckpoint, changes: Mapping[str, Any]) -> ParsedCheckpoint:
    """`parsed` with `changes` to its model's configuration, which are then assumed no longer.

    Raises:
        CheckpointError: a model that brings its own configuration.
        UnknownNameError: no such field of the model; ParameterError: a value out of range.
    """
    if not changes:
        return parsed
    if not isinstance(parsed.config, Settings):
        raise CheckpointError(
            f"{path}: brings its own configuration, so {', '.join(changes)} cannot be set"
        )
    values = parsed.config.to_dict() | dict(changes)
    if "n_heads" in changes and "d_head" not in changes and isinstance(parsed.config, ModelConfig):
        width, n_heads = parsed.config.n_heads * (parsed.config.d_head or 0), changes["n_heads"]
        if not isinstance(n_heads, int) or n_heads < 1 or width % n_heads:
            raise ParameterError(f"model: n_heads={n_heads!r}: expected a divisor of {width}")
        values["d_head"] = width // n_heads
    if "d_vocab_out" in changes:
        values["output_sizes"] = None
    config = type(parsed.config).from_dict(values)
    weights = parsed.reshape(config) if parsed.reshape is not None else parsed.weights
    return dataclasses.replace(
        parsed,
        config=config,
        weights=_with_classes(weights, config) if "d_vocab_out" in changes else weights,
        assumed={name: item for name, item in parsed.assumed.items() if name not in changes},
        extra={**parsed.extra, "set": dict(changes)},
    )


def _with_classes(weights: StateDict, config: Settings) -> dict[str, Tensor]:
    """`weights` with the classes of `config`: those past the file's are never answered, since their
    bias is `NEVER`; those past the configuration's are left out.
    """
    classes, unembed = getattr(config, "d_vocab_out", 0), weights.get("unembed.W_U")
    if unembed is None or unembed.dim() != 2:
        return dict(weights)
    changed = dict(weights)
    bias = weights.get("unembed.b_U", unembed.new_zeros(unembed.shape[1]))
    more = classes - unembed.shape[1]  # below zero F.pad cuts off
    changed["unembed.W_U"] = F.pad(unembed, (0, more))
    changed["unembed.b_U"] = F.pad(bias, (0, more), value=NEVER)
    return changed


# --- the task -------------------------------------------------------------------------------------
def choose_task(
    path: Path,
    parsed: ParsedCheckpoint,
    task: str | Task | None,
    parameters: Mapping[str, Any],
) -> Task | None:
    """The caller's task, by name or itself, or the file's with the caller's changes; None where
    nobody names one.

    Raises:
        CheckpointError: parameters without a task, or a task of the file that cannot be made here.
        UnknownNameError, ParameterError: the caller's task or parameters are wrong.
    """
    if isinstance(task, Task):
        return _with_parameters(task, parameters)
    if task is not None and task != parsed.task:
        return TASKS[task].from_dict(parameters)
    if parsed.task is None:
        if parameters:
            raise CheckpointError(
                f"{path}: does not say which task it was trained on, so "
                f"{', '.join(parameters)} belongs to none; name the task too"
            )
        return None
    if parsed.task not in TASKS:
        raise CheckpointError(
            f"{path}: the task it names cannot be made: unknown task {parsed.task!r}; give the "
            "task itself, mechint.load(path, task=MyTask(...)) or --plugin FILE.py:NAME, or name "
            "another"
        )
    try:
        of_file = TASKS[parsed.task].from_dict(parsed.parameters)
    except MechintError as error:
        raise CheckpointError(
            f"{path}: the task it names cannot be made: {error}; name another one"
        ) from error
    return _with_parameters(of_file, parameters)


def _with_parameters(task: Task, parameters: Mapping[str, Any]) -> Task:
    return type(task).from_dict(task.to_dict() | dict(parameters)) if parameters else task


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


SET_ITS_PARAMETERS = "give the parameters it was trained with (--set)"
MAX_UNUSED = 8
"""Tokens that a task may leave unused, such as a pad; of a language model any number."""


def fit(path: Path, parsed: ParsedCheckpoint, task: Task | None) -> ParsedCheckpoint:
    """`parsed` as the task needs it: tokens past the task's are left out of the embedding, and
    classes that the task never asks for of the unembedding, both listed as assumed.

    Raises:
        CheckpointError: the model does not fit the task, or fits it under other parameters exactly.
    """
    config = parsed.config
    if task is None:
        return parsed
    if not isinstance(config, ModelConfig):
        from mechint.models.pair_network import PairNetworkConfig

        is_pair = isinstance(config, PairNetworkConfig)
        return _fit_pair_network(path, parsed, config, task) if is_pair else parsed
    wrong = misfits(config, task)
    exact = (config.d_vocab, config.d_vocab_out) == (task.d_vocab, task.d_vocab_out)
    tokens_are_classes = config.d_vocab_out == config.d_vocab == task.d_vocab
    fitting = [] if exact or tokens_are_classes else propose_moduli(config)
    others = [text for text in fitting if text.startswith(f"--task {task.name} ")]
    if wrong or others:
        wrong = wrong or [f"d_vocab={config.d_vocab} in the file, {task.d_vocab} in the task"]
        hint = _hint_to_leave_out_task(path, parsed, task)
        if hint is None and fitting:
            hint = f"{' or '.join(fitting)} would fit"
        if hint is None and config.d_vocab_out < task.d_vocab_out:
            value = f"model.d_vocab_out={task.d_vocab_out}"
            hint = f"where the answers it lacks never occur, --set {value}"
        raise CheckpointError(
            f"{path}: does not fit {task.name}: {'; '.join(wrong)}; {hint or SET_ITS_PARAMETERS}"
        )
    sizes = tuple(output.n_classes for output in task.outputs)
    weights, assumed, extra = dict(parsed.weights), dict(parsed.assumed), dict(parsed.extra)
    unused, surplus = config.d_vocab - task.d_vocab, config.d_vocab_out - task.d_vocab_out
    if unused:
        weights["embed.W_E"] = weights["embed.W_E"][: task.d_vocab]
        why = f"the file has {config.d_vocab} tokens, of which the data of the task hold the first"
        assumed["d_vocab"] = Assumption(task.d_vocab, f"{why} {task.d_vocab}")
    if surplus:
        for name in {"unembed.W_U", "unembed.b_U"} & set(weights):
            weights[name] = weights[name][..., : task.d_vocab_out]
        extra["classes_left_out"] = surplus
        if not tokens_are_classes:
            why = f"the file has {config.d_vocab_out} classes, of which the task asks for the first"
            assumed["d_vocab_out"] = Assumption(task.d_vocab_out, f"{why} {task.d_vocab_out}")
    changed = dataclasses.replace(
        config, d_vocab=task.d_vocab, d_vocab_out=task.d_vocab_out, output_sizes=sizes
    )
    if changed == config:
        return parsed
    return dataclasses.replace(
        parsed, config=changed, weights=weights, assumed=assumed, extra=extra
    )


def _fit_pair_network(
    path: Path, parsed: ParsedCheckpoint, config: PairNetworkConfig, task: Task
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
            f"{_hint_to_leave_out_task(path, parsed, task) or SET_ITS_PARAMETERS}"
        )
    return dataclasses.replace(parsed, config=dataclasses.replace(config, n_ctx=task.n_ctx))


def _hint_to_leave_out_task(path: Path, parsed: ParsedCheckpoint, task: Task) -> str | None:
    """Name the task of the file in words, where it fits and is another one than `task`."""
    try:
        of_file = choose_task(path, parsed, None, {})
        if of_file is None or of_file == task:
            return None
        fit(path, parsed, of_file)
    except CheckpointError:
        return None
    p = getattr(of_file, "p", None)
    sizes = "" if p is None else f" with p={p}"
    return f"the file names {of_file.name}{sizes}; leave out --task and --set"


def propose_moduli(config: ModelConfig) -> list[str]:
    """Tasks with a modulus p under which the model's vocabulary, answers and positions fit, as
    command-line text.
    """
    options = []
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
                options.append(" ".join([f"--task {name}", *set_options(fitting)]))
    return options


def _suits(config: ModelConfig, family: type[Task], parameters: Mapping[str, Any]) -> bool:
    try:
        task = family.from_dict(parameters)
    except MechintError:
        return False
    return task.n_ctx == config.n_ctx and not misfits(config, task)
