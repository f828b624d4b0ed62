"""Sweeps: many runs as one table that can stop and go on, here, on Ray or on Slurm."""

from mechint.sweeps.directory import keep_plan, keep_probes, read_plan, run_group, status
from mechint.sweeps.executors import run_sweep
from mechint.sweeps.planning import RunGroup, parse_values, plan, read_file

__all__ = [
    "RunGroup",
    "keep_plan",
    "keep_probes",
    "parse_values",
    "plan",
    "read_file",
    "read_plan",
    "run_group",
    "run_sweep",
    "status",
]
