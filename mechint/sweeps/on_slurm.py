"""Groups as one Slurm array job, through submitit, whose tasks are queued again in time.

A while before the time is up, and before it takes a node back, Slurm sends the signal that submitit
listens for; the task is queued again and goes on from its last commit. So a sweep may take longer
than the time limit of a partition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mechint.config.settings import split_named
from mechint.errors import ParameterError, RunError
from mechint.registry.plugins import given_plugins, load_plugins
from mechint.sweeps.directory import run_group
from mechint.sweeps.planning import Row, RunGroup
from mechint.system.parallel import interruptible

MISSING = "executor slurm: submitit is not installed; pip install submitit"
REQUEUES = 1000
"""Times that a task may run into its time limit."""


class SweepTask:
    """Groups that one task of the array trains, one after another."""

    def __init__(self, groups: Sequence[RunGroup], out: Path, device: str) -> None:
        self.groups, self.out, self.device = groups, out, device
        self.plugins = given_plugins()

    def __call__(self) -> list[Row]:
        load_plugins(self.plugins)
        rows: list[Row] = []
        with interruptible() as interrupted:
            for group in self.groups:
                if not interrupted.is_set():
                    rows += run_group(group, self.out, self.device)
        return rows

    def checkpoint(self) -> Any:
        """The submission of submitit that goes on where this one was stopped."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit(
    groups: Sequence[RunGroup], out: Path, device: str, options: Mapping[str, str]
) -> list[Any]:
    """Submit the groups as one array; ``mechint sweep DIR`` shows how it stands. Returns
    submitit's jobs.

    options: ``concurrent`` (tasks at once), ``groups_per_task``, ``setup`` (a line of shell that
    runs before), ``cluster`` ("slurm", or "local" for processes of this machine); any other is an
    option of sbatch, such as time, mem, partition or account.

    Raises:
        RunError: submitit or Slurm is not there. ParameterError: an option that is none.
    """
    try:
        import submitit
        from submitit.core.utils import FailedJobError
    except ImportError as error:
        raise RunError(MISSING) from error
    given = dict(options)
    per_task = _count(given, "groups_per_task", 1)
    parameters: dict[str, Any] = {"name": "mechint-sweep", "cpus_per_task": 1}
    if "concurrent" in given:
        parameters["slurm_array_parallelism"] = _count(given, "concurrent", 1)
    if setup := given.pop("setup", ""):
        parameters["slurm_setup"] = [setup]
    cluster = given.pop("cluster", "slurm")
    if device.startswith("cuda"):
        given.setdefault("gres", "gpu:1")
    for name, value in given.items():
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", name) or "\n" in value:
            raise ParameterError(f"--slurm {name}={value!r}: expected an option of sbatch")
    parameters["slurm_additional_parameters"] = {
        name.replace("-", "_"): value for name, value in given.items()
    }
    out = out.resolve()
    tasks = [
        SweepTask(groups[i : i + per_task], out, device) for i in range(0, len(groups), per_task)
    ]
    try:
        executor = submitit.AutoExecutor(
            out / "slurm", cluster=cluster, slurm_max_num_timeout=REQUEUES
        )
        executor.update_parameters(**parameters)
        with executor.batch():
            return [executor.submit(task) for task in tasks]
    except (RuntimeError, ValueError, OSError, FailedJobError) as error:
        raise RunError(f"executor slurm: {error}; or use --executor local") from error


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """The options of ``--slurm KEY=VALUE``.

    >>> parse_options(["time=1:00:00", "mem=4G"])
    {'time': '1:00:00', 'mem': '4G'}
    """
    expected = "KEY=VALUE, such as time=4:00:00"
    pairs = (split_named(text, f"--slurm {text!r}", expected) for text in texts)
    return {name.lstrip("-"): value for name, value in pairs}


def _count(options: dict[str, str], name: str, default: int) -> int:
    text = options.pop(name, str(default))
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise ParameterError(f"--slurm {name}={text}: expected a number from 1")
    return int(text)
