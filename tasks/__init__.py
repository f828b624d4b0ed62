"""Tasks whose algorithm is known, one module a family:
``tasks.make("modular-arithmetic", p=113)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mechint.task import Task


def make(name: str, **parameters: Any) -> Task:
    """The task `name` of the registry with `parameters`; UnknownNameError or ParameterError for
    what does not fit.
    """
    from mechint.registry import TASKS

    return TASKS[name].from_dict(parameters)


__all__ = ["make"]
