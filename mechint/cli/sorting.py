"""``--set`` texts of what opens a model: which belong to the task, to a probe, or to the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mechint.config import assign, parse_assignment
from mechint.config._assign import refuse_idle_probe
from mechint.registry import PROBES, TASKS


def sort_settings(
    settings: Sequence[str], task: str | None, names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """``--set`` texts as parameters of the task, and settings of each probe and of the model
    ("model").

    Without a named task, what no probe has belongs to the task that the file names.
    """
    given: dict[str, Any] = {}
    others: list[str] = []
    for text in settings:
        name, value = parse_assignment(text)
        if name.startswith("model."):
            given[name.removeprefix("model.")] = value
        else:
            others.append(text)
    parameters, options = _sort_others(others, task, names)
    return parameters, {**options, "model": given}


def _sort_others(
    settings: Sequence[str], task: str | None, names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The same for what is not the model's."""
    for text in settings:
        refuse_idle_probe(text, names)
    targets: dict[str, Any] = {name: PROBES[name] for name in names}
    if task is not None:
        sorted_ = assign(settings, targets | {"task": TASKS[task]})
        return sorted_.pop("task"), sorted_
    fields = {
        field for probe in targets.values() for field in (row["name"] for row in probe.describe())
    }
    mine, others = [], {}
    for text in settings:
        name, value = parse_assignment(text)
        if name.partition(".")[0] in targets or name in fields:
            mine.append(text)
        else:
            others[name.removeprefix("task.")] = value
    return others, assign(mine, targets)
