"""The directory of a sweep: its plan, and the rows of its groups.

    DIR/sweep.json              the plan; another plan is refused
    DIR/seed=3,d_model=16/      a run directory each
    DIR/probes.json             the probes that measure its runs (`mechint.sweeps.measuring`)
    DIR/groups/0000/rows.jsonl  one row per run: id, parameters, status, path, metrics

A group keeps its rows in a file of its own under a lock of its own, so that any number of workers
and machines share the directory of a sweep.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.errors import MechintError, RunError
from mechint.files import make_directory, parse_json, read_bytes, write_text
from mechint.locks import BusyError, is_locked, locked
from mechint.sweeps.measuring import measure_rows
from mechint.sweeps.plan import Group, Row, from_json, to_json

if TYPE_CHECKING:
    from mechint.training import Spec

PLAN, ROWS = "sweep.json", "rows.jsonl"
UNFINISHED = ("failed", "interrupted", "running", "submitted", "waiting")


def keep_plan(groups: Sequence[Group], out: Path) -> None:
    """Write the plan into `out`; RunError if `out` belongs to another sweep or to a run."""
    text = to_json(groups)
    file = make_directory(out) / PLAN
    # list before looking for the plan: another process sharing the sweep may be writing it now
    others = [path for path in out.iterdir() if path.name not in (".lock", PLAN)]
    if not file.exists():
        if any(not path.name.endswith(".part") for path in others):
            raise RunError(f"{out}: holds something else; choose an empty directory for the sweep")
        with locked(out, wait=True):  # of two sweeps that begin here at once, one is refused
            if not file.exists():
                write_text(file, text)
    if read_plan(out) != from_json(json.loads(text)):
        raise RunError(
            f"{out}: holds another sweep; choose another --out, or give the directory itself to "
            "see it"
        )


def read_plan(out: Path) -> list[Group]:
    """The groups of the sweep in the directory `out`."""
    try:
        return from_json(parse_json(read_bytes(out / PLAN), out / PLAN))
    except (RunError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{out}: holds no sweep: {error}") from error


def rows_of(group: Group, out: Path) -> list[Row]:
    """What is known of a group's runs, with their paths in `out`, where the sweep may have been
    moved or copied to; a damaged file counts for nothing.
    """
    file = group.books(out) / ROWS
    if not file.exists():
        return group.rows()
    try:
        lines = read_bytes(file).decode("utf-8").splitlines()
        rows = [parse_json(line, file) for line in lines]
        known = [row["id"] for row in rows]
        for row, place in zip(rows, group.paths(out), strict=True):
            row["path"] = None if row["path"] is None else str(place)
    except (RunError, ValueError, KeyError, TypeError):
        return group.rows()
    return rows if known == group.run_ids else group.rows()


def is_finished(group: Group, out: Path) -> bool:
    """Whether there is nothing left to do for a group: its rows say so, and its runs are there and
    done, with files that can be read.
    """
    from mechint.training.run_directory import RunDirectory

    if any(row["status"] in UNFINISHED for row in rows_of(group, out)):
        return False
    lack = any(RunDirectory(place).lacks_weights() for place in group.paths(out))
    return not lack and all(_done(spec) for spec in group.specs(out))


def _done(spec: Spec) -> Row:
    """Status, path and metrics of a run that was trained to its end; empty where it was not, or a
    file of it is damaged.
    """
    from mechint.results import to_jsonable
    from mechint.training import Run

    try:
        run = Run(spec).load()
    except RunError:
        return {}
    if run.status not in ("finished", "stopped"):
        return {}
    return {"status": run.status, "path": str(run.path), "metrics": to_jsonable(run.final)}


def live_rows(group: Group, out: Path) -> list[Row]:
    """`rows_of`, with where the runs stand now; one with a damaged file has failed."""
    from mechint.results import to_jsonable
    from mechint.training import Run

    rows = rows_of(group, out)
    busy = is_locked(group.books(out))
    for row, spec in zip(rows, group.specs(out), strict=True):
        try:
            run = Run(spec).load()
        except RunError as error:
            row |= {"status": "failed", "error": str(error)}
            continue
        if run.status != "waiting" or row["status"] not in ("failed", "submitted"):
            unfinished = run.status in UNFINISHED
            row["status"] = "running" if busy and unfinished else run.status
        row |= {"path": str(run.path), "metrics": to_jsonable(run.final)}
        if row["status"] == "running" and not busy:
            row["status"] = "interrupted"  # killed: its state says that it was at work
    return rows


def run_group(
    group: Group,
    out: Path,
    device: str = "cpu",
    progress: Callable[[Any], None] | None = None,
) -> list[Row]:
    """Train one group and measure it by the sweep's probes, or return its rows where it is
    finished; a failure is a row, not an exception. A group that another process trains is left to
    it.
    """
    if is_finished(group, out):
        return rows_of(group, out)
    with contextlib.suppress(BusyError), locked(group.books(out)) as check_held:
        if is_finished(group, out):  # by another process, meanwhile
            return rows_of(group, out)
        rows = _train_group(group, out, device, progress)
        check_held()
        _write_rows(rows, group, out)
        measure_rows(rows, out, device)
        return rows
    return live_rows(group, out)


def _train_group(
    group: Group, out: Path, device: str, progress: Callable[[Any], None] | None
) -> list[Row]:
    from mechint.results import to_jsonable
    from mechint.training import train_many

    rows, specs = group.rows("failed"), []
    try:
        specs = group.specs(out)
        runs = train_many(
            specs,
            resume=True,
            device=device,
            progress=progress,
            parts=[range(len(specs))],
            threads=1,  # as in a worker, on Ray and on Slurm
            on_interrupt="return",  # its rows are written first
        )
    except BusyError:
        raise
    except MechintError as error:
        done = [_done(spec) for spec in specs] or [{}] * len(rows)
        failed = {"error": str(error)}
        rows = [row | (own or failed) for row, own in zip(rows, done, strict=True)]
    else:
        for row, run in zip(rows, runs, strict=True):
            row |= {
                "status": run.status,
                "path": str(run.path),
                "metrics": to_jsonable(run.final),
            } | ({"error": run.error} if run.error else {})
    return rows


def keep_failure(group: Group, out: Path, reason: str) -> list[Row]:
    """The rows of a group whose process died, written as those of any failure, which ``--resume``
    tries again; those of a group that had been trained, or that another process trains, stay.
    """
    try:
        with locked(group.books(out)):
            if is_finished(group, out):
                return rows_of(group, out)
            error = f"{reason}; --resume goes on from its last commit"
            rows = [row | {"error": error} for row in group.rows("failed")]
            _write_rows(rows, group, out)
            return rows
    except BusyError:
        return live_rows(group, out)


def _write_rows(rows: Sequence[Row], group: Group, out: Path) -> None:
    write_text(group.books(out) / ROWS, "".join(json.dumps(row) + "\n" for row in rows))
