"""Ensembles in processes of their own, one thread each.

Small models gain more from a core each than from all cores at every matrix product, and what a run
computes then does not depend on how many of them there are. The parent hands out lists of runs; a
worker (`python -m mechint.training.workers`) reads them from its input, trains them into their
directories, and sends its progress line by line.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import torch

from mechint.errors import MechintError
from mechint.plugins import load_given_plugins
from mechint.training.interrupt import SIGNALS, interruptible
from mechint.training.part import train_part
from mechint.training.plan import Part
from mechint.training.run import Run, Spec
from mechint.training.schedule import Progress

Message = dict[str, Any]
"""From a worker: the fields of a Progress; or "done", status and error of every run; or "error",
why it could not train them.
"""


class Worker:
    """One process; `inbox` gets (worker, message) for all it says, and (worker, None) when it has
    ended.
    """

    def __init__(self, inbox: queue.Queue[tuple[Worker, Message | None]]) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "mechint.training.workers"]
        # a session of its own: Ctrl-C reaches it by the parent alone, and once
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self.part: int | None = None
        self.resume = False
        self._inbox = inbox
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith(b"\n"):  # it was killed as it wrote
                break
            self._inbox.put((self, json.loads(line)))
        self._inbox.put((self, None))

    def submit(self, part: int, specs: Sequence[Spec], ensemble: str, resume: bool) -> None:
        """Let it train these runs, part number `part` of the plan."""
        assert self.process.stdin is not None
        self.part, self.resume = part, resume
        with contextlib.suppress(BrokenPipeError):  # it has ended, as the inbox says
            pickle.dump((list(specs), ensemble, resume), self.process.stdin)
            self.process.stdin.flush()

    def stop(self) -> None:
        """Ask it to save its states and stop training; safe to call repeatedly."""
        if self.part is not None and self.process.poll() is None:
            self.process.terminate()  # of one that still starts, without a traceback

    def close(self) -> None:
        """Wait until it has ended."""
        self.stop()
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self._listener.join()
        self.process.stdout.close()


def train_in_processes(
    parts: Sequence[Part],
    runs: Sequence[Run],
    resume: bool,
    n: int,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Train every part of a plan by `n` workers; each run then holds what became of it.

    Ctrl-C and SIGTERM are passed on; when every worker has committed its states, this returns with
    runs that are "interrupted".

    Raises:
        MechintError: a worker could not go on; what it trained goes on from its last committed
            state the next time.
    """
    inbox: queue.Queue[tuple[Worker, Message | None]] = queue.Queue()
    waiting = deque(enumerate(parts))

    def submit_next(worker: Worker) -> None:
        number, part = waiting.popleft()
        worker.submit(number, [runs[i].spec for i in part.members], part.ensemble, resume)

    with interruptible() as interrupted:
        workers = [Worker(inbox) for _ in range(min(n, len(parts)))]
        try:
            for worker in workers:
                submit_next(worker)
            while any(worker.part is not None for worker in workers):
                if interrupted.is_set():
                    waiting.clear()
                    for worker in workers:
                        worker.stop()
                with contextlib.suppress(queue.Empty):
                    worker, message = inbox.get(timeout=0.1)
                    handle_message(worker, message, parts, runs, interrupted.is_set(), progress)
                    if worker.part is None and waiting:
                        submit_next(worker)
        finally:
            for worker in workers:
                worker.close()


def handle_message(
    worker: Worker,
    message: Message | None,
    parts: Sequence[Part],
    runs: Sequence[Run],
    interrupted: bool,
    progress: Callable[[Progress], None] | None,
) -> None:
    """What a worker sent of its part: where it stands, what became of the runs, or that it cannot
    go on.
    """
    if worker.part is None:
        return
    if message is None and interrupted:  # before it listened
        worker.part = None
    elif message is None:
        raise MechintError(
            f"train: a worker ended with status {worker.process.wait()}; "
            f"{'the same command' if worker.resume else '--resume'} goes on from its last commit"
        )
    elif "error" in message:
        raise MechintError(message["error"])
    elif "done" not in message:
        if progress:
            progress(Progress(**message, part=worker.part))
    else:
        for index, (status, error) in zip(parts[worker.part].members, message["done"], strict=True):
            runs[index].load()
            runs[index].status, runs[index].error = status, error
        worker.part = None


def work(source: IO[bytes], send: Callable[[Message], None]) -> None:
    """Train the parts that come from `source` until it ends; a worker does not outlive its
    parent by more than one report.
    """
    parent = os.getppid()

    def progress(now: Progress) -> None:
        if os.getppid() != parent:
            os._exit(1)
        send({"step": now.step, "steps": now.steps, "metrics": now.metrics, "models": now.models})

    try:
        load_given_plugins()  # a task of one's own is needed to read what is sent
    except MechintError as error:
        send({"error": str(error)})
        source.read()  # or the parent would write to nobody
        return
    for specs, ensemble, resume in _parts(source):
        runs = [Run(spec) for spec in specs]
        try:
            train_part(runs, ensemble, torch.device("cpu"), progress, resume)
        except MechintError as error:
            send({"error": str(error)})
        else:
            send({"done": [(run.status, run.error) for run in runs]})


def _parts(source: IO[bytes]) -> Iterator[tuple[list[Spec], str, bool]]:
    with contextlib.suppress(EOFError, pickle.UnpicklingError):  # or it ended as it wrote
        while True:
            yield pickle.load(source)


def to_parent() -> Callable[[Message], None]:
    """What sends a worker's messages by its standard output, to which nothing else is written from
    now on. A worker whose parent has ended, so that nobody reads, ends without a word.
    """
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def send(message: Message) -> None:
        try:
            print(json.dumps(message), file=lines)
        except BrokenPipeError:
            os._exit(1)

    return send


if __name__ == "__main__":
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # an ensemble in training listens for itself
    work(sys.stdin.buffer, to_parent())
