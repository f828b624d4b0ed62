"""How far a study is and how long it will take."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence

from mechint.studies.core.study import PlannedRun, Study
from mechint.training import Progress, train_many

TIMED_STEPS = 4
SLOW = 5.0
"""Seconds from which one step alone, with what comes before it, is estimate enough."""


def estimate_seconds(study: Study, size: str, device: str = "cpu") -> float:
    """Seconds the runs would take, from a few steps of one run of every kind timed now; ensembles
    make it less.
    """
    kinds: dict[str, list[PlannedRun]] = {}
    for one in study.runs(size):
        shape = {**one.spec.to_dict(), "train": one.spec.train.batch_size}
        kinds.setdefault(json.dumps(shape, sort_keys=True), []).append(one)
    return sum(
        _seconds_per_step(of_a_kind[0], device) * sum(one.spec.train.steps for one in of_a_kind)
        for of_a_kind in kinds.values()
    )


def _seconds_per_step(one: PlannedRun, device: str) -> float:
    def timed(steps: int) -> float:
        train = dataclasses.replace(
            one.spec.train, steps=steps, evaluate_every=steps, eval_examples=2, checkpoints="last"
        )
        started = time.perf_counter()
        train_many([dataclasses.replace(one.spec, train=train, out=None)], device=device)
        return time.perf_counter() - started

    first = timed(1)
    if first > SLOW:
        return first
    return max(timed(1 + TIMED_STEPS) - first, 0.01 * first) / TIMED_STEPS


class ProgressReporter:
    """Turns the steps of ensembles into "run k of n, time left"; work is counted in steps of one
    run, and `left` says how many each has.
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
        left = ""
        if work and elapsed > 2:
            left = f", about {in_words(elapsed * (self.total - work) / work)} left"
        several = f"-{run + first.models - 1}" if first.models > 1 else ""
        self.show(f"run {run}{several} of {self.runs}, step {now.step} of {now.steps}{left}")


def in_words(seconds: float) -> str:
    """A duration in the unit that suits it.

    >>> in_words(30), in_words(600), in_words(7200)
    ('30 s', '10 min', '2.0 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
