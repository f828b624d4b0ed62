"""A sweep that a file describes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechint.errors import ParameterError
from mechint.files import parse_json, read_bytes, read_toml


def read_file(path: Path) -> Mapping[str, Any]:
    """The description of a sweep: {"task": …, "set": {name: value}, "over": {name: [values]}}."""
    if path.suffix == ".toml":
        described = read_toml(path, ParameterError)
    else:
        described = parse_json(read_bytes(path, error=ParameterError), path, ParameterError)
    known = {"task": str, "set": dict, "over": dict}
    if (
        not isinstance(described, dict)
        or "task" not in described
        or not all(isinstance(value, known.get(name, ())) for name, value in described.items())
    ):
        raise ParameterError(
            f"{path}: expected the names task, set (name = value) and over (name = list of values)"
        )
    if not all(
        isinstance(values, list) and values for values in described.get("over", {}).values()
    ):
        raise ParameterError(f"{path}: over: expected a list of values for every name")
    return described
