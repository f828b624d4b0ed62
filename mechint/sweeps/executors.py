"""The runs of a sweep by an executor: processes here, Ray or Slurm."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mechint.errors import MechintError, RunError, UnknownNameError
from mechint.sweeps.directory import (
    is_finished,
    keep_plan,
    refuse_other_sources,
    rows_of,
    run_group,
    with_failure,
)
from mechint.sweeps.planning import Row, RunGroup
from mechint.system.parallel import interruptible, run_jobs, tell

EXECUTORS = ("local", "ray", "slurm")


def check_executor(executor: str, options: Mapping[str, str]) -> None:
    """UnknownNameError where there is no such executor; RunError where Slurm is not here."""
    if executor not in EXECUTORS:
        raise UnknownNameError.of("executor", executor, EXECUTORS)
    local = executor != "slurm" or options.get("cluster", "slurm") != "slurm"
    if not local and shutil.which("sbatch") is None:
        raise RunError("executor slurm: there is no sbatch here; use --executor local")


def run_sweep(
    groups: Sequence[RunGroup],
    out: Path,
    executor: str = "local",
    device: str = "cpu",
    progress: Callable[[Any], None] | None = None,
    *,
    workers: int = 1,
    options: Mapping[str, str] | None = None,
    other_sources: bool = False,
) -> Iterator[list[Row]]:
    """Run every group that is not finished yet; yields the rows of each group as they come,
    finished ones first.

    Args:
        groups: from `plan`; out: the sweep's directory; executor: "local", "ray" or "slurm".
        progress: called with `mechint.training.Progress` by the local executor.
        workers: processes side by side on this machine; a group gives the same bits in each of
            them as in this process.
        options: of Slurm, such as ``{"time": "4:00:00"}``.
        other_sources: go on where runs were trained with other sources of the task.

    Raises:
        RunError: `out` belongs to another sweep, runs there were trained with other sources, or the
            executor is not there.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, with everything kept.
    """
    check_executor(executor, options or {})
    keep_plan(groups, out)
    done = [group for group in groups if is_finished(group, out)]
    for group in done:
        yield rows_of(group, out)
    waiting = [group for group in groups if group not in done]
    if not waiting:
        return
    if not other_sources:
        refuse_other_sources(out, waiting[0].task)
    if executor == "ray":
        from mechint.sweeps.on_ray import run_on_ray

        yield from run_on_ray(waiting, out, device)
    elif executor == "slurm":
        from mechint.sweeps.on_slurm import submit

        submit(waiting, out, device, options or {})
        for group in waiting:
            yield [row | {"status": "submitted"} for row in rows_of(group, out)]
    else:
        yield from _run_here(waiting, out, device, progress, workers)


def _run_here(
    groups: Sequence[RunGroup],
    out: Path,
    device: str,
    progress: Callable[[Any], None] | None,
    workers: int,
) -> Iterator[list[Row]]:
    from mechint.training.schedule import ProgressShares

    share = ProgressShares([len(group.runs) for group in groups], progress)
    with interruptible() as interrupted:
        if workers > 1 and device == "cpu" and len(groups) > 1:
            jobs = [(group, out) for group in groups]
            for place, outcome in run_jobs(
                _run_in_worker, jobs, workers, report=share.of, stop=interrupted
            ):
                if isinstance(outcome, MechintError):
                    error = f"{outcome}; --resume goes on from the last commit"
                    outcome = with_failure(rows_of(groups[place], out), error)
                yield outcome
        else:
            for place, group in enumerate(groups):
                yield run_group(group, out, device, progress and partial(share.of, place))
                if interrupted.is_set():  # rows of another process may be interrupted, too
                    break
        if interrupted.is_set():
            raise KeyboardInterrupt


def _run_in_worker(group: RunGroup, out: Path) -> list[Row]:
    return run_group(group, out, "cpu", tell)
