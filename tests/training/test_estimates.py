"""Disk and memory of a run are estimated before it starts; runs that do not fit are refused."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

import tasks
from mechint.errors import MechintError, RunError
from mechint.training import estimate, seed_specs, spec, train
from mechint.training.api import threads_of
from mechint.training.estimate import disk_bytes
from mechint.training.plan import announcement, partition

TASK = tasks.make("modular-arithmetic", p=7)
SMALL = {"d_model": 16, "n_heads": 1, "d_mlp": 64}
Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(
    "settings",
    [
        {"checkpoints": "linear", "n_checkpoints": 20},
        {"checkpoints": "last", "grokfast": "ma", "grokfast_window": 10, "evaluate_every": 1},
        {"checkpoints": "last", "optimizer": "sgd", "momentum": 0.9, "precision": "float64"},
    ],
)
def test_a_run_stays_below_what_was_said_of_it(tmp_path: Path, settings: dict[str, Any]) -> None:
    given = {"steps": 40, "evaluate_every": 10, **settings}
    (one,) = seed_specs(TASK, SMALL, given, out=tmp_path / "run")
    train(TASK, SMALL, given, out=tmp_path / "run")
    written = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in written) <= disk_bytes(one)


def test_runs_that_the_disk_or_the_memory_cannot_hold_do_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"steps": 4, "evaluate_every": 2, "checkpoints": "last"}
    specs = seed_specs(TASK, SMALL, settings, seeds=range(3), out=tmp_path / "runs")
    needed = sum(map(disk_bytes, specs))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, needed - 1))
    with pytest.raises(RunError, match=r"the disk has .* MB free; free some space"):
        train(TASK, SMALL, settings, seeds=range(3), out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, needed))
    train(TASK, SMALL, settings, seeds=range(3), out=tmp_path / "runs")
    # what is there already needs no room again
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, needed // 2))
    train(TASK, SMALL, settings, seeds=range(3), out=tmp_path / "runs", resume=True)
    monkeypatch.setattr(estimate, "free_memory", lambda _: 1000)
    with pytest.raises(MechintError, match="one model of modular-arithmetic needs about"):
        train(TASK, SMALL, settings)


def test_the_line_that_is_announced_is_of_all_that_is_trained(tmp_path: Path) -> None:
    specs = seed_specs(TASK, SMALL, {"steps": 4}, seeds=range(4), out=tmp_path)
    parts = partition(specs)
    said = announcement(specs, parts)
    disk = sum(map(disk_bytes, specs)) / 1e6
    assert (
        said.startswith("4 models in 1 ensemble of 3,")
        and f"{max(disk, 1):,.0f} MB of disk" in said
    )
    search = announcement(specs, parts, workers=2, times=20)
    assert search.startswith("80 models in 20 ensembles of ")
    assert f"{20 * disk:,.0f} MB of disk" in search


def test_one_large_ensemble_has_two_threads() -> None:
    large = [spec(tasks.make("modular-arithmetic", p=113))]
    assert threads_of(partition(large)) == 2
    assert threads_of(partition([spec(TASK, SMALL)])) == 1
    assert threads_of(partition(large * 4)) == 1
