"""The row of a run that did not go through in one piece: the step is that of its weights, the
metrics are of that step or say of which, and the status is the committed one.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import mechint
import tasks
from mechint.errors import CheckpointError
from mechint.run_table import Entry, Measurement
from mechint.run_table.measuring import columns_of
from mechint.training import Progress, spec, train, train_many

TASK = tasks.make("modular-arithmetic", p=7)
SMALL = {"d_model": 16, "n_heads": 2, "d_mlp": 16}
LONG = {"steps": 60, "evaluate_every": 10, "lr": 1e-2}


class Killed(BaseException):
    """Stands for a kill: nothing is written after it."""


def at(step: int, act: Callable[[], Any]) -> Callable[[Progress], None]:
    left = [act]

    def progress(now: Progress) -> None:
        if now.step == step and left:
            left.pop()()

    return progress


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def kill() -> None:
    raise Killed


def row_of(run: Path) -> dict[str, Any]:
    (row,) = mechint.runs(run).rows()
    return row


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run interrupted at step 20, whose weights are of that step."""
    out = tmp_path_factory.mktemp("cut") / "run"
    with pytest.raises(KeyboardInterrupt, match="stopped at step 20"):
        train(TASK, SMALL, LONG, out=out, progress=at(20, press))
    return out


def test_a_killed_run_has_the_metrics_of_its_weights(cut: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(cut, tmp_path / "run"))
    assert (row_of(out)["step"], row_of(out)["status"]) == (20, "interrupted")
    seen: list[dict[str, Any]] = []

    def look() -> None:
        seen.append(row_of(out))
        raise Killed

    with pytest.raises(Killed):
        train(TASK, SMALL, LONG, out=out, resume=True, progress=at(50, look))
    assert '"step": 50,' in (out / "metrics.jsonl").read_text().splitlines()[-1]
    subject, index = mechint.load(out), TASK.split(0)["train"]
    loss = cross_entropy(subject.logits()[index], subject.targets[index].flatten()).item()
    for row, status in ((seen[0], "running"), (row_of(out), "interrupted")):
        assert (row["step"], row["status"]) == (20, status)
        assert row["train.loss"] == pytest.approx(loss, rel=1e-3)
        assert "metrics.step" not in row
    train(TASK, SMALL, LONG, out=out, resume=True)
    assert (row_of(out)["step"], row_of(out)["status"]) == (60, "finished")


@pytest.mark.full
@pytest.mark.parametrize("when", ["before", "after", "described"])
def test_a_run_that_ends_while_it_is_measured_has_no_numbers_of_other_weights(
    cut: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Gone on with before its weights are read, at the end of the probe, and before its row."""
    out = Path(shutil.copytree(cut, tmp_path / "run"))
    kind, steps = type(Measurement.of("embedding").probe), list[int]()

    def going_on(where: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **settings: Any) -> Any:
            done = do(*args, **settings) if where == "after" else None
            if where == when and len(steps) == 0:
                steps.append(60)
                train(TASK, SMALL, LONG, out=out, resume=True)
            return done if where == "after" else do(*args, **settings)

        return act

    with monkeypatch.context() as patch:
        patch.setattr(Entry, "subject", going_on("before", Entry.subject))
        patch.setattr(kind, "run", going_on("after", kind.run))
        patch.setattr(Entry, "describe", going_on("described", Entry.describe))
        (row,) = mechint.runs(out).probe("embedding").rows()
    own = {name for name in row if name.startswith("embedding.")}
    assert own == {"embedding.error"} and "ask again" in row["embedding.error"] and steps == [60]
    (row,) = mechint.runs(out).probe("embedding").rows()
    result = kind().run(mechint.load(out), seed=0)
    assert (row["step"], row["status"]) == (60, "finished")
    columns = {name: value for name, value in row.items() if name.startswith("embedding.")}
    assert columns == columns_of("embedding", result)


def test_weights_between_two_evaluations_say_when_their_run_was_evaluated(
    cut: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(cut, tmp_path / "run"))
    saved = torch.load(out / "ckpt.pt", weights_only=True)
    torch.save({**saved, "step": 24}, out / "ckpt.pt")
    row = row_of(out)
    assert (row["step"], row["metrics.step"]) == (24, 20)


def test_statuses_are_those_of_training(cut: Path, tmp_path: Path) -> None:
    early = {**LONG, "stop_accuracy": 0.0, "stop_after": 10}
    train(TASK, SMALL, early, out=tmp_path / "stopped")
    hot = {**LONG, "optimizer": "sgd", "lr": 1e30}
    specs = [spec(TASK, SMALL, LONG, out=tmp_path / "finished")]
    train_many([*specs, spec(TASK, SMALL, hot, seed=1, out=tmp_path / "failed")])
    with pytest.raises(Killed):
        train(TASK, SMALL, LONG, out=tmp_path / "interrupted", progress=at(30, kill))
    for name in ("stopped", "finished", "failed", "interrupted"):
        assert row_of(tmp_path / name)["status"] == name
    (tmp_path / "finished" / "status.json").unlink()
    assert row_of(tmp_path / "finished")["status"] == "finished", "its weights are of the last step"


def test_a_damaged_run_in_a_folder_is_named_and_not_passed_over(cut: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(cut, tmp_path / name)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "config.json").write_text('["another program\'s"]')
    config, metrics = (tmp_path / "b" / name for name in ("config.json", "metrics.jsonl"))
    whole = config.read_bytes()
    for damage in (b"", whole[:300], b"\xff" + whole):
        config.write_bytes(damage)
        with pytest.raises(CheckpointError, match=r"b/config\.json: cannot be read as JSON"):
            mechint.runs(tmp_path)
    config.write_bytes(whole)
    table = mechint.runs(tmp_path)
    assert [row["step"] for row in table.rows()] == [20, 20]
    train(TASK, SMALL, LONG, out=tmp_path / "b", resume=True)
    size = metrics.stat().st_size
    os.truncate(metrics, size - 1)
    said = rf"b/metrics\.jsonl: damaged: got {size - 1} bytes, expected at least {size}"
    with pytest.raises(CheckpointError, match=said):
        table.rows()
