"""A disk that is full takes nothing that was written: the run resumes once there is room."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

import tasks
from mechint.errors import ParameterError, RunError
from mechint.system.files import write_error
from mechint.training import train
from mechint.training.run_directory import RunDirectory
from tests.training.conftest import files_of, tiny


def fill_up(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """From the `number`-th write on, counted from 1, the disk is full; appending counts too."""
    seen, replace, append = itertools.count(1), Path.replace, RunDirectory.append_metrics

    def check() -> None:
        if next(seen) >= number:
            raise OSError(28, "No space left on device")

    def replaced(self: Path, target: Path) -> Path:
        check()
        return replace(self, target)

    def appended(self: RunDirectory, row: dict) -> None:
        try:
            check()
        except OSError as error:
            with self.metrics_file.open("a") as file:
                file.write('{"st')  # what still fitted
            raise write_error(self.metrics_file, error) from error
        append(self, row)

    monkeypatch.setattr(Path, "replace", replaced)
    monkeypatch.setattr(RunDirectory, "append_metrics", appended)


@pytest.mark.full
def test_a_run_that_met_a_full_disk_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eager: None
) -> None:
    """At every third write, from the first to the last; as if it had not, byte for byte."""
    tiny(tmp_path / "whole", (4, 5))
    whole, number = files_of(tmp_path / "whole"), 0
    for number in range(1, 100, 3):
        out = tmp_path / str(number)
        with monkeypatch.context() as patch:
            fill_up(patch, number)
            try:
                tiny(out, (4, 5))
            except RunError as error:
                assert "cannot be written: the disk is full" in str(error)
            else:
                break
        tiny(out, (4, 5), resume=True)
        assert files_of(out) == whole, number
    assert 20 < number < 100, "up to the last one"


def test_a_full_disk_takes_nothing_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished run that begins anew, as a refusal of its status advises."""
    finished, out = tmp_path / "finished", tmp_path / "run"
    tiny(finished)
    shutil.copytree(finished, out)
    (out / "status.json").unlink()
    with monkeypatch.context() as patch:
        fill_up(patch, 3)
        with pytest.raises(
            RunError, match=r"step-00000000\.pt: cannot be written: the disk is full"
        ):
            tiny(out, resume=True)
    kept = {"config.json", "manifest.json", "ckpt.pt"}
    kept |= {f"checkpoints/{path.name}" for path in (finished / "checkpoints").iterdir()}
    assert len(kept) > 4
    for name in kept:
        assert (out / name).read_bytes() == (finished / name).read_bytes(), name
    tiny(out, resume=True)
    assert files_of(out) == files_of(finished)


def test_a_run_refused_before_its_first_step_leaves_nothing(tmp_path: Path) -> None:
    task = tasks.make("regression-mixture", n=4, n_tasks=2, rank=1)
    refused = {"steps": 2, "batch_size": None, "loss": "stablemax"}
    with pytest.raises(ParameterError, match="expected softmax"):
        train(task, {"width": 2}, refused, out=tmp_path / "run")
    assert files_of(tmp_path) == {}
    train(task, {"width": 2}, {"steps": 2, "batch_size": None}, out=tmp_path / "run")
