"""Holds calls to the shapes in their signatures: what the import hook of conftest applies.

Only annotations of jaxtyping are checked, by ``isinstance``, which binds the names of axes within a
call; a function that has none stays as it is. Nothing is drawn at random, since tests compare the
global random states. A function that is called in a loop is checked at its first `ALWAYS` calls,
then at one in `EVERY`: a training step in the tests is not to wait for its checks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxtyping import AbstractArray, jaxtyped

ALWAYS, EVERY = 300, 50


def is_shape(annotation: Any) -> bool:
    """Return whether it is ``Float[Tensor, "…"]``, or has one within: ``Float[…] | None``,
    ``tuple[Float[…], int]``, ``dict[str, Float[…]]``.
    """
    if isinstance(annotation, type) and issubclass(annotation, AbstractArray):
        return True
    checked = (typing.Union, types.UnionType, tuple, *SEQUENCES, *MAPPINGS)
    return typing.get_origin(annotation) in checked and any(
        map(is_shape, typing.get_args(annotation))
    )


SEQUENCES = (list, Sequence)
MAPPINGS = (dict, Mapping)


def fits(value: Any, annotation: Any) -> bool:
    """Return whether `value` has the shape; members that are not shapes fit what is no tensor."""
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if not is_shape(annotation):
        return True
    if origin in (typing.Union, types.UnionType):
        shapes = [member for member in members if is_shape(member)]
        others = len(shapes) < len(members) and not hasattr(value, "shape")
        return others or any(fits(value, member) for member in shapes)
    if origin is tuple:
        each = members[:1] * len(value) if members[1:] == (...,) else members
        return len(each) == len(value) and all(map(fits, value, each))
    if origin in SEQUENCES:
        return all(fits(item, members[0]) for item in value)
    if origin in MAPPINGS:
        return all(fits(item, members[1]) for item in value.values())
    return isinstance(value, annotation)


def shapes_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Parameter, or ``return`` → its annotation, where that is a shape."""
    shapes = {}
    for name, annotation in function.__annotations__.items():
        if isinstance(annotation, str):
            with contextlib.suppress(NameError):  # a name that only type checkers import
                annotation = eval(annotation, function.__globals__)
        if is_shape(annotation):
            shapes[name] = annotation
    return shapes


def check_shapes(checked: Any) -> Any:
    """The function, which raises TypeError for what it takes or returns of another shape; or the
    class, whose fields are held to their shapes where it is a dataclass.
    """
    if isinstance(checked, type):
        own = vars(checked).get("__init__")
        if dataclasses.is_dataclass(checked) and own and not hasattr(own, "__wrapped__"):
            checked.__init__ = check_shapes(own)
        return checked
    shapes = shapes_of(checked)
    if not shapes:
        return checked
    returns, signature, calls = (
        shapes.pop("return", None),
        inspect.signature(checked),
        itertools.count(),
    )

    @functools.wraps(checked)
    def call(*args: Any, **kwargs: Any) -> Any:
        at = next(calls)
        if at >= ALWAYS and at % EVERY:
            return checked(*args, **kwargs)
        with jaxtyped("context"):
            given = signature.bind(*args, **kwargs).arguments
            for name, annotation in shapes.items():
                if name in given and not fits(given[name], annotation):
                    got = getattr(given[name], "shape", given[name])
                    raise TypeError(
                        f"{checked.__qualname__}: {name} is {got}; expected {annotation}"
                    )
            result = checked(*args, **kwargs)
            if returns is not None and not fits(result, returns):
                raise TypeError(f"{checked.__qualname__} returns {result!r}; expected {returns}")
            return result

    return call
