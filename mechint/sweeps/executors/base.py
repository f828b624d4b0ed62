"""What an executor is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mechint.sweeps.plan import Group, Row


@dataclass(frozen=True)
class Job:
    """The groups of a sweep that are to run.

    groups: (place in the plan, group) of those that are not finished; out: the sweep's directory;
    device: as in ``--device``; progress: called with `mechint.training.Progress`; workers:
    processes side by side on this machine; options: of the executor, e.g. ``time`` for Slurm.
    """

    groups: list[tuple[int, Group]]
    out: Path
    device: str = "cpu"
    progress: Callable[[Any], None] | None = None
    workers: int = 1
    options: Mapping[str, str] = field(default_factory=dict)


class Executor(Protocol):
    """Runs the groups of a job; yields the rows of each as they come."""

    def __call__(self, job: Job) -> Iterator[list[Row]]: ...
