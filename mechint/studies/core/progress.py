"""How far a study is, in words."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from mechint.durations import in_words
from mechint.training import Progress


class ProgressReporter:
    """Turns the steps of ensembles into "run k of n", rate and time left; work is counted in
    steps of one run, and `left` says how many each has.
    """

    def __init__(self, left: Sequence[int], show: Callable[[str], None]) -> None:
        self.runs, self.total, self.show = len(left), sum(left), show
        self.begun, self.started = sum(steps == 0 for steps in left), time.monotonic()
        # of each ensemble: its first run's number with its first progress, and its latest one
        self.first: dict[int, tuple[int, Progress]] = {}
        self.latest: dict[int, Progress] = {}
        self.offset = 0

    def next_stage(self) -> None:
        """Parts are numbered anew from here on; their work is kept."""
        self.offset = 1 + max(self.first, default=-1)

    def __call__(self, now: Progress) -> None:
        now = dataclasses.replace(now, part=now.part + self.offset)
        if now.part not in self.first:
            self.first[now.part] = self.begun + 1, now
            self.begun += now.models
        self.latest[now.part] = now
        run, first = self.first[now.part]
        work = sum(
            begun.models * (self.latest[part].step - begun.step)
            for part, (_, begun) in self.first.items()
        )
        elapsed = time.monotonic() - self.started
        pace = ""
        if work and elapsed > 2:
            left = in_words(elapsed * (self.total - work) / work)
            pace = f", {work / elapsed:.3g} steps/s over all runs, about {left} left"
        several = f"-{run + first.models - 1}" if first.models > 1 else ""
        self.show(f"run {run}{several} of {self.runs}, step {now.step} of {now.steps}{pace}")
