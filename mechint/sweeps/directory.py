"""The directory of a sweep: its plan, its runs and its probes.

    DIR/sweep.json              the plan; another plan is refused
    DIR/probes.json             the probes that measure its runs
    DIR/seed=3,d_model=16/      a run directory each

Rows are read from the runs themselves, and a run has one writer, so that any number of workers and
machines share the directory of a sweep.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mechint.errors import MechintError, RunError, counted
from mechint.registry import TASKS
from mechint.run_table import Measurement
from mechint.sweeps.planning import Row, RunGroup
from mechint.system.files import make_directory, parse_json, read_bytes, write_text
from mechint.system.locks import BusyError, is_locked, locked
from mechint.system.packages import changed_files, loaded_sources

PLAN, PROBES_FILE = "sweep.json", "probes.json"


# --- its plan -------------------------------------------------------------------------------------
def keep_plan(groups: Sequence[RunGroup], out: Path) -> None:
    """Write the plan into `out`; RunError if `out` belongs to another sweep or to a run."""
    file, entries = make_directory(out) / PLAN, [dataclasses.asdict(group) for group in groups]
    # list before looking for the plan: another process sharing the sweep may be writing it now
    others = [path for path in out.iterdir() if path.name not in (".lock", PLAN)]
    if not file.exists():
        if any(not path.name.endswith(".part") for path in others):
            raise RunError(f"{out}: holds something else; choose an empty directory for the sweep")
        with locked(out, wait=True):  # of two sweeps that begin here at once, one is refused
            if not file.exists():
                write_text(file, json.dumps(entries, indent=1))
    there = read_plan(out)
    if there != _from_json(json.loads(json.dumps(entries))):
        count = counted(sum(len(one.runs) for one in there), "run")
        raise RunError(
            f"{out}: holds another sweep, of {count}; choose another --out, or give the directory "
            "itself to see it"
        )


def read_plan(out: Path) -> list[RunGroup]:
    """The groups of the sweep in the directory `out`."""
    try:
        return _from_json(parse_json(read_bytes(out / PLAN), out / PLAN))
    except (RunError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{out}: holds no sweep: {error}") from error


def _from_json(entries: Any) -> list[RunGroup]:
    groups = [
        RunGroup(one["name"], one["task"], tuple(one["settings"]), tuple(one["runs"]))
        for one in entries
    ]
    if not all(isinstance(one["settings"], list) for one in entries):
        raise TypeError("settings are no list")
    for one in groups:
        texts = (one.name, one.task, *one.settings)
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("a name or a setting is no text")
        if not all(isinstance(run, dict) for run in one.runs):
            raise TypeError("a run is no mapping of settings")
    return groups


def refuse_other_sources(out: Path, task: str) -> None:
    """RunError where a run in `out` was trained with other sources of the task than are loaded now,
    so that those to come would be of another task.
    """
    loaded = loaded_sources(TASKS[task].__module__)
    for file in sorted(out.rglob("manifest.json")) if loaded else ():
        for path in changed_files(file.parent, loaded):
            raise RunError(
                f"{file.parent}: was trained with another {path} than is loaded now; choose "
                "another --out, or mix the two by --other-sources"
            )


# --- its runs -------------------------------------------------------------------------------------
def rows_of(group: RunGroup, out: Path) -> list[Row]:
    """One row per run of a group, with where it stands now; nothing is written."""
    from mechint.system.jsonable import to_jsonable
    from mechint.training import Run

    rows = []
    for name, swept, spec in zip(group.run_ids, group.runs, group.specs(out), strict=True):
        row: Row = {"id": name, "parameters": dict(swept), "status": "failed", "path": None}
        try:
            run = Run(spec).load()
        except RunError as error:  # a damaged file
            rows.append(row | {"metrics": {}, "error": str(error)})
            continue
        busy = run.status in ("waiting", "interrupted") and is_locked(out / name)
        row["status"] = "running" if busy else run.status
        row["path"] = None if run.status == "waiting" and not busy else str(run.path)
        row["metrics"] = to_jsonable(run.final)
        rows.append(row | ({"error": run.error} if run.error else {}))
    return rows


def status(groups: Sequence[RunGroup], out: Path) -> list[Row]:
    """One row per run of a sweep, with where it stands now; nothing is written."""
    return [row for group in groups for row in rows_of(group, out)]


def is_finished(group: RunGroup, out: Path) -> bool:
    """Return whether nothing is left to do for a group: its runs are done, with weights to read."""
    from mechint.training.run_directory import RunDirectory

    done = all(row["status"] in ("finished", "stopped") for row in rows_of(group, out))
    return done and not any(RunDirectory(out / name).lacks_weights() for name in group.run_ids)


def run_group(
    group: RunGroup, out: Path, device: str = "cpu", progress: Callable[[Any], None] | None = None
) -> list[Row]:
    """Train one group where it is not done; a failure is a row, not an exception. A group that
    another process trains is left to it.
    """
    from mechint.system.jsonable import to_jsonable
    from mechint.training import train_many

    try:
        specs = group.specs(out)
        runs = train_many(
            specs,
            resume=True,
            device=device,
            progress=progress,
            parts=[range(len(specs))],
            threads=1,  # as in a worker, on Ray and on Slurm
            on_interrupt="return",  # its rows are reported first
        )
    except BusyError:
        return rows_of(group, out)
    except MechintError as error:
        rows = with_failure(rows_of(group, out), str(error))
    else:
        rows = rows_of(group, out)
        for row, run in zip(rows, runs, strict=True):
            row |= {"status": run.status, "metrics": to_jsonable(run.final)}
            row |= {"path": str(run.path)} | ({"error": run.error} if run.error else {})
    return rows


def with_failure(rows: Sequence[Row], error: str) -> list[Row]:
    """The rows of a group that failed as a whole; those that are done stay as they are."""
    done = ("finished", "stopped")
    return [
        row if row["status"] in done else {"error": error} | row | {"status": "failed"}
        for row in rows
    ]


# --- its probes -----------------------------------------------------------------------------------
def keep_probes(out: Path, probes: Mapping[str, Mapping[str, Any]], *, wait: bool = True) -> None:
    """Write which probes the sweep in `out` is measured by: name → settings; others that were asked
    for earlier stay. With `wait` False, for a search, whose process holds its directory for hours,
    another process that writes there is not waited for.

    Raises:
        UnknownNameError, ParameterError: no such probe or setting.
        BusyError: another process writes there, and is not waited for.
    """
    added = {name: Measurement.of(name, **settings).key for name, settings in probes.items()}

    def kept() -> dict[str, Any]:
        return {one.probe.name: one.key for one in probes_of(out)}

    if not added.items() <= kept().items():
        with locked(out, wait=wait):
            write_text(out / PROBES_FILE, json.dumps(list((kept() | added).values()), indent=1))


def probes_of(out: Path) -> list[Measurement]:
    """The probes that the sweep in `out` is measured by.

    Raises:
        RunError: the file is damaged.
    """
    file = out / PROBES_FILE
    if not file.exists():
        return []
    try:
        return [Measurement.from_key(key) for key in parse_json(read_bytes(file), file)]
    except (MechintError, KeyError, TypeError, AttributeError) as error:
        again = "delete it and name the probes again, one of yours with --plugin too"
        raise RunError(f"{file}: damaged: {error}; {again}") from error
