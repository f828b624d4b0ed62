"""The manifest.json of a run that was resumed says what it was trained with."""

from __future__ import annotations

import json
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest

import tasks
from mechint.training import Run, seed_specs, train_many
from mechint.training import manifest as manifest_module
from mechint.training.trainer import Ensemble

TASK = tasks.make("modular-arithmetic", p=5, train_fraction=0.6)
SMALL = {"d_model": 8, "n_heads": 1, "d_mlp": 8}
BRIEF = {"steps": 12, "evaluate_every": 4, "checkpoints": None}


def go(
    out: Path, seeds: tuple[int, ...] = (0, 1, 2), threads: int = 1, **options: Any
) -> list[Run]:
    specs = seed_specs(TASK, SMALL, BRIEF, seeds=seeds, out=out)
    return train_many(specs, threads=threads, on_interrupt="return", **options)


def cut_at(monkeypatch: pytest.MonkeyPatch, step: int, out: Path, **options: Any) -> None:
    """Begin or resume, and get SIGTERM after `step`."""
    advance = Ensemble.advance

    def stopped(self: Ensemble) -> Any:
        losses = advance(self)
        if self.step == step:
            signal.raise_signal(signal.SIGTERM)
        return losses

    with monkeypatch.context() as patch:
        patch.setattr(Ensemble, "advance", stopped)
        runs = go(out, **options)
    assert {run.status for run in runs if run.step == step} == {"interrupted"}


def said(out: Path, seed: int | None = None) -> dict[str, Any]:
    place = out if seed is None else out / f"seed-{seed:04d}"
    return json.loads((place / "manifest.json").read_text())


def versions(monkeypatch: pytest.MonkeyPatch, torch: str) -> dict[str, str]:
    new = {**manifest_module._versions(), "torch": torch}
    monkeypatch.setattr(manifest_module, "_versions", lambda: new)
    return new


def test_nothing_is_added_where_nothing_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_at(monkeypatch, 6, tmp_path)
    before = said(tmp_path, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        go(tmp_path, resume=True)
    assert said(tmp_path, 1) == before and "before" not in before
    assert before["ensemble"]["models"] == 3 and before["threads"] == 1


def test_threads_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_at(monkeypatch, 6, tmp_path)
    with pytest.warns(UserWarning, match="seed-0000: goes on with other threads than") as given:
        runs = go(tmp_path, resume=True, threads=2)
    assert len(given) == 1 and {run.status for run in runs} == {"finished"}
    for seed in range(3):
        assert said(tmp_path, seed)["before"] == [{"until_step": 6, "threads": 1}]
        assert said(tmp_path, seed)["threads"] == 2


def test_versions_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_at(monkeypatch, 4, tmp_path, seeds=(0,))
    first = said(tmp_path)["versions"]
    new = versions(monkeypatch, "9.9")
    with pytest.warns(UserWarning, match="goes on with other versions than before"):
        cut_at(monkeypatch, 8, tmp_path, seeds=(0,), resume=True)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="goes on with other versions than before"):
        go(tmp_path, seeds=(0,), resume=True)
    assert said(tmp_path)["versions"] == first
    assert said(tmp_path)["before"] == [
        {"until_step": 4, "versions": first},
        {"until_step": 8, "versions": new},
    ]


def test_a_run_that_begins_anew_is_made_by_what_is_there_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(tmp_path, seeds=(0,))
    (tmp_path / "status.json").unlink()
    new = versions(monkeypatch, "9.9")
    go(tmp_path, seeds=(0,), resume=True)
    assert said(tmp_path)["versions"] == new and "before" not in said(tmp_path)
