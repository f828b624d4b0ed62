"""Settings: frozen dataclasses whose fields know their range, with JSON in and out.

A task, a probe, a model and a training run are all configured by `Settings`: fields declared with
`setting(...)`, checked when the object is made, listed by `describe`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import shlex
import types
import typing
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from mechint.errors import ParameterError, UnknownNameError
from mechint.system.files import check_nesting

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
            choices = field.metadata.get("choices")
            members = value if isinstance(value, tuple) else () if value is None else (value,)
            if choices is not None and not all(member in choices for member in members):
                some = "some" if isinstance(value, tuple) else "one"
                self.reject(field.name, f"{some} of {', '.join(map(str, choices))}")
            longest = field.metadata.get("longest", LONGEST)
            if isinstance(value, tuple | str) and len(value) > longest:
                self.reject(field.name, f"at most {longest} entries")
            low, high = _ends(field)
            for number in members:
                counts = isinstance(number, int | float) and not isinstance(number, bool)
                if counts and not low <= number <= high:  # NaN is not, either
                    self.reject(field.name, f"{_short(low)} to {_short(high)}")

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what a task has computed and kept is not for another process."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def reject(self, name: str, expected: str) -> typing.NoReturn:
        """Raise the ParameterError for the field `name`: what was got, what was expected."""
        value = shown(getattr(self, name))
        raise ParameterError(f"{self.label()}: {name}={value}: expected {expected}")

    def require(self, name: str, holds: object, expected: str) -> None:
        """Reject the field `name` unless `holds`."""
        if not holds:
            self.reject(name, expected)

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
            bounded = {field.metadata.get("low"), field.metadata.get("high")} != {None}
            span = " … ".join(map(_short, _ends(field))) if bounded else ""
            if choices := field.metadata.get("choices"):
                span = ", ".join(map(str, choices))
            row = {"name": field.name, "type": _name(_hints(cls)[field.name])}
            row |= {"default": json.dumps(field.default, default=str), "range": span}
            rows.append(row | {"help": field.metadata.get("help", "")})
        return rows


def _ends(field: dataclasses.Field[Any]) -> tuple[float, float]:
    """The least and the largest number of a field."""
    low, high = field.metadata.get("low"), field.metadata.get("high")
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


def _short(bound: float) -> str:
    """A bound as it is read: whole numbers in full.

    >>> _short(100_000_000), _short(0.5), _short(1e-12)
    ('100,000,000', '0.5', '1e-12')
    """
    whole = float(bound).is_integer() and 1e5 <= abs(bound) < 1e15
    return f"{bound:,.0f}" if whole else f"{bound:g}"


# --- ``--set name=value`` ------------------------------------------------------------------------
def parse_assignment(text: str) -> tuple[str, Any]:
    """Split ``name=value``; the value is read as JSON where it is JSON, as text otherwise.

    >>> (parse_assignment("lr=2e-3"), parse_assignment("task.operation=add"),
    ...     parse_assignment("betas=[0.9,0.98]"))
    (('lr', 0.002), ('task.operation', 'add'), ('betas', [0.9, 0.98]))
    """
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise ParameterError(f"--set {shown(text)}: expected name=value")
    return name.strip(), parse_value(value, f"--set {shown(name.strip())}")


def parse_value(text: str, where: str) -> Any:
    """A value as it is written on the command line: JSON where it is JSON, as text otherwise.

    Raises:
        ParameterError: `where` and why: a number of thousands of digits, or brackets nested too
            deep.
    """
    words = {"none": None, "None": None, "True": True, "False": False}
    try:
        value = json.loads(text, parse_constant=lambda word: word)
    except json.JSONDecodeError:
        return words.get(text.strip(), text.strip())
    except (ValueError, RecursionError) as error:
        said = f"{where}: a number of thousands of digits, or brackets that nest too deep"
        raise ParameterError(said) from error
    check_nesting(value, where, ParameterError)
    return value


def assignment(name: str, value: Any) -> str:
    """``name=value`` that `parse_assignment` reads back as `name` and `value`, of JSON's kinds.

    >>> assignment("lr", 0.002), assignment("act_fn", "gelu"), assignment("name", "3")
    ('lr=0.002', 'act_fn=gelu', 'name="3"')
    """
    return f"{name}={value if _is_plain(value) else json.dumps(value, separators=(',', ':'))}"


def set_options(values: Mapping[str, Any]) -> list[str]:
    """The ``--set`` options that give `values` to settings, quoted for a shell.

    >>> print(*set_options({"operations": ["MAX", "MED"], "decay": None, "path": "a text.txt"}))
    --set 'operations=["MAX","MED"]' --set decay=null --set 'path=a text.txt'
    """
    return [f"--set {shlex.quote(assignment(name, value))}" for name, value in values.items()]


def _is_plain(value: Any) -> bool:
    """Return whether `value` is text that needs no quotes to be read as itself."""
    try:
        return isinstance(value, str) and parse_value(value, "") == value
    except ParameterError:  # thousands of digits, or brackets that nest too deep
        return False


def split_named(text: str, where: str, expected: str) -> tuple[str, str]:
    """The name and the value of ``name=value``; ParameterError where either is missing."""
    name, _, value = (part.strip() for part in text.partition("="))
    if not name or not value:
        raise ParameterError(f"{where}: expected {expected}")
    return name, value


MOST_VALUES = 100_000
"""Values that one option may list."""


def listed_values(text: str, where: str) -> list[Any]:
    """The values of a range of integers ``0:8`` (``:8``), a list ``8,16,32``, or JSON ``[8,16]``,
    each once.

    >>> listed_values("0:3", ""), listed_values("1e-3,2e-3", ""), listed_values("add,sub", "")
    ([0, 1, 2], [0.001, 0.002], ['add', 'sub'])
    """
    if span := re.fullmatch(r"(-?\d{1,12})?:(-?\d{1,12})", text):
        values: Any = range(int(span[1] or 0), int(span[2]))
    elif text.startswith("["):
        values = parse_value(text, where)
    else:
        values = [parse_value(part, where) for part in text.split(",")]
    if not isinstance(values, list | range) or not 0 < len(values) <= MOST_VALUES:
        raise ParameterError(f"{where}: expected from 1 to {MOST_VALUES:,} values")
    written = [json.dumps(value) for value in values]
    if twice := next((one for one, count in Counter(written).items() if count > 1), ""):
        raise ParameterError(f"{where}: {shown(twice)} stands there twice; expected each once")
    return list(values)


def assign(texts: Iterable[str], targets: Mapping[str, type]) -> dict[str, dict[str, Any]]:
    """Sort ``--set`` assignments by the configuration they reach.

    Args:
        texts: ``name=value`` or ``target.name=value`` each; the last one of a name wins.
        targets: name of the target ("task", "model", "train", a probe's name) → its Settings class.

    Returns:
        target → {field: value}, one entry per target.

    Raises:
        UnknownNameError: no target has the field.
        ParameterError: several targets have it and none is named.
    """
    fields = {
        target: {field.name for field in dataclasses.fields(cls)} for target, cls in targets.items()
    }  # type: ignore[arg-type]
    result: dict[str, dict[str, Any]] = {target: {} for target in targets}
    for text in texts:
        name, value = parse_assignment(text)
        target, field = _target_of(name, targets)
        if not field or target not in fields:
            owners = [owner for owner, names in fields.items() if name in names]
            if not owners:
                raise UnknownNameError.of("parameter", name, set().union(*fields.values()))
            if len(owners) > 1:
                named = " or ".join(f"{owner}.{name}" for owner in owners)
                raise ParameterError(f"--set {name}: several have it; write {named}")
            target, field = owners[0], name
        elif field not in fields[target]:
            raise UnknownNameError.of(f"{target} parameter", field, fields[target])
        result[target][field] = _listed(targets[target], field, value)
    return result


def _target_of(name: str, targets: Iterable[str]) -> tuple[str, str]:
    """The target that ``target.name`` begins with, and the rest; what stands before the first dot
    where it is none of them. A probe of somebody's may have a dot in its name.

    >>> _target_of("res.shares.models", ["task", "res.shares"]), _target_of("lr", ["task"])
    (('res.shares', 'models'), ('lr', ''))
    """
    fitting = [target for target in targets if name.startswith(f"{target}.")]
    target = max(fitting, key=len, default=name.partition(".")[0])
    return target, name[len(target) + 1 :]


def _listed(owner: type, name: str, value: Any) -> Any:
    """`value` as a list where the field takes several: ``MAX,MED`` and ``7`` are lists of two and
    of one.
    """
    hint = _hints(owner)[name]
    members = typing.get_args(hint) if typing.get_origin(hint) is not tuple else (hint,)
    if not any(typing.get_origin(member) is tuple for member in members):
        return value
    if isinstance(value, str):
        return [parse_assignment(f"{name}={word}")[1] for word in value.split(",")]
    return value if value is None or isinstance(value, list) else [value]
