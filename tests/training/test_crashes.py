"""Runs that were killed at any write go on as if they had not been: the same files, byte for
byte.
"""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests import campaigns
from tests.training.conftest import (
    KILLED,
    exit_at_write,
    files_of,
    in_child,
    kill_after,
    snapshots_at_writes,
    start_child,
    tiny,
)


@pytest.mark.full
@pytest.mark.parametrize("seeds", [(4,), (4, 5, 6)], ids=["alone", "ensemble"])
def test_every_crash_point(tmp_path: Path, eager: None, seeds: tuple[int, ...]) -> None:
    out, kept = tmp_path / "out", tmp_path / "snapshots"

    def work() -> None:
        snapshots_at_writes(out, kept)
        tiny(out, seeds)

    assert in_child(work) == 0
    whole = files_of(out)
    points = sorted(kept.iterdir())
    assert len(points) > 20 * len(seeds), "configurations, metrics, checkpoints, commits"
    for point in points:
        shutil.rmtree(out)
        point.rename(out)
        runs = tiny(out, seeds, resume=True)
        assert {run.status for run in runs} == {"finished"}, point.name
        ours = files_of(out)
        assert sorted(ours) == sorted(whole), point.name
        different = [name for name in whole if ours[name] != whole[name]]
        assert not different, f"write {point.name}: {different}"


@pytest.mark.full
def test_a_second_kill_while_resuming(tmp_path: Path, eager: None) -> None:
    seeds = (4, 5)
    tiny(tmp_path / "whole", seeds)
    whole = files_of(tmp_path / "whole")
    for number in (20, 59):
        out = tmp_path / str(number)
        for cut in (number, number // 3, 3):

            def work(cut: int = cut, out: Path = out) -> None:
                exit_at_write(cut, out)
                tiny(out, seeds, resume=out.exists())

            assert in_child(work) in (0, KILLED)
        tiny(out, seeds, resume=True)
        assert files_of(out) == whole


@pytest.mark.full
def test_models_that_stop_early_stop_again(tmp_path: Path, eager: None) -> None:
    """One model reaches its goal before others; wherever the kill comes, the end is the same."""
    goal = {"stop_accuracy": 0.3, "evaluate_every": 5, "steps": 60, "lr": 1e-2}
    seeds = (0, 1, 2)
    ends = [(run.status, run.step) for run in tiny(tmp_path / "whole", seeds, **goal)]
    assert len({step for _, step in ends}) > 1, "the seeds stop at different steps"
    whole = files_of(tmp_path / "whole")
    for number in range(30, 120, 17):
        out = tmp_path / str(number)

        def work(number: int = number, out: Path = out) -> None:
            exit_at_write(number, out)
            tiny(out, seeds, **goal)

        in_child(work)
        runs = tiny(out, seeds, resume=True, **goal)
        assert [(run.status, run.step) for run in runs] == ends
        assert files_of(out) == whole


@pytest.mark.slow
def test_a_hundred_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL at a hundred random moments of runs that commit their states all the time."""
    monkeypatch.setattr("mechint.training.trainer.STATE_SECONDS", 0.02)
    settings = {"steps": 400, "evaluate_every": 5}

    def work() -> None:
        tiny(out, (4, 5, 6), resume=True, **settings)

    out, began = tmp_path / "whole", time.monotonic()
    assert in_child(work) == 0
    whole, longest = files_of(out), time.monotonic() - began
    moments, seen = random.Random(0), Counter[str]()
    for number in itertools.count():
        out = tmp_path / str(number)
        kills, status = 0, -signal.SIGKILL
        while status == -signal.SIGKILL and kills < 40:
            status = kill_after(start_child(work), moments.uniform(0, 0.7 * longest))
            kills += status == -signal.SIGKILL
        if kills == 40:  # a machine that became slow: the rest in one go
            status = kill_after(start_child(work), 100 * longest)
        seen["traceback"] += status > 0
        seen["hang"] += status < 0
        lost = status == 0 and files_of(out) != whole
        seen["lost_state"] += lost
        seen["resumed"] += kills if status == 0 and not lost else 0
        if seen["resumed"] >= 100 or any(seen[name] for name in seen if name != "resumed"):
            break
    campaigns.record("SIGKILLs of a run", **seen)
    assert +seen == {"resumed": seen["resumed"]}
    for run in tiny(out, (4, 5, 6), resume=True, **settings):
        assert run.load().step == 400
