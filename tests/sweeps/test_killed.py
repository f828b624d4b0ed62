"""One sweep, killed five times and gone on with by another executor each time: the same table."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import mechint
from mechint.sweeps import plan, run_sweep
from mechint.sweeps.executors.slurm import script
from mechint.sweeps.plan import Group
from tests import campaigns
from tests.sweeps.conftest import TASK, longer, trained_files
from tests.training.conftest import kill_after, start_child


def written(out: Path) -> dict[str, int]:
    """When each file of metrics was last written."""
    return {str(file): file.stat().st_mtime_ns for file in out.rglob("metrics.jsonl")}


def kill_at_work(start: Callable[[], int], out: Path) -> bool:
    """Start a process, and SIGKILL its group once it has written metrics; whether it was at work
    still.
    """
    before, child = written(out), start()
    descriptor = os.pidfd_open(child)
    while written(out) == before and not _ended(descriptor, 0.02):
        pass
    alive = not _ended(descriptor, 0.05)
    os.close(descriptor)
    if alive and os.getpgid(child) == child:
        os.killpg(child, signal.SIGKILL)
    kill_after(child, 0)
    return alive


def _ended(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def table(out: Path) -> pd.DataFrame:
    """The sweep as one table, without where it lies."""
    frame = mechint.runs(out).frame()
    return frame.drop(columns="path").sort_values("name").reset_index(drop=True)


@pytest.mark.slow
def test_killed_five_times(
    tmp_path: Path, two_nodes: Any, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mechint.training.trainer.STATE_SECONDS", 0.05)
    groups = plan(TASK, (*longer(1500), "evaluate_every=10"), {"seed": [0, 1], "d_mlp": [8, 16]})
    out = tmp_path / "sweep"
    list(run_sweep(groups, tmp_path / "whole"))
    ways: list[Callable[[], int]] = [
        lambda: start_child(lambda: finish(groups, out, "local")),
        lambda: start_child(lambda: finish(groups, out, "ray")),
        lambda: start_task(tmp_path, groups, out),
        lambda: start_child(lambda: finish(groups, out, "local", workers=2)),
        lambda: start_child(lambda: finish(groups, out, "ray")),
    ]
    killed = [kill_at_work(start, out) for start in ways]
    assert all(killed), "each was killed at work"
    statuses: set[str] = set()
    while statuses != {"finished"}:  # processes of the killed ones may still hold a group
        statuses = {row["status"] for rows in run_sweep(groups, out) for row in rows}
        assert statuses <= {"finished", "running", "interrupted", "waiting"}
    lost = trained_files(out) != trained_files(tmp_path / "whole")
    campaigns.record(
        "kills of a sweep that another executor goes on with",
        resumed=0 if lost else len(ways),
        lost_state=len(ways) * lost,
    )
    assert not lost
    pd.testing.assert_frame_equal(table(out), table(tmp_path / "whole"))


def finish(groups: list[Group], out: Path, executor: str, workers: int = 1) -> None:
    list(run_sweep(groups, out, executor, workers=workers))


def start_task(place: Path, groups: list[Group], out: Path) -> int:
    """All groups as one task of a Slurm array, as the batch script runs them."""
    file = place / "task.sbatch"
    file.write_text(script(len(groups), out, options={"groups_per_task": str(len(groups))}))
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_JOB_ID": "7"}
    silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    return os.posix_spawnp("bash", ["bash", file], environment, file_actions=silent, setsid=True)
