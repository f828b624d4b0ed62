"""From a path to a Checkpoint: which file, which format, which model on which device."""

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
from mechint.checkpoints.fitting import choose_task, fit
from mechint.checkpoints.reader import Found
from mechint.errors import CheckpointError, MechintError
from mechint.models import build, find_device
from mechint.registry import CHECKPOINT_FORMATS
from mechint.subject import Subject
from mechint.task import Task

NAMES = ("ckpt.pt", "model.pt", "ckpt.safetensors")
"""What the checkpoint in a directory is called; the first that is there is read."""

Weights = Callable[[], Mapping[str, Tensor]]


def load_checkpoint(
    path: str | Path,
    task: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> Checkpoint:
    """Open a checkpoint of any registered format.

    Args:
        path: a checkpoint file; a run directory (its last checkpoint, the others as `series`); or a
            Hugging Face model directory.
        task: name of the task, where the file does not say or another one is wanted.
        parameters: fields of the task; on their own they change the task that the file names.
        device: "cpu", "cuda" or "cuda:1".

    Raises:
        CheckpointError: missing, empty, truncated, foreign or hostile file, a directory without a
            model, or a model that does not fit the task.
        ParameterError: a device that is not there, or a task parameter out of range.
        UnknownNameError: no such task, or no such parameter.
    """
    place = find_device(device)
    path = Path(path)
    file, series = _locate(path)
    name, found = recognise(file, None if file.is_dir() else read_content(file))
    chosen = choose_task(file, found, task, parameters or {})
    within = {step: _fitted(file, found, weights, chosen) for step, weights in found.series.items()}
    found = fit(file, found, chosen)
    model = found.model if found.model is not None else _model(file, found)
    if place.type != "cpu":
        with contextlib.redirect_stdout(
            sys.stderr
        ):  # a bridge announces its moves where results go
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
        series={step: _weights_at(member, chosen) for step, member in series.items()} or within,
    )


def load(
    path: str | Path, task: str | None = None, device: str = "cpu", **parameters: Any
) -> Subject:
    """Open a checkpoint file or a run directory as a Subject.

    Args:
        path: a checkpoint of any format that `mechint.checkpoints` recognises, or a run directory
            (its last checkpoint, the others as `series`).
        task: name of the task, where the file does not say; `parameters` are the task's.
        device: "cpu" or "cuda".

    Raises:
        CheckpointError: missing, truncated, foreign or hostile file, or one that does not fit the
            task.
    """
    return load_checkpoint(path, task=task, parameters=parameters, device=device).subject()


# --- which file -----------------------------------------------------------------------------------
def _locate(path: Path) -> tuple[Path, dict[int, Path]]:
    """The file (or model directory) to read, and step → file of the checkpoints in a run
    directory.
    """
    if not path.is_dir():
        return path, {}
    steps = {
        int(match[1]): file
        for file in (path / "checkpoints").glob("step-*.pt")
        if (match := re.fullmatch(r"step-(\d+)", file.stem))
    }
    steps = dict(sorted(steps.items()))
    for name in NAMES:
        if (path / name).is_file():
            return path / name, steps
    if steps:
        return list(steps.values())[-1], steps
    runs = sorted(entry.name for entry in path.glob("seed-*") if entry.is_dir())
    if runs:
        raise CheckpointError(
            f"{path}: holds {len(runs)} runs; choose one of "
            f"{', '.join(runs[:12])}{', …' if len(runs) > 12 else ''}"
        )
    return path, {}


def _weights_at(file: Path, task: Task | None) -> Weights:
    """A function that reads the weights in `file` when they are wanted."""
    return lambda: fit(file, recognise(file, read_content(file))[1], task).weights


def _fitted(file: Path, found: Found, weights: Weights, task: Task | None) -> Weights:
    """`weights`, as the task needs them."""
    return lambda: fit(file, dataclasses.replace(found, weights=weights()), task).weights


# --- which format ---------------------------------------------------------------------------------
def recognise(path: Path, content: Any) -> tuple[str, Found]:
    """Name of the format of `content`, and what its reader found; CheckpointError when no reader
    knows it.
    """
    foreign = [name for name in CHECKPOINT_FORMATS if name not in CHECKPOINT_FORMATS.builtins]
    for name in [*foreign, *CHECKPOINT_FORMATS.builtins]:
        try:
            reader = CHECKPOINT_FORMATS[name]
        except MechintError as error:  # a broken plug-in must not stop the others
            warnings.warn(str(error), stacklevel=2)
            continue
        try:
            found = reader(path, content)
        except MechintError:
            raise
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:  # foreign data break in many ways
            raise CheckpointError(
                f"{path}: taken for {name}, but damaged: {type(error).__name__}: {error}"
            ) from error
        if found is not None:
            return name, found
    known = ", ".join(CHECKPOINT_FORMATS)
    if content is None:
        raise CheckpointError(
            f"{path}: a directory without a model: no {' or '.join(NAMES)}, no "
            "checkpoints/step-*.pt, no Hugging Face config.json"
        )
    raise CheckpointError(f"{path}: {_summary(content)}; no format knows it (formats: {known})")


def _summary(content: Any) -> str:
    if not isinstance(content, Mapping):
        return f"holds a {type(content).__name__}, not a state dict"
    names = [str(name) for name in content]
    return (
        f"holds {', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}"
        if names
        else "holds an empty mapping"
    )


# --- which model ----------------------------------------------------------------------------------
def _model(path: Path, found: Found) -> Any:
    """A model of the found configuration with the found weights, in float64 where they are."""
    model = build(found.config)
    if all(
        value.dtype == torch.float64
        for value in found.weights.values()
        if value.is_floating_point()
    ):
        model = model.double()
    try:
        model.load_weights(found.weights)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return model
