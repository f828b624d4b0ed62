"""What a sweep is: the runs of all combinations of values, and the ensembles that train them.

The plan is the product of the values swept over. Its runs are cut into groups by
`mechint.training.plan`: a group is one ensemble, and the unit that an executor is given.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.config import assignment
from mechint.config.assign import integer_range, parse_value
from mechint.config.settings import shown
from mechint.errors import ParameterError
from mechint.registry import TASKS

if TYPE_CHECKING:
    from mechint.training import Spec

MOST_RUNS = 100_000
"""Runs that a sweep may have."""

GROUP = 16
"""Runs that one group has at most: enough to share what a step of small models costs Python, few
enough to leave groups for several cores or nodes.
"""

Row = dict[str, Any]
"""One run of the table: id, parameters, status, path, metrics, and error where it failed."""


@dataclass(frozen=True)
class Group:
    """Runs that train as one ensemble.

    settings: ``name=value`` texts of every run; runs: swept name → value of each; name: of the
    group, "" in sweeps of earlier versions, whose directories are called by digests.
    """

    task: str
    settings: tuple[str, ...]
    runs: tuple[Mapping[str, Any], ...]
    name: str = ""

    @property
    def id(self) -> str:
        """The group's name where it has one, else a digest of what it trains."""
        return self.name or _digest([self.task, self.settings, self.runs])

    @property
    def run_ids(self) -> list[str]:
        """The name of each run, of its directory too."""
        if self.name:
            return [run_name(swept) for swept in self.runs]
        return [_digest([self.task, self.settings, swept]) for swept in self.runs]

    def paths(self, out: Path) -> list[Path]:
        """The run directories in the sweep's directory `out`."""
        return [out / run if self.name else out / self.id / run for run in self.run_ids]

    def books(self, out: Path) -> Path:
        """The directory of the group's rows and its lock."""
        return out / "groups" / self.id if self.name else out / self.id

    def specs(self, out: Path) -> list[Spec]:
        """The runs as training takes them, with their directories; raises what a wrong value
        raises.
        """
        places = self.paths(out)
        return [
            make_spec(self.task, self.settings, swept, place)
            for swept, place in zip(self.runs, places, strict=True)
        ]

    def rows(self, status: str = "waiting") -> list[Row]:
        """One row per run, before there is anything to report."""
        return [
            {
                "id": run,
                "parameters": dict(swept),
                "status": status,
                "path": None,
                "metrics": {},
            }
            for run, swept in zip(self.run_ids, self.runs, strict=True)
        ]


def run_name(swept: Mapping[str, Any]) -> str:
    """A run's name from what sets it apart, fit for a directory.

    >>> run_name({"seed": 3, "model.d_model": 16})
    'seed=3,model.d_model=16'
    >>> run_name({"operations": ["MAX", "MED"]})
    'operations=MAX-MED'
    """
    if not swept:
        return "run"
    exact = ",".join(f"{name}={_written(value)}" for name, value in swept.items())
    plain = re.sub(r"-{2,}", "-", re.sub(r"[^A-Za-z0-9=.,_+-]", "-", exact)).strip("-,.")
    if plain == exact and len(plain) <= 120 and all(map(_has_own_name, swept.values())):
        return plain
    return f"{plain[:100]}-{_digest(dict(swept))}"


def _written(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "-".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def _has_own_name(value: Any) -> bool:
    """Whether no other value is written alike: a number, a word that is none, a list of words."""
    if isinstance(value, list):
        return len(value) > 1 and all(_has_own_name(item) and item.isalpha() for item in value)
    if isinstance(value, str):
        return value.replace("_", "").isalpha() and value not in ("true", "false", "null")
    return value is not None


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:10]


def make_spec(
    task: str, settings: Sequence[str], swept: Mapping[str, Any], out: Path | None = None
) -> Spec:
    """One run from ``name=value`` texts and swept values; a seed is the training's."""
    from mechint.training import spec
    from mechint.training.api import assign_run

    texts = [setting_text(name, value) for name, value in swept.items()]
    values = assign_run(task, [*settings, *texts])
    return spec(TASKS[task].from_dict(values["task"]), values["model"], values["train"], out=out)


