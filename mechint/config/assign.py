"""``--set name=value``: texts sorted by the configuration they reach."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from mechint.errors import ParameterError, UnknownNameError


def parse_assignment(text: str) -> tuple[str, Any]:
    """Split ``name=value``; the value is read as JSON where it is JSON, as text otherwise.

    >>> (parse_assignment("lr=2e-3"), parse_assignment("task.operation=add"),
    ...     parse_assignment("betas=[0.9,0.98]"))
    (('lr', 0.002), ('task.operation', 'add'), ('betas', [0.9, 0.98]))
    """
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise ParameterError(f"--set {text!r}: expected name=value")
    try:
        return name.strip(), json.loads(value, parse_constant=lambda word: word)
    except json.JSONDecodeError:
        return name.strip(), {"none": None, "None": None, "True": True, "False": False}.get(
            value.strip(), value.strip()
        )


def assign(texts: Iterable[str], targets: Mapping[str, type]) -> dict[str, dict[str, Any]]:
    """Sort ``--set`` assignments by the configuration they reach.

    Args:
        texts: ``name=value`` or ``target.name=value`` each; the last one of a name wins.
        targets: name of the target ("task", "model", "train", a probe's name) → its Settings class.

    Returns:
        target → {field: value}, one entry a target.

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
        target, _, rest = name.partition(".")
        if rest and target in fields:
            if rest not in fields[target]:
                raise UnknownNameError.of(f"{target} parameter", rest, fields[target])
            result[target][rest] = _listed(targets[target], rest, value)
            continue
        owners = [target for target, names in fields.items() if name in names]
        if not owners:
            raise UnknownNameError.of(
                "parameter", name, {field for names in fields.values() for field in names}
            )
        if len(owners) > 1:
            raise ParameterError(
                f"--set {name}: several have it; write "
                + " or ".join(f"{owner}.{name}" for owner in owners)
            )
        result[owners[0]][name] = _listed(targets[owners[0]], name, value)
    return result


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
