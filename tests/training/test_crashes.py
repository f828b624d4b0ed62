"""Runs that were killed at any write go on as if they had not been: the same files, byte for
byte.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.training.conftest import (
    KILLED,
    exit_at_write,
    files_of,
    in_child,
    snapshots_at_writes,
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
