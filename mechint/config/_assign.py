"""``--set name=value``: texts sorted by the configuration they reach."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from mechint.config.settings import shown
from mechint.errors import ParameterError, UnknownNameError
from mechint.system.files import check_nesting


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
    except ValueError as error:
        raise ParameterError(f"{where}: a number of {len(text)} digits; expected fewer") from error
    except RecursionError as error:
        raise ParameterError(f"{where}: brackets nest too deep") from error
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


def integer_range(text: str) -> range | None:
    """The integers from `first` to before `end` of ``first:end``, of which the first may be left
    out for 0; None where `text` is none.

    >>> integer_range("2:5"), integer_range(":3"), integer_range("2,5")
    (range(2, 5), range(0, 3), None)
    """
    match = re.fullmatch(r"(-?\d{1,12})?:(-?\d{1,12})", text)
    return range(int(match[1] or 0), int(match[2])) if match else None


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
    hint = typing.get_type_hints(owner)[name]
    members = typing.get_args(hint) if typing.get_origin(hint) is not tuple else (hint,)
    if not any(typing.get_origin(member) is tuple for member in members):
        return value
    if isinstance(value, str):
        return [parse_assignment(f"{name}={word}")[1] for word in value.split(",")]
    return value if value is None or isinstance(value, list) else [value]
