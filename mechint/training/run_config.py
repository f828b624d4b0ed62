"""The config.json of a run: read with care, those of earlier versions too, and compared."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechint.config import Settings, TrainConfig
from mechint.errors import MechintError, RunError
from mechint.files import regular_file
from mechint.models import ARCHITECTURES, config_class
from mechint.registry import TASKS
from mechint.training.state import brief


def read_config(file: Path) -> dict[str, Any]:
    """Task, model and training of a run, as they stand in `file`.

    Raises:
        RunError: the file is damaged, or belongs to something else.
    """
    remedy = "choose another --out, or delete the directory"
    try:
        regular_file(file)
        config = json.loads(file.read_text(encoding="utf-8"))
    except RunError as error:  # a pipe would be waited for
        raise RunError(f"{error}; {remedy}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{file}: damaged ({brief(error)}); {remedy}") from error
    parts = ("task", "model", "train")
    if not isinstance(config, dict) or not all(isinstance(config.get(p), dict) for p in parts):
        raise RunError(f"{file}: damaged: expected a mapping of task, model and train; {remedy}")
    if not isinstance(config["task"].get("parameters"), dict):
        raise RunError(f"{file}: damaged: expected the task's name and parameters; {remedy}")
    return config


def read_as_today(there: dict[str, Any], wanted: Mapping[str, Any]) -> None:
    """Upgrade a configuration written by an earlier version in place: fields that came later at
    their defaults, renamed ones under their present names. What cannot be read stays as it is.
    """
    parts = [(there, wanted, "model"), (there, wanted, "train")]
    if there["task"].get("name") == wanted["task"]["name"]:
        parts.append((there["task"], wanted["task"], "parameters"))
    for old, new, part in parts:
        if old[part] != new[part]:
            with contextlib.suppress(MechintError, RecursionError):
                kind = _settings_of(part, wanted)
                old[part] = old[part] if kind is None else kind.from_dict(old[part]).to_dict()


def _settings_of(part: str, wanted: Mapping[str, Any]) -> type[Settings] | None:
    """The class of a part of the run `wanted`; None or UnknownNameError where its name does not
    tell, as that of a notebook's own task does not.
    """
    if part == "parameters":
        return TASKS[wanted["task"]["name"]]
    if part == "train":
        return TrainConfig
    names = set(wanted["model"])  # each architecture has fields of its own
    for kind in map(config_class, ARCHITECTURES):
        if {field["name"] for field in kind.describe()} == names:
            return kind
    return None


def difference(there: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The first setting in which two configurations differ, in words."""
    for part in wanted:
        a, b = there.get(part), wanted[part]
        if part == "task" and a and a.get("name") == b["name"]:
            a, b = a["parameters"], b["parameters"]
        if a != b and isinstance(a, dict):
            name = next(n for n in {**a, **b} if (n in a, a.get(n)) != (n in b, b.get(n)))
            said = [repr(one[name]) if name in one else "not set" for one in (a, b)]
            return f"{part}.{name} is {said[0]} there, {said[1]} here"
    return "other settings"