def setting_text(name: str, value: Any) -> str:
    """A swept value as ``--set`` takes it; "seed" is the training's.

    >>> setting_text("seed", 3), setting_text("lr", 0.5)
    ('train.seed=3', 'lr=0.5')
    """
    return assignment("train.seed" if name == "seed" else name, value)


def parse_values(text: str) -> tuple[str, list[Any]]:
    """The name and the values of an ``--over``: a range of integers ``0:8``, a list ``8,16,32``, or
    JSON.

    >>> (parse_values("seed=0:3"), parse_values("lr=1e-3,2e-3"),
    ...     parse_values("operation=add,multiply"))
    (('seed', [0, 1, 2]), ('lr', [0.001, 0.002]), ('operation', ['add', 'multiply']))
    """
    where = f"--over {shown(text)}"
    name, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not name or not values:
        raise ParameterError(f"{where}: expected name=first:end or name=value,value")
    span = integer_range(values)
    if span is not None:
        if len(span) > MOST_RUNS:
            raise ParameterError(f"{where}: expected at most {MOST_RUNS:,} values")
        found: list[Any] = list(span)
    elif values.startswith("["):
        found = parse_value(values, where)
        if not isinstance(found, list):
            raise ParameterError(f"{where}: expected a JSON list")
    else:
        found = [parse_value(part, where) for part in values.split(",")]
    if not found:
        raise ParameterError(f"{where}: holds no value")
    texts = [json.dumps(value) for value in found]
    twice = next((value for value in texts if texts.count(value) > 1), None)
    if twice is not None:
        raise ParameterError(f"{where}: {shown(twice)} stands there twice; expected each once")
    return name, found


def swept_values(texts: Iterable[str]) -> dict[str, list[Any]]:
    """The values of several ``--over`` texts, by name.

    >>> swept_values(["seed=0:2", "lr=1e-3"])
    {'seed': [0, 1], 'lr': [0.001]}

    Raises:
        ParameterError: a text that does not fit, or a name that is given twice.
    """
    values: dict[str, list[Any]] = {}
    for name, some in map(parse_values, texts):
        if name in values:
            written = ",".join(map(str, [*values[name], *some]))
            raise ParameterError(
                f"--over {name}: is given twice; expected once, with all values: {name}={written}"
            )
        values[name] = list(some)
    return values


def plan(
    task: str,
    settings: Sequence[str],
    over: Mapping[str, Sequence[Any]],
    device: str = "cpu",
    group_size: int = GROUP,
) -> list[Group]:
    """All groups of a sweep, every configuration checked before anything is trained.

    Args:
        task: name of the task; settings: ``name=value`` of every run; over: name → values; "seed"
            is the training's; device: the kind that trains, "cpu" or "cuda"; group_size: runs that
            train as one ensemble, at most; a part of the plan, so of the bits.

    Raises:
        ParameterError, UnknownNameError: a value that does not fit, or too many runs.
    """
    from mechint.training.plan import partition

    count = 1
    for values in over.values():
        count *= len(values)
    if count > MOST_RUNS:
        raise ParameterError(f"sweep: {count:,} runs, expected at most {MOST_RUNS:,}")
    runs = [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]
    names = [run_name(swept) for swept in runs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ParameterError(f"sweep: two runs are both {twice}; expected each once")
    specs = [make_spec(task, settings, swept) for swept in runs]
    first: dict[str, str] = {}
    for name, spec in zip(names, specs, strict=True):
        same = first.setdefault(json.dumps(spec.to_dict(), sort_keys=True), name)
        if same != name:
            raise ParameterError(f"sweep: {same} and {name} are the same run; expected each once")
    return [
        Group(task, tuple(settings), tuple(runs[i] for i in part.members), f"{number:04d}")
        for number, part in enumerate(partition(specs, device.partition(":")[0], most=group_size))
    ]


def to_json(groups: Sequence[Group]) -> str:
    """The plan as ``sweep.json`` holds it."""
    return json.dumps([dataclasses.asdict(group) for group in groups], indent=1)


def from_json(entries: Any) -> list[Group]:
    """The inverse of `to_json`, of earlier versions too; KeyError or TypeError where it is none."""
    return [
        Group(entry["task"], tuple(entry["settings"]), tuple(entry["runs"]), entry.get("name", ""))
        for entry in entries
    ]
