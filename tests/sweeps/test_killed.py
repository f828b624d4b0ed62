"""One sweep, killed five times and gone on with by another executor each time: the same table."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import mechint
from mechint.sweeps import keep_plan, keep_probes, plan, read_plan, run_sweep
from mechint.system.locks import is_locked
from tests.sweeps.conftest import TASK, longer, trained_files


def saved(out: Path) -> dict[str, int]:
    """The times at which each saved state of training was last written."""
    return {str(file): file.stat().st_mtime_ns for file in out.rglob("state.pt")}


def kill_at_work(command: Sequence[str | Path], out: Path) -> bool:
    """Start a process, and SIGKILL it and its children once it saved a state; whether it was still
    at work.
    """
    for group in read_plan(out):  # a process of the one killed before may still hold it
        while any(is_locked(out / run) for run in group.run_ids):
            select.select([], [], [], 0.05)
    before, child = saved(out), start(*command)
    descriptor = os.pidfd_open(child)
    while saved(out) == before and not _ended(descriptor, 0.02):
        pass
    alive = not _ended(descriptor, 0)
    os.close(descriptor)
    if alive:
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return alive


def _ended(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


PROBES: Mapping[str, Mapping[str, Any]] = {"fourier": {}, "norms": {}}


def table(out: Path) -> pd.DataFrame:
    """The sweep as one table with its probes' numbers, without where it lies."""
    asked = mechint.runs(out)
    for name in PROBES:
        asked = asked.probe(name)
    frame = asked.frame()
    assert {f"{name}.verdict" for name in PROBES} <= set(frame)
    return frame.drop(columns="path").sort_values("name").reset_index(drop=True)


HURRIED = """
import sys
from pathlib import Path
import mechint.training.trainer as trainer
from mechint.cli import main
from mechint.sweeps import read_plan, run_sweep
trainer.STATE_SECONDS = 0.05
"""
DRIVER = f"""{HURRIED}
out = Path(sys.argv[1])
list(run_sweep(read_plan(out), out, sys.argv[2], workers=int(sys.argv[3])))
"""
TASK_OF_SLURM = f"""{HURRIED}
from mechint.sweeps.on_slurm import SweepTask
out = Path(sys.argv[1])
SweepTask(read_plan(out), out, "cpu")()
"""


def start(*command: str | Path) -> int:
    """A process in a session of its own that says nothing; its number."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    return os.posix_spawnp(command[0], command, environment, file_actions=silent, setsid=True)


@pytest.mark.slow
def test_killed_five_times(tmp_path: Path, two_nodes: Any) -> None:
    groups = plan(
        TASK, (*longer(30_000), "evaluate_every=1000"), {"seed": [0, 1], "d_mlp": [8, 16]}
    )
    out = tmp_path / "sweep"
    for place in (tmp_path / "whole", out):
        keep_plan(groups, place)
        keep_probes(place, PROBES)
    list(run_sweep(groups, tmp_path / "whole"))
    driver = (sys.executable, "-c", DRIVER, out)
    ways = [
        (*driver, "local", "1"),
        (*driver, "ray", "1"),
        (sys.executable, "-c", TASK_OF_SLURM, out),
        (*driver, "local", "2"),
        (*driver, "ray", "1"),
    ]
    killed = [kill_at_work(command, out) for command in ways]
    assert all(killed), f"at work when it was killed: {killed}"
    statuses: set[str] = set()
    while statuses != {"finished"}:  # processes of the killed ones may still hold a group
        statuses = {row["status"] for rows in run_sweep(groups, out) for row in rows}
        assert statuses <= {"finished", "running", "interrupted", "waiting"}
    assert trained_files(out) == trained_files(tmp_path / "whole")
    pd.testing.assert_frame_equal(table(out), table(tmp_path / "whole"))
