"""Workers train what this process would have trained; an interruption keeps everything; the death
of one ends its own job alone.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

import tasks
from mechint.errors import MechintError, ParameterError
from mechint.system.parallel import WorkerEndedError, interruptible, run_jobs, tell, usable_cores
from mechint.training import Progress, Spec, spec, train, train_many, workers_on

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


# --- jobs -----------------------------------------------------------------------------------------
def work(number: int, what: str) -> int:
    """A job: tell its number, and do `what`."""
    tell(number)
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "fail":
        raise ParameterError(f"job {number}")
    if what == "wait":
        with interruptible() as interrupted:
            assert interrupted.wait(600)
    return number * number


@pytest.mark.full
def test_jobs_report_and_one_that_dies_ends_alone() -> None:
    told: list[tuple[int, int]] = []
    jobs = [(i, "die" if i == 1 else "") for i in range(4)]
    ended = dict(run_jobs(work, jobs, 2, report=lambda place, said: told.append((place, said))))
    assert isinstance(ended.pop(1), WorkerEndedError)
    assert ended == {0: 0, 2: 4, 3: 9} and sorted(told) == [(i, i) for i in range(4)]


@pytest.mark.full
def test_a_job_that_waits_ends_when_another_fails_or_a_stop_is_asked_for() -> None:
    stop = threading.Event()
    with pytest.raises(ParameterError, match="job 1"):
        list(run_jobs(work, [(0, "wait"), (1, "fail")], 2, stop=stop))
    jobs = run_jobs(work, [(3, "wait"), (4, "wait")], 1, report=lambda *_: stop.set(), stop=stop)
    assert list(jobs) == [(0, 9)], "the second one did not begin"


def test_the_cores_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {8, 9, 11}, raising=False)
    assert (usable_cores(), workers_on("cpu"), workers_on("cuda")) == (3, 3, 1)
    monkeypatch.delattr(os, "sched_getaffinity")  # macOS, Windows
    assert workers_on("cpu") == 64


# --- training -------------------------------------------------------------------------------------
@pytest.mark.full
def test_workers_train_as_one_process_does_and_name_the_run_that_failed(tmp_path: Path) -> None:
    lrs = (1e-3, 2e-3, 1e-3, 1e30, 1e-3)
    alone = train_many(specs(tmp_path / "alone", lrs=lrs))
    seen: list[Progress] = []
    apart = train_many(specs(tmp_path / "2", lrs=lrs), workers=2, progress=seen.append)
    assert [run.status for run in apart] == ["finished"] * 3 + ["failed", "finished"]
    assert "is not finite" in apart[3].error
    assert len({now.part for now in seen}) > 1
    for i in (0, 1, 2, 4):
        assert apart[i].metrics == alone[i].metrics
        files = [tmp_path / kind / str(i) / "ckpt.pt" for kind in ("alone", "2")]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_the_end_of_a_worker_is_said_with_what_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = WorkerEndedError("a worker process was killed")
    monkeypatch.setattr("mechint.training.api.run_jobs", lambda *_, **__: iter([(0, ended)]))
    for resume, advice in ((False, "--resume goes on"), (True, "the same command goes on")):
        with pytest.raises(MechintError, match=f"was killed; {advice} from the last commit"):
            train_many(specs(tmp_path / "runs"), workers=2, resume=resume)


def test_workers_need_directories() -> None:
    with pytest.raises(ParameterError, match="several workers are for runs with directories"):
        train(TASK, SMALL, {"steps": 2}, seeds=range(2), workers=2)
