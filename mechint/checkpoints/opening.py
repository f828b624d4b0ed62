"""From a path to a Checkpoint: which file, which format, which task, which device."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mechint.checkpoints.checkpoint import Checkpoint
from mechint.checkpoints.content import read_content
from mechint.checkpoints.found import Found, SafeTensors
from mechint.checkpoints.native import save_checkpoint
from mechint.config import ModelConfig
from mechint.errors import CheckpointError, MechintError
from mechint.files import replacing
from mechint.models import build, find_device
from mechint.registry import CHECKPOINT_FORMATS, TASKS
from mechint.task import Task

NAMES = ("ckpt.pt", "model.pt", "ckpt.safetensors")
"""What the checkpoint in a directory is called; the first that is there is read."""


def load_checkpoint(path: str | Path, task: str | None = None, parameters: Mapping[str, Any] | None = None, device: str = "cpu") -> Checkpoint:
    """Open a checkpoint of any registered format.

    Args:
        path: a checkpoint file; a run directory (its last checkpoint, the others as `series`); or a Hugging Face model
            directory.
        task: name of the task, where the file does not say or another one is wanted.
        parameters: fields of the task; on their own they change the task that the file names.
        device: "cpu", "cuda" or "cuda:1".

    Raises:
        CheckpointError: missing, empty, truncated, foreign or hostile file, a directory without a model, or a model that
            does not fit the task.
        ParameterError: a device that is not there, or a task parameter out of range.
        UnknownNameError: no such task, or no such parameter.
    """
    place = find_device(device)
    path = Path(path)
    file, series = _locate(path)
    name, found = recognise(file, None if file.is_dir() else read_content(file))
    chosen = _task(file, found, task, parameters or {})
    found = _fit(file, found, chosen)
    model = found.model if found.model is not None else _model(file, found)
    if place.type != "cpu":
        with contextlib.redirect_stdout(sys.stderr):  # a bridge announces its moves where results go
            model = model.to(place)
    model.eval()
    return Checkpoint(
        path=file,
        format=name,
        model=model,
        config=found.config,
        task=chosen,
        step=found.step,
        metrics=dict(found.metrics),
        seed=found.seed,
        train=found.train,
        extra=dict(found.extra),
        series={step: _weights_at(member, chosen) for step, member in series.items()},
    )


# --- which file -------------------------------------------------------------------------------------------------------
def _locate(path: Path) -> tuple[Path, dict[int, Path]]:
    """The file (or model directory) to read, and step → file of the checkpoints in a run directory."""
    if not path.is_dir():
        return path, {}
    steps = {int(match[1]): file for file in (path / "checkpoints").glob("step-*.pt") if (match := re.fullmatch(r"step-(\d+)", file.stem))}
    steps = dict(sorted(steps.items()))
    for name in NAMES:
        if (path / name).is_file():
            return path / name, steps
    if steps:
        return list(steps.values())[-1], steps
    runs = sorted(entry.name for entry in path.glob("seed-*") if entry.is_dir())
    if runs:
        raise CheckpointError(f"{path}: holds {len(runs)} runs; choose one of {', '.join(runs[:12])}{', …' if len(runs) > 12 else ''}")
    return path, {}


def _weights_at(file: Path, task: Task | None) -> Callable[[], Mapping[str, Tensor]]:
    """A function that reads the weights in `file` when they are wanted."""
    return lambda: _fit(file, recognise(file, read_content(file))[1], task).weights


# --- which format -----------------------------------------------------------------------------------------------------
def recognise(path: Path, content: Any) -> tuple[str, Found]:
    """Name of the format of `content`, and what its reader found; CheckpointError when no reader knows it."""
    foreign = [name for name in CHECKPOINT_FORMATS if name not in CHECKPOINT_FORMATS.builtins]
    for name in [*foreign, *CHECKPOINT_FORMATS.builtins]:
        try:
            reader = CHECKPOINT_FORMATS[name]
        except MechintError as error:  # a broken plug-in must not stop the others
            warnings.warn(str(error), stacklevel=2)
            continue
        found = reader(path, content)
        if found is not None:
            return name, found
    known = ", ".join(CHECKPOINT_FORMATS)
    if content is None:
        raise CheckpointError(f"{path}: a directory without a model: no {' or '.join(NAMES)}, no checkpoints/step-*.pt, no Hugging Face config.json")
    raise CheckpointError(f"{path}: {_summary(content)}; no format knows it (formats: {known})")


def _summary(content: Any) -> str:
    if not isinstance(content, Mapping):
        return f"holds a {type(content).__name__}, not a state dict"
    names = [str(name) for name in content]
    return f"holds {', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}" if names else "holds an empty mapping"


# --- which task -------------------------------------------------------------------------------------------------------
def _task(path: Path, found: Found, name: str | None, parameters: Mapping[str, Any]) -> Task | None:
    """The caller's task, or the file's with the caller's changes; None where nobody names one."""
    if name is not None and name != found.task:
        return TASKS[name].from_dict(parameters)
    if found.task is None:
        if parameters:
            raise CheckpointError(f"{path}: does not say which task it was trained on, so {', '.join(parameters)} belongs to none; name the task too")
        return None
    try:
        made = TASKS[found.task].from_dict(found.parameters)
    except MechintError as error:
        raise CheckpointError(f"{path}: the task it names cannot be made: {error}; name another one") from error
    return type(made).from_dict(made.to_dict() | dict(parameters)) if parameters else made


