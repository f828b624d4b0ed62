"""Where the groups of a sweep run: on this machine, on Ray, or on Slurm."""

from mechint.sweeps.executors.base import Executor, Job
from mechint.sweeps.executors.local import local
from mechint.sweeps.executors.ray import on_ray
from mechint.sweeps.executors.slurm import on_slurm

EXECUTORS: dict[str, Executor] = {"local": local, "ray": on_ray, "slurm": on_slurm}

__all__ = ["EXECUTORS", "Executor", "Job", "local", "on_ray", "on_slurm"]
