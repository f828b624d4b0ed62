"""Holds calls to the shapes in their signatures: what the import hook of conftest applies.

Only annotations of jaxtyping are checked, by ``isinstance``, which binds the names of axes within a
call. Nothing is drawn at random, since tests compare the global random states. A function that is
called in a loop is checked at its first `ALWAYS` calls, then at one in `EVERY`: a training step in
the tests is not to wait for its checks.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxtyping import AbstractArray

ALWAYS, EVERY = 300, 50


def is_shape(annotation: Any) -> bool:
    """Whether it is ``Float[Tensor, "…"]``, or has one within: ``Float[…] | None``,
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
    """Whether `value` is what a shape says; members that are not shapes fit what is no tensor."""
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


def check_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which raises TypeError for what it takes or returns of another shape."""
    signature = inspect.signature(function)
    shapes = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if is_shape(parameter.annotation)
    }
    returns = signature.return_annotation
    if not shapes and not is_shape(returns):
        return function

    calls = itertools.count()

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        call = next(calls)
        if call >= ALWAYS and call % EVERY:
            return function(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        for name, annotation in shapes.items():
            if name in bound.arguments and not fits(bound.arguments[name], annotation):
                got = getattr(bound.arguments[name], "shape", bound.arguments[name])
                raise TypeError(f"{function.__qualname__}: {name} is {got}; expected {annotation}")
        result = function(*args, **kwargs)
        if is_shape(returns) and not fits(result, returns):
            raise TypeError(f"{function.__qualname__} returns {result!r}; expected {returns}")
        return result

    return checked
