"""Running a sweep, and looking at one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mechint.sweeps.executors import EXECUTORS
from mechint.sweeps.executors.base import Job
from mechint.sweeps.plan import Group, Row
from mechint.sweeps.table import is_finished, keep_plan, live_rows, rows_of


def run_sweep(
    groups: Sequence[Group],
    out: Path,
    executor: str = "local",
    device: str = "cpu",
    progress: Callable[[Any], None] | None = None,
    *,
    workers: int = 1,
    options: Mapping[str, str] | None = None,
) -> Iterator[list[Row]]:
    """Run every group that is not finished yet; yields the rows of each group as they come,
    finished ones first.

    Raises:
        RunError: `out` belongs to another sweep, or the executor is not there.
    """
    keep_plan(groups, out)
    done = [is_finished(group, out) for group in groups]
    for i, group in enumerate(groups):
        if done[i]:
            yield rows_of(group, out)
    waiting = [(i, group) for i, group in enumerate(groups) if not done[i]]
    job = Job(waiting, out, device, progress, workers, options or {})
    if waiting:
        yield from EXECUTORS[executor](job)


def status(groups: Sequence[Group], out: Path) -> list[Row]:
    """One row per run of a sweep, with where it stands now; nothing is written."""
    return [row for group in groups for row in live_rows(group, out)]
