"""Tasks, probes and families of explanations in files of one's own, and how the processes that a
command starts get them.

A file is named ``path/file.py:Class``. What a process was given stands in its environment, by
absolute paths, where the workers that it starts find it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from mechint.errors import MechintError, ParameterError
from mechint.registry import EXPLANATIONS, PROBES, TASKS, Registry, unfinished

PLUGINS = "MECHINT_PLUGINS"
"""Environment variable: the plug-ins that a process and its workers load, as a JSON list."""


def load_plugin(text: str) -> str:
    """Register the task, probe or family of explanations that `text` names,
    ``path/file.py:Class``; returns its name.

    The file is run, as any Python that is imported; its folder is put on the import path, so that
    it may import its neighbors. Processes that this one starts find it in `given_plugins`.

    Raises:
        ParameterError: no such file or class, or no finished one.
        MechintError: the file does not run, or the name is taken.
    """
    from mechint.explanation import Family
    from mechint.probe import Probe
    from mechint.task import Task

    where = f"--plugin {text}"
    path, colon, name = text.rpartition(":")
    file = Path(path)
    if not colon or not name.isidentifier() or file.suffix != ".py":
        raise ParameterError(f"{where}: expected FILE.py:NAME")
    if not file.is_file():
        raise ParameterError(f"{where}: there is no file {path}")
    module = _imported(file.resolve(), where)
    kind = getattr(module, name, None)
    if isinstance(kind, Task | Probe):
        kind = type(kind)
    registered = getattr(kind, "name", None)
    if kind is None:
        raise ParameterError(f"{where}: {path} defines no {name}")
    bases: dict[type, Registry[Any]] = {Task: TASKS, Probe: PROBES, Family: EXPLANATIONS}
    base = next((one for one in bases if isinstance(kind, type) and issubclass(kind, one)), None)
    if base is None:
        raise ParameterError(f"{where}: {name} is no Task, Probe or Family of explanations")
    if not isinstance(registered, str) or not registered:
        raise ParameterError(f"{where}: {name} has no class attribute `name`")
    if not re.fullmatch(r"[\w.+-]{1,60}", registered):
        raise ParameterError(
            f"{where}: {name} is called {registered[:60]!r}; expected letters, digits, - and . "
            "alone, at most 60"
        )
    if reason := unfinished(kind, settings=base is not Family):
        raise ParameterError(f"{where}: {reason}")
    bases[base].add(registered, f"{module.__name__}:{name}")
    given = dict.fromkeys([*given_plugins(), f"{file.resolve()}:{name}"])
    os.environ[PLUGINS] = json.dumps(list(given))
    return registered


def given_plugins() -> list[str]:
    """``/path/file.py:Class`` of all that this process, or the one that started it, was given."""
    return json.loads(os.environ.get(PLUGINS, "[]"))


def load_plugins(texts: Sequence[str]) -> None:
    """Register several, as of the process that started a worker; raises as `load_plugin` does."""
    for text in texts:
        load_plugin(text)


def _imported(file: Path, where: str) -> ModuleType:
    """The module of `file`, imported under its own name or, where another module has that, under a
    name with a digest of its path.
    """
    name, folder = file.stem, str(file.parent)
    if not name.isidentifier():
        raise ParameterError(f"{where}: {file.name} is not a module's name; rename the file")
    if folder not in sys.path:
        sys.path.append(folder)
        importlib.invalidate_caches()
    if _file_of(name) != file:
        name = f"{name}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, "the suffix is .py"
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a stranger's file raises
        del sys.modules[name]
        raise MechintError(f"{where}: {type(error).__name__}: {error}") from error
    return module


def _file_of(name: str) -> Path | None:
    """File of the module that ``import name`` gives."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # of __main__
        return None
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None
