"""Workers train what this process would have trained, the same bits however many they are; an
interruption keeps everything.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import tasks
from mechint.errors import MechintError, ParameterError
from mechint.training import Progress, Spec, spec, train, train_many, workers_on
from mechint.training.workers import Worker, to_parent
from tests.training.conftest import in_child

TASK = tasks.make("modular-arithmetic", p=7, train_fraction=0.6)
SMALL = {"d_model": 16, "n_heads": 2, "d_mlp": 32}


def specs(
    out: Path | None, steps: int = 20, every: int = 10, lrs: tuple[float, ...] = (1e-3, 2e-3, 1e-3)
) -> list[Spec]:
    """Two shapes: the last run is wider than the others."""
    widths = [16] * (len(lrs) - 1) + [24]
    schedule = {"steps": steps, "evaluate_every": every}
    return [
        spec(
            TASK,
            {**SMALL, "d_model": width},
            {**schedule, "lr": lr},
            seed=i,
            out=None if out is None else out / str(i),
        )
        for i, (width, lr) in enumerate(zip(widths, lrs, strict=True))
    ]


def weights(place: Path) -> dict[str, torch.Tensor]:
    return torch.load(place / "state.pt", weights_only=True)["values"]


def test_workers_train_as_one_process_does_and_name_the_run_that_failed(tmp_path: Path) -> None:
    lrs = (1e-3, 2e-3, 1e-3, 1e30, 1e-3)
    alone = train_many(specs(tmp_path / "alone", lrs=lrs))
    seen: list[Progress] = []
    apart = train_many(specs(tmp_path / "2", lrs=lrs), workers=2, progress=seen.append)
    assert [run.status for run in apart] == [
        "finished",
        "finished",
        "finished",
        "failed",
        "finished",
    ]
    assert "is not finite" in apart[3].error
    assert len({now.part for now in seen}) > 1
    more = train_many(specs(tmp_path / "3", lrs=lrs), workers=3)
    for i in (0, 1, 2, 4):
        assert apart[i].metrics == more[i].metrics
        assert torch.equal(weights(tmp_path / "2" / str(i)), weights(tmp_path / "3" / str(i)))
        for row, same in zip(apart[i].metrics, alone[i].metrics, strict=True):
            assert row == pytest.approx(same, rel=1e-3)
    assert apart[0].subject().describe()


def test_interrupted_workers_keep_everything(tmp_path: Path) -> None:
    timer = []

    def interrupt(now: Progress) -> None:
        if now.step > 0 and not timer:
            timer.append(threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT)))
            timer[0].start()

    cutting: Any = {"workers": 2, "progress": interrupt, "on_interrupt": "return"}
    cut = train_many(specs(tmp_path / "cut", steps=1200, every=400), **cutting)
    assert "interrupted" in {run.status for run in cut}
    step = max(run.step for run in cut)
    assert 0 < step < 1200
    again = train_many(specs(tmp_path / "cut", steps=1200, every=400), workers=2, resume=True)
    assert {run.status for run in again} == {"finished"}
    whole = train_many(specs(tmp_path / "whole", steps=1200, every=400), workers=2)
    assert [run.metrics for run in again] == [run.metrics for run in whole]


def test_workers_need_directories(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="several workers are for runs with directories"):
        train_many(specs(None), workers=2)


def test_a_worker_that_is_stopped_while_it_starts_says_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    worker = Worker(queue.Queue())
    worker.part = 0
    worker.stop()
    worker.close()
    assert worker.process.returncode == -signal.SIGTERM
    assert capfd.readouterr().err == ""


def stand_in(place: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every worker a shell script."""
    place.write_text(f"#!/bin/sh\n{lines}\n")
    place.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(place))


@pytest.mark.parametrize(
    "said", ["", '{"step": 3, "st', '{"step": 1, "steps": 2, "metrics": {}, "models": 1}\n{']
)
def test_half_a_line_of_a_killed_worker_is_its_end(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = f"cat <<'END' | head -c {len(said)}\n{said}\nEND\nkill -9 $$"
    stand_in(tmp_path / "worker", lines, monkeypatch)
    inbox: queue.Queue[Any] = queue.Queue()
    worker = Worker(inbox)
    worker.close()  # waits until all that it said is in the inbox
    whole = [json.loads(line) for line in said.split("\n")[:-1]]
    assert [inbox.get_nowait() for _ in range(inbox.qsize())] == [
        (worker, message) for message in (*whole, None)
    ]


@pytest.mark.parametrize(
    ("resume", "advice"), [(False, "--resume goes on"), (True, "the same command goes on")]
)
def test_the_end_of_a_worker_is_said_with_what_goes_on(
    resume: bool, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has ended before it read what to train, and that is no broken pipe of the command's."""
    stand_in(tmp_path / "worker", "exec <&-\nprintf '{'\nkill -9 $$", monkeypatch)
    with pytest.raises(MechintError, match=f"a worker ended with status -9; {advice} from its"):
        train_many(specs(tmp_path / "runs"), workers=2, resume=resume)


def test_a_worker_that_has_ended_is_given_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "worker", "exit 3", monkeypatch)
    inbox: queue.Queue[Any] = queue.Queue()
    worker = Worker(inbox)
    worker.process.wait()
    worker.submit(0, specs(tmp_path / "runs"), "", True)  # BrokenPipeError would end mechint with 0
    worker.close()
    assert inbox.get_nowait() == (worker, None) and worker.process.returncode == 3


def test_a_worker_whose_parent_has_ended_ends_without_a_word(tmp_path: Path) -> None:
    """Nobody reads what it sends."""

    def alone() -> None:
        errors = os.open(tmp_path / "errors", os.O_WRONLY | os.O_CREAT)
        ours, its = os.pipe()
        os.dup2(errors, 2)
        os.dup2(its, 1)
        os.close(its)
        send = to_parent()
        os.close(ours)
        try:
            send({"done": []})
        finally:
            os._exit(3)

    assert in_child(alone) == 1
    assert (tmp_path / "errors").read_text() == ""


def test_as_many_workers_as_this_process_may_use_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {8, 9, 11}, raising=False)
    assert (workers_on("cpu"), workers_on("cuda")) == (3, 1)
    monkeypatch.delattr(os, "sched_getaffinity")  # macOS, Windows
    assert workers_on("cpu") == 64


def test_workers_is_an_option_where_it_is_advised_and_an_argument(tmp_path: Path) -> None:
    from mechint.cli import main

    for name in ("train", "sweep"):
        assert "workers" in {one.name for one in main.commands[name].params}  # type: ignore[attr-defined]
    both = train(TASK, SMALL, {"steps": 2}, seeds=range(2), out=tmp_path / "runs", workers=2)
    assert [run.status for run in both] == ["finished"] * 2
    with pytest.raises(ParameterError, match="several workers are for runs with directories"):
        train(TASK, SMALL, {"steps": 2}, seeds=range(2), workers=2)
