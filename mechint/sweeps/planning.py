"""The runs of a sweep: all combinations of values, and the ensembles that train them.

The plan is the product of the values swept over. Its runs are cut into groups by
`mechint.training.plan`: a group is one ensemble, and the unit that an executor is given.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.config import assignment
from mechint.config.settings import (
    MOST_VALUES,
    listed_values,
    parse_value,
    shown,
    split_named,
)
from mechint.errors import ParameterError
from mechint.registry import TASKS
from mechint.system.files import parse_json, read_bytes, read_toml

if TYPE_CHECKING:
    from mechint.training import Spec

GROUP = 16
"""Runs that one group has at most: enough to share what a step of small models costs Python, few
enough to leave groups for several cores or nodes.
"""

Row = dict[str, Any]
"""One run of the table: id, parameters, status, path, metrics, and error where it failed."""


@dataclass(frozen=True)
class RunGroup:
    """Runs that train as one ensemble.

    name: "0000", "0001" and so on; settings: ``name=value`` texts of every run; runs: swept name →
    value of each.
    """

    name: str
    task: str
    settings: tuple[str, ...]
    runs: tuple[Mapping[str, Any], ...]

    @property
    def run_ids(self) -> list[str]:
        """The name of each run, of its directory too."""
        return [run_name(swept) for swept in self.runs]

    def specs(self, out: Path) -> list[Spec]:
        """The runs as training takes them, with directories in `out`; raises as they do."""
        return [
            make_spec(self.task, self.settings, swept, out / run)
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
    digest = hashlib.sha256(json.dumps(dict(swept)).encode()).hexdigest()
    return f"{plain[:100]}-{digest[:10]}"


def _written(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "-".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def _has_own_name(value: Any) -> bool:
    """Return whether no other value is written alike."""
    if isinstance(value, list):
        return len(value) > 1 and all(_has_own_name(item) and item.isalpha() for item in value)
    if isinstance(value, str):
        return value.replace("_", "").isalpha() and value not in ("true", "false", "null")
    return value is not None


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
    """The name and the values of an ``--over``, as `listed_values` reads them.

    >>> parse_values("seed=0:3"), parse_values("operation=add,multiply")
    (('seed', [0, 1, 2]), ('operation', ['add', 'multiply']))
    """
    where = f"--over {shown(text)}"
    name, values = split_named(text, where, "name=first:end or name=value,value")
    if re.fullmatch(r"\d+-\d+", values):
        first, last = map(int, values.split("-"))
        raise ParameterError(f"{where}: expected {name}={first}:{last + 1} for a range")
    return name, listed_values(values, where)


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
) -> list[RunGroup]:
    """All groups of a sweep, every configuration checked before anything is trained.

    Args:
        task: name of the task; settings: ``name=value`` of every run; over: name → values; "seed"
            is the training's; device: the kind that trains, "cpu" or "cuda"; group_size: runs that
            train as one ensemble, at most; a part of the plan, so of the bits.

    Raises:
        ParameterError, UnknownNameError: a value that does not fit, or too many runs.
    """
    from mechint.training.plan import partition

    if (count := math.prod(map(len, over.values()))) > MOST_VALUES:
        raise ParameterError(f"sweep: {count:,} runs, expected at most {MOST_VALUES:,}")
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
        RunGroup(f"{number:04d}", task, tuple(settings), tuple(runs[i] for i in part.members))
        for number, part in enumerate(partition(specs, device.partition(":")[0], most=group_size))
    ]


def read_file(path: Path) -> tuple[str, list[str], dict[str, list[Any]]]:
    """The task, the settings and the swept values of a sweep that a JSON or TOML file describes:
    ``task``, ``set`` (name = value) and ``over`` (name = list of values, or as ``--over`` takes
    them: ``seed = "0:8"``).

    Raises:
        ParameterError: the file is none.
    """
    if path.suffix == ".toml":
        described = read_toml(path, ParameterError)
    else:
        described = parse_json(read_bytes(path, error=ParameterError), path, ParameterError)
    known = {"task": str, "set": dict, "over": dict}
    if not isinstance(described, dict) or not isinstance(described.get("task"), str):
        raise ParameterError(f"{path}: expected task = NAME, and [set] and [over] besides")
    for name, value in described.items():
        if not isinstance(value, known.get(name, ())):
            raise ParameterError(f"{path}: {name}: expected only task = NAME, [set] and [over]")
    over: dict[str, list[Any]] = {}
    for name, values in described.get("over", {}).items():
        if isinstance(values, str):
            over |= swept_values([f"{name}={values}"])
        elif isinstance(values, list) and values:
            # a text is read as on the command line: TOML has no other way to say none
            over[name] = [
                parse_value(one, f"{path}: {name}") if isinstance(one, str) else one
                for one in values
            ]
        else:
            raise ParameterError(
                f"{path}: over.{name}={shown(values)}: expected a list of values, or a text such "
                'as "0:8"'
            )
    settings = [
        f"{name}={value}" if isinstance(value, str) else assignment(name, value)
        for name, value in described.get("set", {}).items()
    ]
    return described["task"], settings, over
