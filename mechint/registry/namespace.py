"""Functions named after the entries of a registry: ``probes.fourier(subject, factor=3)``.

`probes` and `tasks` define ``__getattr__`` with the help of this module. Their own modules that
would have the name of an entry begin with an underscore (``probes/_fourier``).
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from mechint.registry import Registry

Call = TypeVar("Call", bound=Callable[..., Any])


def attribute(name: str) -> str:
    """Spell the name of an entry as a Python name.

    >>> attribute("modular-arithmetic")
    'modular_arithmetic'
    """
    return name.replace("-", "_").replace(".", "_")


def entry_named(registry: Registry[Any], python_name: str, package: str) -> str:
    """Return the entry whose Python name is `python_name`; AttributeError with the nearest name."""
    names = {attribute(name): name for name in registry}
    if python_name not in names:
        close = difflib.get_close_matches(python_name, names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close and python_name[0] != "_" else ""
        raise AttributeError(f"module {package!r} has no attribute {python_name!r}{hint}")
    return names[python_name]


def documented(call: Call, kind: type, returns: str) -> Call:
    """Give `call` the docstring of `kind` and a signature that lists its fields as keywords."""
    leading = [
        parameter
        for parameter in inspect.signature(call).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    settings = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
        )
        for field in dataclasses.fields(kind)
    ]
    signature = inspect.Signature([*leading, *settings], return_annotation=returns)
    vars(call).update(__signature__=signature)
    call.__name__ = call.__qualname__ = attribute(getattr(kind, "name", kind.__name__))
    call.__doc__ = kind.__doc__
    return call
