"""Checks of a task's settings: its parameters, its presets and the defaults of its training."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any

from mechint.config import TrainConfig, assign
from mechint.errors import MechintError, ParameterError, UnknownNameError
from mechint.models import config_class
from mechint.registry import unfinished
from mechint.task import Task
from mechint.training import spec


def check_class(task: Task) -> None:
    """The class is a dataclass of its own: without the decorator a new parameter is not there."""
    reason = unfinished(type(task))
    assert reason is None, f"{task.name}: {reason}"


def check_presets(task: Task) -> None:
    """The defaults and every preset make a training; results are of presets that there are."""
    kind = type(task)
    unknown = set(kind.preset_results) - set(kind.presets)
    assert not unknown, f"{task.name}: results of presets that there are not: {sorted(unknown)}"
    targets = {"task": kind, "model": config_class(kind.model_kind), "train": TrainConfig}
    for preset, settings in {None: {}, **kind.presets}.items():
        texts = [
            f"{name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, value in settings.items()
        ]
        try:
            values = assign(texts, targets)
            spec(kind.from_dict(values["task"]), values["model"], values["train"])
        except MechintError as error:
            what = "model_defaults and train_defaults" if preset is None else f"preset {preset!r}"
            raise AssertionError(f"{task.name}: {what} cannot be trained with: {error}") from error


def check_parameters(task: Task) -> None:
    """The parameters survive JSON; an unknown one, one of the wrong type and one out of range are
    refused in one line.
    """
    again = type(task).from_dict(json.loads(json.dumps(task.to_dict())))
    assert again == task, f"{task.name}: {task.to_dict()} gives another task back"
    _refused(task, {"no_such_parameter": 1}, UnknownNameError)
    hints = typing.get_type_hints(type(task))
    for field in settings_of(task):
        _refused(task, {field.name: object()}, ParameterError)
        bounds = field.metadata.get("low"), field.metadata.get("high")
        assert not _takes_numbers(hints[field.name]) or None not in bounds, (
            f"{task.name}: {field.name} takes numbers from {bounds[0]} to {bounds[1]}; both bounds "
            "are needed"
        )
        value, low, high = (
            getattr(task, field.name),
            field.metadata.get("low"),
            field.metadata.get("high"),
        )
        if isinstance(value, int | float) and not isinstance(value, bool):
            for bound, step in ((low, -1), (high, 1)):
                if bound is not None:
                    _refused(task, {field.name: type(value)(bound + step)}, ParameterError)


def _takes_numbers(hint: Any) -> bool:
    """Return whether a field of this type holds numbers of a range, alone or in a flat tuple."""
    members = typing.get_args(hint) or (hint,)
    nested = any(typing.get_origin(member) is tuple for member in members)
    if nested:
        members = [inner for member in members for inner in typing.get_args(member)]
    return any(member in (int, float) for member in members)


def _refused(task: Task, changed: dict[str, object], expected: type[MechintError]) -> None:
    values = {field.name: getattr(task, field.name) for field in settings_of(task)} | changed
    try:
        type(task).from_dict(values)
    except expected as error:
        assert "\n" not in str(error), f"{task.name}: the error for {changed} has several lines"
        return
    raise AssertionError(f"{task.name}: {changed} is accepted; expected {expected.__name__}")


def settings_of(task: Task) -> tuple[dataclasses.Field[Any], ...]:
    """The declared parameters."""
    return dataclasses.fields(task)  # type: ignore[arg-type]
