"""Sweeps that run, stop, go on, and stand beside each other."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mechint.errors import RunError
from mechint.sweeps import keep_plan, keep_probes, plan, read_plan, run_group, run_sweep, status
from mechint.sweeps.directory import PLAN, probes_of
from mechint.system.locks import locked
from tests.sweeps.conftest import SMALL, TASK, longer, trained_files
from tests.training.conftest import after_another


def rows_of(*sweep: Any, **options: Any) -> list[dict[str, Any]]:
    return [row for rows in run_sweep(*sweep, **options) for row in rows]


def test_a_sweep_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "sweep"
    groups = plan(TASK, SMALL, {"seed": [0, 1], "d_mlp": [8, 16]})
    stopped = run_sweep(groups, out)
    first = next(stopped)
    stopped.close()
    assert [row["status"] for row in status(groups, out)] == ["finished"] * 2 + ["waiting"] * 2
    with monkeypatch.context() as patch:
        patch.setattr("mechint.training.trainer.Ensemble.train", lambda *_: pytest.fail("repeated"))
        assert run_group(groups[0], out) == first
    rows = rows_of(read_plan(out), out)
    assert rows[:2] == first and len({row["id"] for row in rows}) == 4
    for row in rows:
        assert (Path(row["path"]) / "metrics.jsonl").exists()
        assert 0 <= row["metrics"]["test.accuracy"] <= 1
    assert rows[0]["metrics"] != rows[1]["metrics"], "two seeds are two models"


def test_a_run_that_fails_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    settings = (*SMALL, "optimizer=sgd", "warmup=0")
    (group,) = plan(TASK, settings, {"lr": [1e30, 1e-3]})
    failed, fine = rows_of([group], tmp_path / "sweep")
    assert failed["status"] == "failed" and "not finite" in failed["error"]
    assert fine["status"] == "finished" and fine["metrics"]["step"] == 4
    assert status([group], tmp_path / "sweep") == [failed, fine]


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    keep_plan(plan(TASK, SMALL, {"d_mlp": [8]}), tmp_path / "a")
    with pytest.raises(RunError, match="holds another sweep, of 1 run;"):
        keep_plan(plan(TASK, SMALL, {"d_mlp": [16]}), tmp_path / "a")
    with pytest.raises(RunError, match="holds another sweep"):
        keep_plan(plan(TASK, (*SMALL, "n_layers=2"), {"d_mlp": [8]}), tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thing").touch()
    with pytest.raises(RunError, match="holds something else"):
        keep_plan(plan(TASK, SMALL, {"seed": [1]}), tmp_path / "b")
    for content in (b"", b"[", b"[3]", b"\xff\xfe", b'[{"task": 1}]'):
        (tmp_path / "b" / PLAN).write_bytes(content)
        with pytest.raises(RunError, match="holds no sweep"):
            read_plan(tmp_path / "b")


@pytest.mark.parametrize("same", [True, False])
def test_of_two_sweeps_that_begin_in_one_directory_at_once_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    first, second = (plan(TASK, SMALL, {"seed": [seed]}) for seed in (1, 1 if same else 2))
    begin = after_another(lambda: keep_plan(first, tmp_path))
    monkeypatch.setattr("mechint.sweeps.directory.locked", begin)
    if same:
        keep_plan(second, tmp_path)
    else:
        with pytest.raises(RunError, match="holds another sweep"):
            keep_plan(second, tmp_path)
    assert read_plan(tmp_path) == first


def test_what_is_gone_from_a_finished_sweep_is_made_again(tmp_path: Path) -> None:
    groups, out = plan(TASK, SMALL, {"seed": [0, 1]}, group_size=1), tmp_path / "sweep"
    rows_of(groups, out)
    before = trained_files(out)
    weights = out / "seed=0" / "ckpt.pt"
    weights.write_bytes(weights.read_bytes()[:-40])
    shutil.rmtree(out / "seed=1")
    assert [row["status"] for row in status(groups, out)] == ["finished", "waiting"]
    assert {row["status"] for row in rows_of(groups, out)} == {"finished"}
    assert trained_files(out) == before


def test_a_damaged_file_of_a_finished_run_is_named_and_the_other_run_stands(tmp_path: Path) -> None:
    (group,), out = plan(TASK, SMALL, {"seed": [0, 1]}), tmp_path / "sweep"
    before = rows_of([group], out)
    for name, kept in (("config.json", 200), ("status.json", 50), ("metrics.jsonl", 0)):
        file = out / "seed=0" / name
        whole = file.read_bytes()
        file.write_bytes(whole[:kept])
        for look in (status([group], out), run_group(group, out)):
            assert look[0]["status"] == "failed" and str(file) in look[0]["error"]
            assert look[1] == before[1]
        file.write_bytes(whole)
    assert run_group(group, out) == before


def test_a_sweep_may_be_moved(tmp_path: Path) -> None:
    (group,), first, out = plan(TASK, SMALL, {"seed": [0]}), tmp_path / "a", tmp_path / "b"
    (before,) = rows_of([group], first)
    first.rename(out)
    own = [before | {"path": str(out / "seed=0")}]
    assert rows_of([group], out) == status([group], out) == own


def test_two_sweeps_in_one_folder_leave_each_other_alone(tmp_path: Path) -> None:
    groups, out = plan(TASK, SMALL, {"seed": [0, 1]}, group_size=1), tmp_path / "sweep"
    keep_plan(groups, out)
    with locked(out / "seed=0"):  # as another process that trains it
        before = sorted((path, path.stat().st_mtime_ns) for path in out.rglob("*"))
        assert status(groups, out)[0]["status"] == "running"
        assert sorted((path, path.stat().st_mtime_ns) for path in out.rglob("*")) == before
        assert [row["status"] for row in rows_of(groups, out)] == ["running", "finished"]
    assert [row["status"] for row in rows_of(groups, out)] == ["finished"] * 2


@pytest.mark.full
def test_workers_give_the_same_bits_as_this_process_also_when_interrupted(tmp_path: Path) -> None:
    long = (*longer(400), "evaluate_every=200")
    groups = plan(TASK, long, {"seed": [0, 1], "d_mlp": [8, 16]})
    out, timer = tmp_path / "cut", []

    def interrupt(now: Any) -> None:
        if now.step > 0 and not timer:
            timer.append(threading.Timer(0, os.kill, (os.getpid(), signal.SIGTERM)))
            timer[0].start()

    with pytest.raises(KeyboardInterrupt):
        rows_of(groups, out, progress=interrupt, workers=2)
    assert {row["status"] for row in status(groups, out)} & {"interrupted", "waiting"}
    seen: list[Any] = []
    rows = rows_of(groups, out, progress=seen.append, workers=2)
    assert {row["status"] for row in rows} == {"finished"} and max(n.done for n in seen) == 1
    rows_of(groups, tmp_path / "whole")
    assert trained_files(out) == trained_files(tmp_path / "whole")


DEATH = """
import os, signal
import mechint.training.trainer as trainer

