"""Groups on this machine: one after another, or several workers of one thread each."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from mechint.errors import MechintError
from mechint.sweeps.executors.base import Job
from mechint.sweeps.plan import Group, Row
from mechint.sweeps.table import keep_failure, run_group


def local(job: Job) -> Iterator[list[Row]]:
    """The groups by `job.workers` processes, until Ctrl-C.

    A group gives the same bits in a worker as in this process: how many there are has no say in
    what is computed.
    """
    if job.workers > 1 and job.device == "cpu" and len(job.groups) > 1:
        yield from _by_workers(job)
        return
    from mechint.training.interrupt import interruptible

    share = _Shares(job)
    with interruptible() as interrupted:
        for number, group in job.groups:
            yield run_group(group, job.out, job.device, share.of_group(number))
            if interrupted.is_set():  # rows of another process may be interrupted, too
                raise KeyboardInterrupt


class _Shares:
    """Turns the progress of groups into that of the whole sweep."""

    def __init__(self, job: Job) -> None:
        self.report = job.progress
        self.models = {number: len(group.runs) for number, group in job.groups}
        self.done = dict.fromkeys(self.models, 0.0)

    def of_group(self, number: int) -> Callable[[Any], None] | None:
        """What the training of group `number` reports to; None where nobody listens."""
        if self.report is None:
            return None

        def report(now: Any) -> None:
            assert self.report is not None
            self.done[number] = now.done
            whole = sum(self.models[i] * done for i, done in self.done.items())
            share = whole / sum(self.models.values())
            self.report(dataclasses.replace(now, part=number, done=share))

        return report


def _by_workers(job: Job) -> Iterator[list[Row]]:
    """Groups in processes of their own, which take the next group when they are done; one that dies
    has failed at its group, and another process takes its place.
    """
    from mechint.training.interrupt import interruptible

    waiting: queue.Queue[tuple[int, Group]] = queue.Queue()
    for entry in job.groups:
        waiting.put(entry)
    results: queue.Queue[list[Row] | Exception | None] = queue.Queue()
    share, stopping = _Shares(job), threading.Event()
    workers = [_Worker(job, share) for _ in range(min(job.workers, len(job.groups)))]

    def serve(place: int) -> None:
        """Let the worker at `place` run groups while there are any, then put None."""
        try:
            while not stopping.is_set():
                try:
                    number, group = waiting.get_nowait()
                except queue.Empty:
                    break
                if workers[place].process.poll() is not None:  # the last group was too much for it
                    workers[place].close()
                    workers[place] = _Worker(job, share)
                results.put(workers[place].run(number, group))
        except Exception as error:
            results.put(error)
        results.put(None)

    threads = [threading.Thread(target=serve, args=(i,), daemon=True) for i in range(len(workers))]
    with interruptible() as interrupted:
        for thread in threads:
            thread.start()
        left = len(threads)
        try:
            while left:
                if interrupted.is_set():
                    stopping.set()
                    for worker in workers:  # again and again: one may not have listened yet
                        worker.stop()
                try:
                    rows = results.get(timeout=0.1)
                except queue.Empty:
                    continue
                if rows is None:
                    left -= 1
                elif isinstance(rows, Exception):
                    raise rows
                else:
                    yield rows
        finally:
            stopping.set()
            _close(workers, threads)
    if interrupted.is_set():
        raise KeyboardInterrupt


def _close(workers: list[_Worker], threads: list[threading.Thread]) -> None:
    """Let all workers commit what they train, side by side, and wait until they have ended."""
    while any(thread.is_alive() for thread in threads):
        for worker in workers:  # again and again, as above
            worker.stop()
        for thread in threads:
            thread.join(timeout=0.1)
    for worker in workers:
        worker.close()


class _Worker:
    """A process that runs groups one after another (`mechint.sweeps.worker`)."""

    def __init__(self, job: Job, share: _Shares) -> None:
        self.job, self.share, self.stopped = job, share, False
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mechint.sweeps.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches it by its parent alone, and once
            text=True,
        )

    def run(self, number: int, group: Group) -> list[Row]:
        """The rows of a group, after it has run."""
        from mechint.training import Progress

        assert self.process.stdin is not None and self.process.stdout is not None
        report = self.share.of_group(number)
        task = {"group": dataclasses.asdict(group), "out": str(self.job.out)}
        with contextlib.suppress(BrokenPipeError):  # it has ended, and may have said why
            self.process.stdin.write(json.dumps(task) + "\n")
            self.process.stdin.flush()
        for line in self.process.stdout:
            if not line.endswith("\n"):  # it was killed as it wrote
                break
            message = json.loads(line)
            if "rows" in message:
                return message["rows"]
            if "error" in message:
                raise MechintError(message["error"])
            if report is not None:
                report(Progress(**message))
        ended = self.process.wait()
        if self.stopped:
            return group.rows("interrupted")
        return keep_failure(group, self.job.out, f"its worker {_ending(ended)}")

    def stop(self) -> None:
        """Let it save the states of what it trains, and train no further."""
        self.stopped = True
        if self.process.poll() is None:
            self.process.terminate()

    def close(self) -> None:
        """Wait until it has ended, which it does when there is no more to read."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def _ending(status: int) -> str:
    """How a process ended that should not have, by its exit status.

    >>> _ending(1), _ending(-15)
    ('ended with status 1', 'was ended by signal 15')
    """
    if status >= 0:
        return f"ended with status {status}"
    hint = ", perhaps because memory ran out" if status == -signal.SIGKILL else ""
    return f"was ended by signal {-status}{hint}"
