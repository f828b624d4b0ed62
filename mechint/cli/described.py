"""A sweep that a file describes."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechint.errors import ParameterError


def read_file(path: Path) -> Mapping[str, Any]:
    """The description of a sweep: {"task": …, "set": {name: value}, "over": {name: [values]}}."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ParameterError(f"{path}: cannot be read: {error}") from error
    try:
        described = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"{path}: {error}") from error
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