def advance(self, original=trainer.Ensemble.advance):
    losses = original(self)
    if self.step == 2 and self.runs[0].spec.train.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return losses

if os.environ.get("DEATH"):
    trainer.Ensemble.advance = advance
"""


@pytest.mark.full
def test_a_worker_that_is_killed_fails_its_group_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "death.py").write_text(
        DEATH + "\nfrom mechint.task import FiniteTask\nimport tasks\n"
        "class Deadly(type(tasks.make('modular-arithmetic', p=5))):\n    name = 'deadly'\n"
    )
    from mechint.registry import TASKS
    from mechint.registry.plugins import PLUGINS, load_plugin

    monkeypatch.setenv(PLUGINS, "[]")
    monkeypatch.setattr(sys, "path", list(sys.path))
    load_plugin(f"{tmp_path / 'death.py'}:Deadly")
    try:
        groups = plan("deadly", SMALL, {"seed": [0, 1, 2]}, group_size=1)
        out = tmp_path / "cut"
        monkeypatch.setenv("DEATH", "1")
        rows = {row["id"]: row for row in rows_of(groups, out, workers=2)}
        assert [rows[f"seed={i}"]["status"] for i in range(3)] == ["finished", "failed", "finished"]
        assert "was killed, perhaps because memory ran out; --resume" in rows["seed=1"]["error"]
        monkeypatch.delenv("DEATH")
        assert {row["status"] for row in rows_of(groups, out, workers=2)} == {"finished"}
    finally:
        TASKS.remove("deadly")
        sys.modules.pop("death", None)


def test_probes_that_two_ask_for_at_once_are_both_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = after_another(lambda: keep_probes(tmp_path, {"norms": {}}))
    monkeypatch.setattr("mechint.sweeps.directory.locked", first)
    keep_probes(tmp_path, {"lens": {}})
    assert [one.probe.name for one in probes_of(tmp_path)] == ["norms", "lens"]


def test_without_ray_its_executor_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunError, match=r"Ray is not installed; pip install ray"):
        rows_of(plan(TASK, SMALL, {"seed": [0]}), tmp_path / "s", "ray")
