"""Fixtures of the tests of killed and resumed runs: a tiny run, its files, and forked children."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tasks
from mechint.system.locks import BusyError, locked
from mechint.training import Progress, Run, Spec, train, train_many

KILLED = 9
"""Exit status of a child that ended at a crash point."""


def tiny(out: Path, seeds: tuple[int, ...] = (4,), resume: bool = False, **training) -> list[Run]:
    """A run of 30 steps with dropout, minibatches, a gradient filter and kept checkpoints."""
    return train(
        tasks.make("modular-arithmetic", p=5, train_fraction=0.6),
        {"d_model": 8, "n_heads": 1, "d_mlp": 8, "dropout": 0.2},
        {
            "steps": 30,
            "evaluate_every": 15,
            "batch_size": 4,
            "grokfast": "ema",
            "checkpoints": "linear",
            "n_checkpoints": 1,
            **training,
        },
        seeds=seeds,
        out=out,
        resume=resume,
    )


def tiny_specs(out: Path, seeds: tuple[int, ...] = (4,)) -> list[Spec]:
    """The runs of `tiny`, not trained."""
    captured: list[Spec] = []

    def keep(specs: list[Spec], **_: Any) -> list[Run]:
        captured.extend(specs)
        return [Run(spec) for spec in specs]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mechint.training.api.train_many", keep)
        tiny(out, seeds)
    return captured


def stopped_at(step: int, specs: list[Spec], number: int = signal.SIGTERM) -> list[Run]:
    """Train runs until a signal comes at the evaluation at `step`."""
    pressed: list[int] = []

    def press(now: Progress) -> None:
        if now.step == step and not pressed:
            pressed.append(step)
            os.kill(os.getpid(), number)

    runs = train_many(specs, progress=press, on_interrupt="return")
    assert {run.status for run in runs} == {"interrupted"}
    return runs


def files_of(directory: Path) -> dict[str, bytes]:
    """Every file of a run or of several, by its path; locks are no part of them."""
    found = {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".lock"
    }
    assert not [name for name in found if name.endswith(".part")]
    return found


def start_child(work: Callable[[], None]) -> int:
    """Do `work` in a forked child; its process number."""
    with warnings.catch_warnings():  # newer Pythons warn of forks beside threads
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            torch.set_num_threads(1)  # no thread of the parent's pool lives here
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def in_child(work: Callable[[], None]) -> int:
    """Do `work` in a forked child; its exit status, 0 when it came to its end."""
    return os.waitstatus_to_exitcode(os.waitpid(start_child(work), 0)[1])


def after_another(act: Callable[[], object]) -> Callable[..., Any]:
    """`mechint.system.locks.locked` for the one who comes second: what the first one does, `act`,
    is done before the lock is had, and none else may write while it is held.
    """
    left = [act]

    @contextlib.contextmanager
    def second(directory: Path, **settings: Any) -> Iterator[Callable[[], None]]:
        if left:
            left.pop()()
        with locked(directory, **settings) as check_held:
            with pytest.raises(BusyError), locked(directory):
                pass
            yield check_held

    return second


def at_every_write(root: Path, act: Callable[[str], None]) -> None:
    """Call `act` with the path before anything below `root` is opened to be written, made, renamed,
    cut or removed by this process, from now on.
    """
    writes = {"open", "os.rename", "os.remove", "os.mkdir", "os.truncate"}

    def hook(event: str, arguments: tuple) -> None:
        if event not in writes or not str(arguments[0]).startswith(str(root)):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        act(f"{event} {arguments[0]}")

    sys.addaudithook(hook)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A clock by which an ensemble commits its states every twelfth step, and a disk that nobody
    waits for: a killed process loses nothing that it wrote.
    """
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    now = 0.0

    def monotonic() -> float:
        nonlocal now
        now += 1.75
        return now

    monkeypatch.setattr("mechint.training.trainer.time", types.SimpleNamespace(monotonic=monotonic))
    yield
