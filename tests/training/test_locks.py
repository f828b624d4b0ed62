"""One writer per directory: locks held by a child, freed by its death, and SIGTERM."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from mechint.errors import RunError
from mechint.system.locks import BusyError, is_locked, locked
from mechint.training import Progress, train_many
from tests.training.conftest import files_of, tiny, tiny_specs


def holding(directory: Path) -> tuple[int, int]:
    """A child that holds the lock of `directory` until it is killed: its process and a pipe."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with locked(directory):
                os.write(tell, b"x")
                signal.pause()
        finally:
            os._exit(0)
    assert os.read(ready, 1) == b"x"
    os.close(ready)
    os.close(tell)
    return child, tell


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_directory_has_one_writer_until_it_dies(tmp_path: Path) -> None:
    out = tmp_path / "run"
    child, _ = holding(out)
    try:
        for resume in (False, True):
            with pytest.raises(RunError, match=rf"run: process {child} on .* is writing there"):
                tiny(out, resume=resume)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert tiny(out)[0].status == "finished"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_one_of_several_directories_is_taken(tmp_path: Path) -> None:
    child, _ = holding(tmp_path / "seed-0005")
    try:
        with pytest.raises(RunError, match="seed-0005: process"):
            tiny(tmp_path, (4, 5))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert {run.status for run in tiny(tmp_path, (4, 5))} == {"finished"}


def trained_until(step: int, spec, then: Callable[[], object]) -> None:
    """Train the run `spec`; `then` is done once, after the evaluation at `step`."""
    left = [then]

    def report(now: Progress) -> None:
        if now.step == step and left:
            left.pop()()

    train_many([spec], progress=report)


@pytest.mark.parametrize("step", [0, 15])
def test_a_run_does_not_write_into_one_that_took_its_place(tmp_path: Path, step: int) -> None:
    """`rm -r b` while it trains, and another run with the same --out."""
    tiny(tmp_path / "whole", (5,))
    (spec,), out = tiny_specs(tmp_path / "b"), tmp_path / "b"
    with pytest.raises(RunError, match=r"b: was moved, removed or replaced while this process"):
        trained_until(step, spec, lambda: [shutil.rmtree(out), tiny(out, (5,))])
    assert files_of(out) == files_of(tmp_path / "whole")


@pytest.mark.parametrize("every", [0.0, 1e9])
def test_a_run_that_is_moved_while_it_trains_goes_on_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: float
) -> None:
    """With a commit after every step, and with none."""
    tiny(tmp_path / "whole")
    (spec,), moved = tiny_specs(tmp_path / "b"), tmp_path / "moved"
    monkeypatch.setattr("mechint.training.trainer.STATE_SECONDS", every)
    with pytest.raises(RunError, match=r"b: was moved, removed or replaced while this process"):
        trained_until(15, spec, lambda: (tmp_path / "b").rename(moved))
    assert not (tmp_path / "b").exists()
    tiny(moved, resume=True)
    assert files_of(moved) == files_of(tmp_path / "whole")


def test_looking_does_not_keep_a_writer_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_locked(tmp_path) and not (tmp_path / ".lock").exists()
    with locked(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(BusyError, match="is writing there"), locked(tmp_path):
            pytest.fail("there were two writers")
    monkeypatch.setattr("mechint.system.locks.PATIENCE", 60)
    looking = FileLock(tmp_path / ".lock", thread_local=False)
    looking.acquire()
    threading.Timer(0.02, looking.release).start()
    with locked(tmp_path):
        pass
    assert not is_locked(tmp_path)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_who_waits_has_the_lock_when_the_other_has_ended(tmp_path: Path) -> None:
    child, _ = holding(tmp_path)
    threading.Timer(0.02, os.kill, (child, signal.SIGKILL)).start()
    with locked(tmp_path, wait=True):
        assert os.waitpid(child, 0)[1] == signal.SIGKILL


@pytest.mark.parametrize("seeds", [(4,), (4, 5)])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_step_and_resume_goes_on(
    tmp_path: Path, number: int, seeds: tuple[int, ...]
) -> None:
    tiny(tmp_path / "whole", seeds)
    specs = tiny_specs(tmp_path / "cut", seeds)
    handler, pressed = signal.getsignal(number), []

    def press(now: Progress) -> None:
        if now.step == 15 and not pressed:
            pressed.append(now)
            os.kill(os.getpid(), number)

    for cut in train_many(specs, progress=press, on_interrupt="return"):
        assert (cut.status, cut.step) == ("interrupted", 15)
    assert signal.getsignal(number) is handler
    tiny(tmp_path / "cut", seeds, resume=True)
    assert files_of(tmp_path / "cut") == files_of(tmp_path / "whole")
