"""The published JSON form of a ProbeResult, and whether a file has it.

``schemas/probe-result.json`` is a JSON schema (draft 2020-12) for everyone's validators; `validate`
knows the part of that language that the file uses, so that nothing has to be installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from mechint.errors import DataError

TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


@cache
def probe_result_schema() -> dict[str, Any]:
    """The JSON schema of a ProbeResult."""
    text = files("mechint").joinpath("schemas/probe-result.json").read_text(encoding="utf-8")
    return json.loads(text)


def validate(data: Any, schema: Mapping[str, Any] | None = None, where: str = "result") -> None:
    """Check that `data`, JSON values, are those of a ProbeResult.

    Raises:
        DataError: names the first place that is not, in one line.

    >>> validate({"probe": "fourier"})
    Traceback (most recent call last):
    mechint.errors.DataError: result: 'question' is missing
    """
    root = probe_result_schema()
    rules: Mapping[str, Any] = root if schema is None else schema
    if "$ref" in rules:
        rules = root["$defs"][rules["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in rules:
        if not any(_fits(data, one, where) for one in rules["anyOf"]):
            raise DataError(f"{where}: {_shown(data)} is of none of the kinds it may be")
        return
    if "enum" in rules and not any(data is one or data == one for one in rules["enum"]):
        raise DataError(f"{where}: {_shown(data)}: expected one of {rules['enum']}")
    if "type" in rules and not TYPES[rules["type"]](data):
        raise DataError(f"{where}: {_shown(data)}: expected type {rules['type']}")
    if isinstance(data, dict):
        _validate_members(data, rules, where)
    if isinstance(data, list) and "items" in rules:
        for index, item in enumerate(data):
            validate(item, rules["items"], f"{where}[{index}]")


def _validate_members(data: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> None:
    for name in schema.get("required", ()):
        if name not in data:
            raise DataError(f"{where}: {name!r} is missing")
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, value in data.items():
        if name in known:
            validate(value, known[name], f"{where}.{name}")
        elif others is False:
            raise DataError(f"{where}: {name[:60]!r} is not known there")
        elif isinstance(others, dict):
            validate(value, others, f"{where}.{name[:60]}")


def _fits(data: Any, schema: Mapping[str, Any], where: str) -> bool:
    try:
        validate(data, schema, where)
    except DataError:
        return False
    return True


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 60 else text[:59] + "…"
