"""Jobs in processes of their own: training, sweeps and tables share this one pool.

    for place, outcome in run_jobs(measure, jobs, workers=4): ...

A worker is a `ProcessPoolExecutor` of one process, so that the death of one ends its own job alone.
It has one thread and the plug-ins of this process, ignores Ctrl-C and SIGTERM, which this process
passes on through a pipe, and ends when this process does. As with every pool that spawns, a script
that uses several workers begins under ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from mechint.errors import MechintError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Sent by a person and by a batch system to a process that should end."""

POLL = 0.1
"""Seconds between two looks at what workers report."""

_stopping: threading.Event | None = None
"""The event of the outermost `interruptible` block; in a worker, of the whole process."""
_parent: Connection | None = None
"""In a worker, the pipe to the process that started it."""


class WorkerEndedError(MechintError):
    """A worker process ended before its job did."""


# --- stopping -------------------------------------------------------------------------------------
@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second one interrupts as usual.

    Inside another `interruptible` it is that one's event. Threads other than the main one receive
    no signals, and their event is never set.
    """
    global _stopping
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event()
        return
    if _stopping is not None:
        yield _stopping
        return
    _stopping = event = threading.Event()
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
        _stopping = None
        restore()


# --- in this process ------------------------------------------------------------------------------
def usable_cores() -> int:
    """Cores that this process may use, where Slurm, a container or taskset leave it fewer than the
    machine has.
    """
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_jobs(
    function: Callable[..., Any],
    jobs: Sequence[tuple[Any, ...]],
    workers: int,
    *,
    report: Callable[[int, Any], None] | None = None,
    stop: threading.Event | None = None,
) -> Iterator[tuple[int, Any]]:
    """(place, outcome) of ``function(*job)`` for every job, in the order in which they end.

    Args:
        function: importable by its name; jobs: its arguments, which can be pickled.
        report: called with a job's place and everything that it passes to `tell`.
        stop: once set, no further job begins, and jobs inside an `interruptible` block are asked to
            end. None: where this generator is closed early, jobs are cut off.

    The outcome of a job whose process died is a `WorkerEndedError`, as a value: the other jobs go
    on. Errors that a job raises are raised here.
    """
    try:
        waiting = deque((place, pickle.dumps((function, job))) for place, job in enumerate(jobs))
    except (pickle.PicklingError, AttributeError) as error:
        raise MechintError(
            f"a worker cannot take what neither a module nor a plug-in defines; use one worker "
            f"({error})"
        ) from error
    running: dict[Future[Any], tuple[int, _Worker]] = {}
    idle: list[_Worker] = []

    def listen() -> None:
        for place, worker in running.values():
            for message in worker.messages():
                if report is not None:
                    report(place, message)

    try:
        while waiting or running:
            if stop is not None and stop.is_set():
                waiting.clear()
                for _, worker in running.values():
                    worker.stop()
            while waiting and len(running) < workers:
                worker = idle.pop() if idle else _Worker()
                place, job = waiting.popleft()
                running[worker.submit(job)] = place, worker
            done, _ = wait(running, timeout=POLL, return_when=FIRST_COMPLETED)
            listen()
            for future in done:
                place, worker = running.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    worker.close()
                    yield place, worker.ending()
                else:
                    idle.append(worker)
                    yield place, future.result()
    finally:
        left = [worker for _, worker in running.values()]
        for worker in left if stop is not None else ():
            worker.stop()
        for worker in (*left, *idle):
            worker.close(wait_for_job=stop is not None)


class _Worker:
    """One process, and a pipe to it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, self._theirs = context.Pipe()
        self._ready = self._stopped = False
        self._pool = ProcessPoolExecutor(
            1, mp_context=context, initializer=_begin, initargs=(self._theirs,)
        )

    def submit(self, job: bytes) -> Future[Any]:
        """Let it work on a pickled job."""
        future = self._pool.submit(_work, job)
        self._theirs.close()  # the process has started: its end of the pipe is its own
        return future

    def messages(self) -> Iterator[Any]:
        """Messages that have come from it since the last look."""
        with contextlib.suppress(EOFError, OSError):  # it has ended
            while self._pipe.poll():
                message = self._pipe.recv()
                if self._ready:
                    yield message
                self._ready = True

    def stop(self) -> None:
        """Ask it to end its job; safe to call repeatedly."""
        if not self._stopped:
            self._stopped = True
            with contextlib.suppress(OSError):
                self._pipe.send("stop")

    def close(self, wait_for_job: bool = False) -> None:
        """Wait until it has ended; its job is cut off unless `wait_for_job`."""
        if not wait_for_job:
            self._pipe.close()
        self._pool.shutdown(cancel_futures=True)
        self._pipe.close()

    def ending(self) -> WorkerEndedError:
        """The error that says how it ended."""
        if self._ready:
            return WorkerEndedError("a worker process was killed, perhaps because memory ran out")
        return WorkerEndedError(
            "a worker process ended as it started; a script that uses several workers begins under "
            'if __name__ == "__main__":'
        )


# --- in a worker ----------------------------------------------------------------------------------
def tell(message: Any) -> None:
    """Send a message to the `report` of the process that started this worker."""
    if _parent is not None:
        with contextlib.suppress(OSError):  # it is ending
            _parent.send(message)


def _begin(pipe: Connection) -> None:
    global _parent, _stopping
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    _parent, _stopping = pipe, threading.Event()
    threading.Thread(target=_listen, args=(pipe, _stopping), daemon=True).start()

    import torch

    torch.set_num_threads(1)
    pipe.send("ready")


def _listen(pipe: Connection, stopping: threading.Event) -> None:
    """Wait for the request to stop; end where the other process has ended or gives the job up."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.recv()
            stopping.set()
    os._exit(1)


def _work(job: bytes) -> Any:
    from mechint.registry.plugins import given_plugins, load_plugins

    load_plugins(given_plugins())  # before the job is read: it may hold a plug-in's task
    function, arguments = pickle.loads(job)  # noqa: S301
    return function(*arguments)
