"""Ctrl-C and SIGTERM as an event, so that a training step is never cut in two."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mechint.training.run import Run

_current: threading.Event | None = None
"""The event of the outermost `interruptible` that is at work."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What a person and what a batch system send to a process that should end."""


@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second one interrupts as usual.

    Inside another `interruptible` it is that one's event. In a thread other than the main one
    signals cannot be handled, and the event is never set.
    """
    global _current
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event()
        return
    if _current is not None:
        yield _current
        return
    _current = event = threading.Event()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def first(number: int, frame: FrameType | None) -> None:
        event.set()
        restore()

    for number in SIGNALS:
        signal.signal(number, first)
    try:
        yield event
    finally:
        _current = None
        restore()


def raise_interrupted(runs: Sequence[Run]) -> None:
    """KeyboardInterrupt where a run was stopped, which nobody should take for a trained one."""
    for run in runs:
        if run.status == "interrupted":
            goes_on = "" if run.path is None else "; the same call with resume=True goes on"
            raise KeyboardInterrupt(
                f"training stopped at step {run.step} of {run.spec.train.steps}{goes_on}"
            )
