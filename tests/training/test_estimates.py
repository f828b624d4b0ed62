"""What a run needs of disk and memory is known before it starts; what does not fit is refused."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

import tasks
from mechint.cli.resources import check_and_announce
from mechint.errors import MechintError, RunError
from mechint.training import estimate, seed_specs, train
from mechint.training.estimate import disk_bytes

TASK = tasks.make("modular-arithmetic", p=7)
SMALL = {"d_model": 16, "n_heads": 1, "d_mlp": 64}
Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"checkpoints": "linear", "n_checkpoints": 20},
        {"checkpoints": "log", "n_checkpoints": 5, "optimizer": "muon"},
        {"checkpoints": "last", "grokfast": "ma", "grokfast_window": 10, "evaluate_every": 1},
        {"checkpoints": "last", "optimizer": "sgd", "momentum": 0.9, "precision": "float64"},
    ],
)
def test_a_run_stays_below_what_was_said_of_it(tmp_path: Path, settings: dict[str, Any]) -> None:
    given = {"steps": 40, "evaluate_every": 10, **settings}
    (one,) = seed_specs(TASK, SMALL, given, out=tmp_path / "run")
    train(TASK, SMALL, given, out=tmp_path / "run")
    written = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in written)
    size += (tmp_path / "run" / "state.pt").stat().st_size  # the next one beside it, for a moment
    assert size <= disk_bytes(one) <= 3 * size


def test_runs_that_the_disk_cannot_hold_do_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"steps": 4, "evaluate_every": 2, "checkpoints": "last"}
    specs = seed_specs(TASK, SMALL, settings, seeds=range(3), out=tmp_path / "runs")
    needed = sum(map(disk_bytes, specs))
    for free, fits in ((needed - 1, False), (needed, True)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: Usage(10**12, 0, free))
        if fits:
            check_and_announce(specs, "cpu")
            train(TASK, SMALL, settings, seeds=range(3), out=tmp_path / "runs")
            break
        with pytest.raises(RunError, match=r"the disk has .* MB free; free some space"):
            check_and_announce(specs, "cpu")
        with pytest.raises(RunError, match="the disk has"):
            train(TASK, SMALL, settings, seeds=range(3), out=tmp_path / "runs")
        assert not (tmp_path / "runs").exists()
    # what is there already needs no room again
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, needed // 2))
    runs = train(TASK, SMALL, settings, seeds=range(3), out=tmp_path / "runs", resume=True)
    assert {run.status for run in runs} == {"finished"}


def test_ensembles_that_memory_cannot_hold_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    specs = seed_specs(TASK, SMALL, {"steps": 4}, seeds=range(4), out=tmp_path / "runs")
    pairs = [range(2), range(2, 4)]
    one = 2 * estimate.model_bytes(specs[0])
    monkeypatch.setattr(estimate, "free_memory", lambda _: one)
    check_and_announce(specs, "cpu", workers=1, groups=pairs)
    assert "4 models in 2 ensembles of" in capsys.readouterr().err
    with pytest.raises(MechintError, match=r"2 ensembles at once takes .* fewer --workers"):
        check_and_announce(specs, "cpu", workers=2, groups=pairs)


def test_the_time_that_is_announced_is_that_of_the_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mechint.cli import resources
    from mechint.sweeps.plan import make_spec
    from mechint.training import timing

    monkeypatch.setattr(resources, "WORTH_TIMING", 0.0)
    monkeypatch.setattr(timing, "estimate_seconds", lambda *_: 120.0)
    resources.check_and_announce(
        [make_spec("modular-arithmetic", ("p=5", "d_model=8", "n_heads=1"), {})], "cpu"
    )
    said = capsys.readouterr().err
    assert "about 2 min for the steps alone on idle cores" in said and "at most" not in said
