"""What the shell is told when a word is half typed: names of the registries, settings, presets.

Names and settings of what comes with mechint are read without importing it, so that an answer comes
at once.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, split_arg_string

from mechint.errors import MechintError
from mechint.namespace import attribute
from mechint.registry import PROBES, STUDIES, TASKS, Registry

Items = list[CompletionItem]
NOT_SETTINGS = ("subject", "seed", "answer")
"""Parameters of a probe's function that are no settings of the probe."""
LOGGERS = ("tensorboard", "wandb")
"""Where metrics can be sent."""


def tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Names of tasks."""
    return _starting(TASKS, incomplete)


def probes(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Names of probes."""
    return _starting(PROBES, incomplete)


def probe_lists(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Names of probes, the last of a list with commas."""
    before, comma, last = incomplete.rpartition(",")
    named = before.split(",")
    found = (name for name in PROBES if name not in named)
    return _starting([f"{before}{comma}{name}" for name in found], f"{before}{comma}{last}")


def loggers(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Where metrics can be sent."""
    return _starting(LOGGERS, incomplete)


def studies(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Names of studies."""
    return _starting(STUDIES, incomplete)


def tasks_or_paths(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Names of tasks; paths where none begins like that."""
    return _starting(TASKS, incomplete) or [CompletionItem(incomplete, type="file")]


def presets(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Presets of the task that the line names. Cost: the import of the task."""
    name = _task_of(ctx)
    try:
        return _starting(TASKS[name].presets if name else (), incomplete)
    except MechintError:
        return []


def settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """``NAME=`` of what the line's task, model, training and probes can be set to."""
    if "=" in incomplete:
        return []
    command, task = ctx.info_name, _task_of(ctx)
    names = fields_of(TASKS, task) if task else []
    if command in ("train", "sweep"):
        names += model_fields() + train_fields()
    if command == "analyze":
        names += [f"model.{name}" for name in model_fields()]
    for probe in _probes_of(ctx) if command == "analyze" else ():
        names += [f"{probe}.{name}" for name in fields_of(PROBES, probe)]
    return _starting([f"{name}=" for name in dict.fromkeys(names)], incomplete)


def fields_of(registry: Registry[Any], name: str) -> list[str]:
    """The settings of an entry: from the stubs beside our packages, else by importing it.

    >>> fields_of(PROBES, "lens")[:1] == fields_of(TASKS, "nothing")
    False
    """
    package = {"probe": "probes", "task": "tasks"}[registry.kind]
    known = _stubbed(package).get(attribute(name))
    if known is not None:
        return list(known)
    try:
        return [field.name for field in dataclasses.fields(registry[name])]
    except (MechintError, TypeError):
        return []


def model_fields() -> list[str]:
    """Fields of a transformer's configuration."""
    from mechint.config import ModelConfig

    return [field.name for field in dataclasses.fields(ModelConfig)]


def train_fields() -> list[str]:
    """Fields of the training's configuration."""
    from mechint.config import TrainConfig

    return [field.name for field in dataclasses.fields(TrainConfig)]


@cache
def _stubbed(package: str) -> dict[str, tuple[str, ...]]:
    """Function → its settings, from the stub file of `package`; nothing is imported."""
    spec = importlib.util.find_spec(package)
    stub = Path(str(spec and spec.origin)).with_suffix(".pyi")
    if not stub.is_file():
        return {}
    return {
        node.name: tuple(
            argument.arg for argument in node.args.kwonlyargs if argument.arg not in NOT_SETTINGS
        )
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.args.kwonlyargs
    }


def _words(ctx: click.Context) -> list[str]:
    """The words of the line. Click has not parsed those before an option whose value is being
    completed; the shell hands them over in the environment.
    """
    line = split_arg_string(os.environ.get("COMP_WORDS", ""))
    return [*line, *ctx.args, *(str(value) for value in ctx.params.values() if value)]


def _task_of(ctx: click.Context) -> str | None:
    """The task that the line names, if any."""
    return next((word for word in _words(ctx) if word in TASKS), None)


def _probes_of(ctx: click.Context) -> list[str]:
    """The probes that the line names."""
    words = [name for word in _words(ctx) for name in word.split(",")]
    return [name for name in dict.fromkeys(words) if name in PROBES]


def _starting(names: Iterable[str] | Sequence[str], incomplete: str) -> Items:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
