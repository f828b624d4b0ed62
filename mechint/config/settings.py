"""Settings: frozen dataclasses whose fields know their range, with JSON in and out.

A task, a probe, a model and a training run are all configured by `Settings`: fields declared with
`setting(...)`, checked when the object is made, listed by `describe`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from mechint.errors import ParameterError, UnknownNameError

LARGEST = 10**6
"""Bound on both sides of numbers whose field names none of its own."""

LONGEST = 10_000
"""Entries of a list, and characters of a text, that a field may hold."""


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Iterable[Any] | None = None,
    longest: int = LONGEST,
) -> Any:
    """A dataclass field with its help text and its range (both ends included) or its choices;
    longest: the most entries of a list, or letters of a text.
    """
    metadata = {"help": help, "low": low, "high": high, "longest": longest}
    metadata["choices"] = None if choices is None else tuple(choices)
    return dataclasses.field(default=default, metadata=metadata)


def _fits(value: Any, hint: Any) -> tuple[bool, Any]:
    """Return whether `value` is of type `hint`, and the value as that type (an int as a float, a
    list as a tuple).
    """
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if type(value) in members:  # so that 3 stays an int in `int | float`
            return True, value
        tried = (_fits(value, member) for member in members)
        return next((one for one in tried if one[0]), (False, value))
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return False, value
        kinds = members[:1] * len(value) if members[1:] == (Ellipsis,) else members
        fitted = [_fits(*pair) for pair in zip(value, kinds, strict=False)]
        whole = len(kinds) == len(value) and all(ok for ok, _ in fitted)
        return whole, tuple(item for _, item in fitted)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping), value
    if hint is Any:
        return True, value
    if hint is type(None):
        return value is None, value
    if hint is bool or isinstance(value, bool):
        return hint is bool and isinstance(value, bool), value
    if hint is float and isinstance(value, int):
        return (True, float(value)) if abs(value) < 10**300 else (False, value)
    return isinstance(value, hint), value


def _name(hint: Any) -> str:
    if hint is type(None):
        return "none"
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_name(member) for member in typing.get_args(hint))
    plain = isinstance(hint, type) and not typing.get_args(hint)
    return hint.__name__ if plain else str(hint).replace("typing.", "")


_hints = functools.cache(typing.get_type_hints)
"""Class → the types of its fields, which `typing` reads from text each time it is asked."""


class Settings:
    """Base of frozen dataclasses whose fields are checked against type and range on creation.

    A subclass that checks more defines ``__post_init__``, calls ``super().__post_init__()`` first,
    and raises ParameterError through `reject`.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__repr__" not in vars(cls):  # @dataclass leaves a class's own __repr__ alone
            cls.__repr__ = Settings.__repr__

    def __repr__(self) -> str:
        """The fields, long values cut."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        parts = [f"{field.name}={shown(getattr(self, field.name), 160)}" for field in fields]
        return f"{type(self).__qualname__}({', '.join(parts)})"

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            ok, value = _fits(value, hints[field.name])
            if not ok:
                self.reject(field.name, _name(hints[field.name]))
            object.__setattr__(self, field.name, value)
            low, high, choices = (field.metadata.get(key) for key in ("low", "high", "choices"))
            members = value if isinstance(value, tuple) else () if value is None else (value,)
            if choices is not None and not all(member in choices for member in members):
                some = "some" if isinstance(value, tuple) else "one"
                self.reject(field.name, f"{some} of {', '.join(map(str, choices))}")
            longest = field.metadata.get("longest", LONGEST)
            if isinstance(value, tuple | str) and len(value) > longest:
                self.reject(field.name, f"at most {longest} entries")
            bottom, top = bounds(low, high)
            for number in members:
                if not isinstance(number, int | float) or isinstance(number, bool):
                    continue
                beyond = (low is not None and number < low) or (high is not None and number > high)
                if beyond or (isinstance(number, float) and not math.isfinite(number)):
                    self.reject(field.name, _range(low, high))
                if not bottom <= number <= top:
                    self.reject(field.name, _range(bottom, top))

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what a task has computed and kept is not for another process."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def reject(self, name: str, expected: str) -> typing.NoReturn:
        """Raise the ParameterError for the field `name`: what was got, what was expected."""
        value = shown(getattr(self, name))
        raise ParameterError(f"{self.label()}: {name}={value}: expected {expected}")

    @classmethod
    def label(cls) -> str:
        """The name of this object in error messages."""
        return getattr(cls, "name", cls.__name__)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values; `from_dict` is its inverse."""
        names = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        return json.loads(json.dumps({name: getattr(self, name) for name in names}))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> typing.Self:
        """Make the object from `to_dict`'s output; UnknownNameError for a field that there is
        not.
        """
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for name in values:
            if name not in known:
                raise UnknownNameError.of(f"{cls.label()} parameter", name, known)
        return cls(**{name: _frozen(value) for name, value in values.items()})

    @classmethod
    def describe(cls) -> list[dict[str, str]]:
        """One row per field: name, type, default, range and help, as text."""
        rows = []
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            low, high, choices = (field.metadata.get(key) for key in ("low", "high", "choices"))
            span = ", ".join(map(str, choices)) if choices else _range(low, high, short=True)
            row = {"name": field.name, "type": _name(_hints(cls)[field.name])}
            row |= {"default": json.dumps(field.default, default=str), "range": span}
            rows.append(row | {"help": field.metadata.get("help", "")})
        return rows


def bounds(low: float | None, high: float | None) -> tuple[float, float]:
    """The range of a field with the bounds `low` and `high`.

    >>> bounds(1, None), bounds(None, None)
    ((1, 1000000), (-1000000, 1000000))
    """
    return -LARGEST if low is None else low, LARGEST if high is None else high


def shown(value: Any, most: int = 80) -> str:
    """`value` as an error message quotes it.

    >>> shown("x"), shown(10**100, most=10)
    ("'x'", '1000000000… (101 characters)')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        return f"a value of type {type(value).__name__} that is too long to print"
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _range(low: float | None, high: float | None, short: bool = False) -> str:
    if low is not None and high is not None:
        return f"{_short(low)} … {_short(high)}" if short else f"{_short(low)} to {_short(high)}"
    if low is not None:
        return f"{'≥' if short else 'at least'} {_short(low)}"
    if high is not None:
        return f"{'≤' if short else 'at most'} {_short(high)}"
    return "" if short else "a finite number"


def _short(bound: float) -> str:
    """A bound as it is read: whole numbers in full.

    >>> _short(100_000_000), _short(0.5), _short(1e-12)
    ('100,000,000', '0.5', '1e-12')
    """
    whole = float(bound).is_integer() and 1e5 <= abs(bound) < 1e15
    return f"{bound:,.0f}" if whole else f"{bound:g}"
