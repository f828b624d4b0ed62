"""What a study takes, in study.json, and when its budget is spent."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mechint.durations import in_words
from mechint.errors import RunError
from mechint.files import parse_json, read_bytes, write_text
from mechint.locks import locked
from mechint.training import Progress

KIND = "study.json"


def read_kind(place: Path) -> dict[str, Any]:
    """What study.json says; RunError where it cannot be read."""
    try:
        return parse_json(read_bytes(place / KIND), place / KIND)
    except RunError as error:
        raise RunError(f"{place / KIND}: cannot be read: {error}; choose another --out") from error


class Spent:
    """Adds up in study.json what a study has taken, however often it was stopped and by however
    many calls at once: seconds, and processor seconds, which other work on the machine does not
    lengthen.
    """

    def __init__(self, place: Path) -> None:
        self.place, self.since = place, self._now()

    @staticmethod
    def _now() -> dict[str, float]:
        # of this process and of the workers that have ended
        return {"seconds": time.monotonic(), "processor_seconds": sum(os.times()[:4])}

    def add(self, at_least: float = 0) -> None:
        """Write down what was spent since the last time, if that is `at_least` so many seconds."""
        now = self._now()
        if now["seconds"] - self.since["seconds"] < at_least:
            return
        with locked(self.place, wait=True):  # another call may be writing down its own
            kind = read_kind(self.place)
            for name, value in now.items():
                kind[name] = round(kind.get(name, 0.0) + value - self.since[name], 1)
            self.since = now
            write_text(self.place / KIND, json.dumps(kind))

    def facts(self) -> dict[str, str]:
        """Both sums in words, for the report."""
        kind = read_kind(self.place)
        return {
            "time spent": in_words(kind["seconds"]),
            "processor time": in_words(kind["processor_seconds"]),
        }


class Clock:
    """Ends training when the budget is spent, as Ctrl-C does: every state is saved first. What is
    spent is written down every minute, for a kill asks nobody.
    """

    def __init__(self, budget: float | None, written: Spent) -> None:
        if budget is not None and threading.current_thread() is not threading.main_thread():
            raise RunError("reproduce: a budget ends the main thread's training alone; got another")
        self.budget, self.started, self.written = budget, time.monotonic(), written

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""
        return self.budget is not None and self.elapsed >= self.budget

    def watch(
        self, then: Callable[[Progress], None] | None, interrupted: threading.Event
    ) -> Callable[[Progress], None]:
        """A progress callback that calls `then`, and sets `interrupted` once the budget is
        spent.
        """

        def heard(now: Progress) -> None:
            if then is not None:
                then(now)
            self.written.add(at_least=60)
            if self.spent:
                interrupted.set()

        return heard
