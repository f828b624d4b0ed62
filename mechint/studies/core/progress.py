"""How far a study is, in words."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

from mechint.durations import in_words
from mechint.training import Progress


class ProgressReporter:
    """Turns the steps of ensembles into "run k of n", rate and time left. `left` has the steps that
    each run has still to make, `costs`, by the run's place, what one of them costs: wide models
    are slower. Time counts from the first report on: what comes before it, starting processes and
    reading what untrained models write at length, says nothing of the pace.
    """

    def __init__(
        self, left: Sequence[int], costs: Mapping[int, int], show: Callable[[str], None]
    ) -> None:
        self.runs, self.show = len(left), show
        self.work = sum(steps * costs[place] for place, steps in enumerate(left))
        self.begun = sum(steps == 0 for steps in left)
        self.started: float | None = None
        # of each ensemble: its first run's number with its first progress, and its latest one
        self.first: dict[int, tuple[int, Progress]] = {}
        self.latest: dict[int, Progress] = {}
        self.offset = 0

    def next_stage(self) -> None:
        """Parts are numbered anew from here on; their work is kept."""
        self.offset = 1 + max(self.first, default=-1)

    def __call__(self, now: Progress) -> None:
        now = dataclasses.replace(now, part=now.part + self.offset)
        if self.started is None:
            self.started = time.monotonic()
        if now.part not in self.first:
            self.first[now.part] = self.begun + 1, now
            self.begun += now.models
        self.latest[now.part] = now
        run, first = self.first[now.part]
        steps = {
            part: begun.models * (self.latest[part].step - begun.step)
            for part, (_, begun) in self.first.items()
        }
        work = sum(made * self.latest[part].cost for part, made in steps.items())
        elapsed = time.monotonic() - self.started
        pace = ""
        if work and elapsed > 2:
            rate, left = sum(steps.values()) / elapsed, elapsed * (self.work - work) / work
            pace = f", {rate:.3g} steps/s over all runs, about {in_words(left)} left"
        several = f"-{run + first.models - 1}" if first.models > 1 else ""
        self.show(f"run {run}{several} of {self.runs}, step {now.step} of {now.steps}{pace}")
