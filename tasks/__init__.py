"""Tasks whose algorithm is known, one module per family: ``tasks.modular_arithmetic(p=113)``.

`names` lists what there is, plug-ins included; nothing is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mechint.namespace import Call, install, signature
from mechint.registry import TASKS

if TYPE_CHECKING:
    from mechint.task import Task


def make(name: str, **parameters: Any) -> Task:
    """The task `name` of the registry with `parameters`; UnknownNameError or ParameterError for
    what does not fit.
    """
    return TASKS[name].from_dict(parameters)


def _make(name: str, kind: type) -> Call:
    def call(**parameters: Any) -> Task:
        return make(name, **parameters)

    vars(call)["__signature__"] = signature(kind, [], kind.__name__)
    return call


__all__ = ["make", "names"]  # pyright: ignore[reportUnsupportedDunderAll]

install(__name__, TASKS, _make)
