"""The probes of a sweep: on which device they open its models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mechint.cli import sweep_run
from mechint.errors import CheckpointError
from mechint.locks import BusyError, locked
from mechint.sweeps.measuring import keep_probes, measure_rows, probes_of
from mechint.sweeps.search.run import objective_of
from mechint.training import Run, train
from tests.sweeps.conftest import TASK
from tests.training.conftest import after_another


def test_a_sweep_is_measured_on_the_device_that_trained_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tasks

    opened: list[str] = []

    def load_checkpoint(path: Path, *, device: str = "cpu", **_: Any) -> None:
        opened.append(device)
        raise CheckpointError(f"{path}: not opened here")

    monkeypatch.setattr("mechint.checkpoints.load_checkpoint", load_checkpoint)
    (run,) = train(
        tasks.make(TASK, p=5), {"d_model": 8, "n_heads": 1}, {"steps": 1}, out=tmp_path / "run"
    )
    keep_probes(tmp_path, {"norms": {}})
    rows = [{"id": "run", "status": "finished", "path": str(tmp_path / "run")}]
    measure_rows(rows, tmp_path, "cuda:1")
    assert opened == ["cuda:1"]
    assert isinstance(run, Run) and objective_of([run], "norms.x", device="cuda") is None
    assert opened == ["cuda:1", "cuda"]


def test_probes_that_two_ask_for_at_once_are_both_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = after_another(lambda: keep_probes(tmp_path, {"norms": {}}))
    monkeypatch.setattr("mechint.sweeps.measuring.locked", first)
    keep_probes(tmp_path, {"lens": {}})
    assert [one.probe.name for one in probes_of(tmp_path)] == ["norms", "lens"]
    monkeypatch.setattr("mechint.sweeps.measuring.write_text", lambda *_: pytest.fail("written"))
    keep_probes(tmp_path, {"norms": {}})
    monkeypatch.undo()
    with locked(tmp_path), pytest.raises(BusyError):  # as a search holds it
        keep_probes(tmp_path, {"fourier": {}}, wait=False)


def test_the_table_of_a_sweep_is_measured_on_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def runs(out: Path, **given: Any) -> Any:
        asked.update(given)
        raise CheckpointError(f"{out}: not opened here")

    monkeypatch.setattr("mechint.run_table.runs", runs)
    keep_probes(tmp_path, {"norms": {}})
    request = sweep_run.SweepRequest("local", "cuda", {}, 3, {}, (), False)
    with pytest.raises(CheckpointError):
        sweep_run.measure(tmp_path, request)
    assert asked == {"workers": 3, "device": "cuda"}
