"""``--plugin file.py:Class``: a task or a probe in a file of one's own, for this command."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from mechint.errors import MechintError, ParameterError
from mechint.registry import PROBES, TASKS

PLUGINS = "mechint.plugins"
"""Where a command finds the plug-ins that it was given, in click's context."""


def load_plugin(text: str) -> str:
    """Register the task or probe that `text` names, ``path/file.py:Class``; returns its name.

    The file is run, as any Python that is imported; its folder is put on the import path, so that
    it may import its neighbors and that worker processes find it.

    Raises:
        ParameterError: no such file or class, or neither a task nor a probe.
        MechintError: the file does not run, or the name is taken.
    """
    from mechint.probe import Probe
    from mechint.task import Task

    where = f"--plugin {text}"
    path, colon, name = text.rpartition(":")
    file = Path(path)
    if not colon or not name.isidentifier() or file.suffix != ".py":
        raise ParameterError(f"{where}: expected FILE.py:CLASS")
    if not file.is_file():
        raise ParameterError(f"{where}: there is no file {path}")
    module = _imported(file.resolve(), where)
    kind = getattr(module, name, None)
    if kind is None:
        raise ParameterError(f"{where}: {path} defines no {name}")
    if not isinstance(kind, type) or not issubclass(kind, Task | Probe):
        raise ParameterError(f"{where}: {name} is neither a Task nor a Probe")
    registered = getattr(kind, "name", None)
    if not isinstance(registered, str) or not registered:
        raise ParameterError(
            f"{where}: {name} has no class attribute `name`, as the registry needs"
        )
    registry = TASKS if issubclass(kind, Task) else PROBES
    registry.add(registered, f"{module.__name__}:{name}")
    return registered


def _imported(file: Path, where: str) -> ModuleType:
    """The module of `file`, imported under its own name."""
    name = file.stem
    if not name.isidentifier():
        raise ParameterError(f"{where}: {file.name} is not a module's name; rename the file")
    known = sys.modules.get(name)
    if known is None and importlib.util.find_spec(name) is None:
        sys.path.append(str(file.parent))
        importlib.invalidate_caches()
    elif _source(known, name) != file:
        raise ParameterError(f"{where}: another module is called {name!r}; rename the file")
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever a stranger's file raises
        raise MechintError(f"{where}: {type(error).__name__}: {error}") from error


def _source(module: ModuleType | None, name: str) -> Path | None:
    spec = importlib.util.find_spec(name) if module is None else None
    origin = getattr(module, "__file__", None) if module is not None else spec and spec.origin
    return Path(origin).resolve() if origin else None


def _load(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
    if not ctx.resilient_parsing:  # completion runs nobody's file
        ctx.meta[PLUGINS] = values
        for value in values:
            load_plugin(value)


def plugin_option(command: Any) -> Any:
    """The option ``--plugin``; it is read before names of tasks and probes are."""
    return click.option(
        "--plugin",
        multiple=True,
        metavar="FILE.py:CLASS",
        callback=_load,
        expose_value=False,
        is_eager=True,
        help="A task or probe of your own; the file is run. May be repeated.",
    )(command)
