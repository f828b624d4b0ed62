"""Sweeps: many runs as one table that can stop and go on, here, on Ray or on Slurm."""

from mechint.sweeps.plan import Group, parse_values, plan
from mechint.sweeps.run import run_sweep, status
from mechint.sweeps.table import read_plan, run_group

__all__ = ["Group", "parse_values", "plan", "read_plan", "run_group", "run_sweep", "status"]