def _fit(path: Path, found: Found, task: Task | None) -> Found:
    """`found` as the task needs it; CheckpointError when the model does not fit the task.

    A model whose answers range over its whole vocabulary keeps the classes of the task, its first tokens: what else it
    could say ("=") is never asked for.
    """
    config = found.config
    if task is None or not isinstance(config, ModelConfig):
        return found
    got = {"d_vocab": config.d_vocab, "d_vocab_out": config.d_vocab_out}
    expected = {"d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out}
    surplus = config.d_vocab_out == config.d_vocab == task.d_vocab > task.d_vocab_out and len(task.outputs) == 1
    wrong = [name for name in got if got[name] != expected[name] and not (name == "d_vocab_out" and surplus)]
    if wrong:
        shown = "; ".join(f"{name}={got[name]} in the file, {expected[name]} in the task" for name in wrong)
        raise CheckpointError(f"{path}: does not fit {task.name}: {shown}; give the parameters it was trained with (--set)")
    if config.n_ctx < task.n_ctx:
        raise CheckpointError(f"{path}: does not fit {task.name}: n_ctx={config.n_ctx} in the file, {task.n_ctx} in the task")
    sizes = tuple(output.n_classes for output in task.outputs)
    if not surplus:
        return found if config.output_sizes == sizes else dataclasses.replace(found, config=dataclasses.replace(config, output_sizes=sizes))
    classes = task.d_vocab_out
    unembed = {name: value[..., :classes] for name, value in found.weights.items() if name in ("unembed.W_U", "unembed.b_U")}
    return dataclasses.replace(
        found,
        config=dataclasses.replace(config, d_vocab_out=classes, output_sizes=sizes),
        weights={**found.weights, **unembed},
        extra={**found.extra, "classes_left_out": config.d_vocab_out - classes},
    )


def _model(path: Path, found: Found) -> Any:
    """A model of the found configuration with the found weights, in float64 where they are."""
    model = build(found.config)
    if all(value.dtype == torch.float64 for value in found.weights.values() if value.is_floating_point()):
        model = model.double()
    try:
        model.load_weights(found.weights)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return model


# --- to another format ------------------------------------------------------------------------------------------------
def convert(source: str | Path, target: str | Path, format: str | None = None, task: str | None = None, parameters: Mapping[str, Any] | None = None) -> str:
    """Write the checkpoint at `source` in another format; returns the name of the format written.

    Args:
        target: ends in .safetensors for "safetensors", else "mechint" unless `format` says "transformer-lens": the bare
            state dict that TransformerLens's HookedTransformer loads (without its buffers).
        task, parameters: as for `load_checkpoint`; the file written then names the task.

    Raises:
        CheckpointError: `source` cannot be read, or the format cannot express the model.
        RunError: `target` cannot be written.
    """
    target = Path(target)
    natural = "safetensors" if target.suffix == ".safetensors" else "mechint"
    format = format or natural
    if format not in ("mechint", "safetensors", "transformer-lens") or (format != "transformer-lens" and format != natural):
        raise CheckpointError(f"{target}: cannot be written as {format}; expected mechint (.pt), safetensors (.safetensors) or transformer-lens (.pt)")
    opened = load_checkpoint(source, task=task, parameters=parameters)
    if not hasattr(opened.model, "weights"):
        raise CheckpointError(f"{opened.path}: a {opened.format} model is none of mechint's architectures and stays in its own format")
    if format == "transformer-lens":
        _save_transformer_lens(target, opened)
    else:
        known = {"task": opened.task, "step": opened.step, "metrics": opened.metrics, "train": opened.train, "seed": opened.seed}
        save_checkpoint(target, config=opened.config, weights=opened.model.weights(), **known)
    return format


def _save_transformer_lens(target: Path, opened: Checkpoint) -> None:
    config = opened.config
    if not isinstance(config, ModelConfig):
        raise CheckpointError(f"{opened.path}: {config.label()} is no transformer; TransformerLens has no such model")
    beyond = {"n_loops": config.n_loops > 1, "attention_rate": config.attention_rate < 1, "read_layers": config.read_layers is not None}
    if any(beyond.values()):
        names = ", ".join(name for name, used in beyond.items() if used)
        raise CheckpointError(f"{opened.path}: uses {names}, which TransformerLens's HookedTransformer cannot express")
    with replacing(target) as beside, beside.open("wb") as file:
        torch.save(opened.model.transformer_lens_state(), file)


__all__ = ["SafeTensors", "convert", "load_checkpoint", "recognise"]
