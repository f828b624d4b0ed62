"""Tasks whose algorithm is known: ``tasks.modular_arithmetic(p=113)``.

Every entry of the registry, plug-ins included, is a function here, imported when first used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mechint.registry import TASKS
from mechint.registry.registry import attribute, documented, entry_named

if TYPE_CHECKING:
    from mechint.task import Task

__all__ = ["make", "names"]


def names() -> list[str]:
    """Names of all tasks, sorted."""
    return TASKS.names()


def make(name: str, preset: str | None = None, **parameters: Any) -> Task:
    """Return the task `name` with `parameters`, on top of those of a preset where one is named.

    Raises:
        UnknownNameError, ParameterError: there is no such task, preset or parameter.
    """
    known = {} if preset is None else TASKS[name].preset(preset)["task"]
    return TASKS[name].from_dict({**known, **parameters})


def __getattr__(python_name: str) -> Callable[..., Task]:
    name = entry_named(TASKS, python_name, __name__)

    def call(**parameters: Any) -> Task:
        return make(name, **parameters)

    return documented(call, TASKS[name], TASKS[name].__name__)


def __dir__() -> list[str]:
    return sorted([*__all__, *map(attribute, TASKS)])


if __name__ == "tasks":  # the short name is an alias of the same module objects
    sys.modules[__name__] = importlib.import_module("mechint.tasks")
