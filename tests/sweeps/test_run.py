"""Sweeps that run, stop, go on, and stand beside each other."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest

from mechint.errors import MechintError, RunError
from mechint.locks import is_locked, locked
from mechint.sweeps import plan, read_plan, run_group, run_sweep, status
from mechint.sweeps.executors import EXECUTORS, Job
from mechint.sweeps.executors import local as local_executor
from mechint.sweeps.plan import Group
from mechint.sweeps.table import PLAN, ROWS, keep_plan, rows_of
from tests.sweeps.conftest import SMALL, TASK, longer, trained_files
from tests.training.conftest import after_another


def test_a_sweep_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "sweep"
    groups = plan(TASK, SMALL, {"seed": [0, 1], "d_mlp": [8, 16]})
    stopped = run_sweep(groups, out, "local")
    first = next(stopped)
    stopped.close()
    assert [row["status"] for row in rows_of(groups[1], out)] == ["waiting", "waiting"]
    assert [row["status"] for row in status(groups, out)] == ["finished"] * 2 + ["waiting"] * 2

    monkeypatch.setattr(
        "mechint.training.train_many",
        lambda *args, **kwargs: pytest.fail("a finished run was repeated"),
    )
    assert run_group(groups[0], out) == first
    monkeypatch.undo()
    rows = [row for group in run_sweep(read_plan(out), out, "local") for row in group]
    assert rows[:2] == first
    assert len({row["id"] for row in rows}) == 4
    for row in rows:
        assert (Path(row["path"]) / "metrics.jsonl").exists()
        assert 0 <= row["metrics"]["test.accuracy"] <= 1
    assert rows[0]["metrics"] != rows[1]["metrics"], "two seeds are two models"


def test_a_run_that_fails_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    groups = plan(
        TASK,
        (*SMALL, "optimizer=sgd", "warmup=0"),
        {"momentum": [0.5, 0.0], "lr": [1e30, 1e-3]},
    )
    for failed, fine in run_sweep(groups, tmp_path / "sweep"):
        assert failed["status"] == "failed" and "not finite" in failed["error"]
        assert fine["status"] == "finished" and fine["metrics"]["step"] == 4


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    keep_plan(plan(TASK, SMALL, {"d_mlp": [8]}), tmp_path / "a")
    with pytest.raises(RunError, match="holds another sweep"):
        keep_plan(plan(TASK, SMALL, {"d_mlp": [16]}), tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thing").touch()
    with pytest.raises(RunError, match="holds something else"):
        keep_plan(plan(TASK, SMALL, {"seed": [1]}), tmp_path / "b")
    with pytest.raises(RunError, match="holds no sweep"):
        read_plan(tmp_path / "b")


@pytest.mark.parametrize("same", [True, False])
def test_of_two_sweeps_that_begin_in_one_directory_at_once_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    first, second = (
        plan(TASK, SMALL, {"seed": [1]}),
        plan(TASK, SMALL, {"seed": [1 if same else 2]}),
    )
    begin = after_another(lambda: keep_plan(first, tmp_path))
    monkeypatch.setattr("mechint.sweeps.table.locked", begin)
    if same:
        keep_plan(second, tmp_path)
    else:
        with pytest.raises(RunError, match="holds another sweep"):
            keep_plan(second, tmp_path)
    assert read_plan(tmp_path) == first


@pytest.mark.parametrize("content", [b"", b"[", b"{}", b"[3]", b"\xff\xfe", b'[{"task": 1}]'])
def test_a_damaged_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / PLAN).write_bytes(content)
    if content == b"{}":
        assert read_plan(tmp_path) == []
        return
    with pytest.raises(RunError, match="holds no sweep"):
        read_plan(tmp_path)


def test_damaged_rows_are_made_again(tmp_path: Path) -> None:
    (group,) = plan(TASK, SMALL, {"seed": [0, 1]})
    out = tmp_path / "sweep"
    (rows,) = run_sweep([group], out)
    for content in (b"", b"\xff", b'{"id": 3}\n', b"[1]\n", b"{"):
        (group.books(out) / ROWS).write_bytes(content)
        assert run_group(group, out) == rows


def test_what_is_gone_from_a_finished_sweep_is_made_again(tmp_path: Path) -> None:
    """Rows that say "finished" are not believed where the runs are not there."""
    groups, out = plan(TASK, SMALL, {"seed": [0, 1, 2]}, group_size=2), tmp_path / "sweep"
    list(run_sweep(groups, out))
    before = trained_files(out)
    (out / "seed=0" / "ckpt.pt").unlink()
    weights = out / "seed=1" / "ckpt.pt"
    weights.write_bytes(weights.read_bytes()[:-40])
    shutil.rmtree(out / "seed=2")  # an ensemble of its own
    assert [row["status"] for row in status(groups, out)] == ["finished"] * 2 + ["waiting"]
    rows = [row for group in run_sweep(groups, out) for row in group]
    assert {row["status"] for row in rows} == {"finished"}
    assert trained_files(out) == before


def test_a_damaged_file_of_a_finished_run_is_named_and_the_other_run_stands(
    tmp_path: Path,
) -> None:
    (group,), out = plan(TASK, SMALL, {"seed": [0, 1]}), tmp_path / "sweep"
    (before,) = run_sweep([group], out)
    for name, kept in (("config.json", 200), ("state.pt", 5000), ("metrics.jsonl", 0)):
        file = out / "seed=0" / name
        whole = file.read_bytes()
        assert len(whole) > kept
        file.write_bytes(whole[:kept])
        for look in (status([group], out), run_group(group, out), status([group], out)):
            assert look[0]["status"] == "failed" and str(file) in look[0]["error"]
            assert look[1] == before[1]
        file.write_bytes(whole)
        assert run_group(group, out) == before


@pytest.mark.parametrize("keeps_the_first", [True, False], ids=["copied", "moved"])
def test_a_sweep_elsewhere_gives_the_paths_of_its_own_runs(
    tmp_path: Path, keeps_the_first: bool
) -> None:
    (group,), first, out = plan(TASK, SMALL, {"seed": [0]}), tmp_path / "a", tmp_path / "b"
    ((before,),) = run_sweep([group], first)
    assert before["path"] == str(first / "seed=0")
    shutil.copytree(first, out) if keeps_the_first else first.rename(out)
    own = before | {"path": str(out / "seed=0")}
    (again,) = run_sweep([group], out)
    assert again == status([group], out) == run_group(group, out) == [own]


def test_looking_at_a_sweep_writes_nothing(tmp_path: Path) -> None:
    groups, out = plan(TASK, SMALL, {"seed": [0, 1]}, group_size=1), tmp_path / "sweep"
    keep_plan(groups, out)
    for group in groups:
        group.books(out).mkdir(parents=True)
    with locked(groups[0].books(out)):
        assert is_locked(groups[0].books(out)) and not is_locked(groups[1].books(out))
        before = sorted((path, path.stat().st_mtime_ns) for path in out.rglob("*"))
        status(groups, out)
        assert sorted((path, path.stat().st_mtime_ns) for path in out.rglob("*")) == before
    assert not is_locked(groups[0].books(out))


def test_a_look_at_a_group_does_not_keep_it_from_being_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks holds the lock, shared, for a moment."""
    (group,), out = plan(TASK, SMALL, {"seed": [0]}), tmp_path / "sweep"
    keep_plan([group], out)
    with locked(group.books(out)):
        pass
    looking = (group.books(out) / ".lock").open()
    fcntl.flock(looking, fcntl.LOCK_SH)

    monkeypatch.setattr("mechint.locks.time.sleep", lambda seconds: looking.close())
    assert [row["status"] for row in run_group(group, out)] == ["finished"]
    assert looking.closed


def test_a_sweep_that_is_moved_while_it_trains_goes_on_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mechint.sweeps import table

    (group,), out, moved = plan(TASK, SMALL, {"seed": [0]}), tmp_path / "sweep", tmp_path / "moved"
    keep_plan([group], out)
    real = table._train_group
    monkeypatch.setattr(table, "_train_group", lambda *args: [real(*args), out.rename(moved)][0])
    with pytest.raises(RunError, match=r"groups/0000: was moved, removed or replaced"):
        run_group(group, out)
    assert not out.exists()
    monkeypatch.setattr(table, "_train_group", real)
    assert [row["status"] for row in run_group(group, moved)] == ["finished"]


def test_two_sweeps_in_one_folder_leave_each_other_alone(tmp_path: Path) -> None:
    groups, out = plan(TASK, SMALL, {"seed": [0, 1], "d_mlp": [8, 16]}), tmp_path / "sweep"
    keep_plan(groups, out)
    with locked(groups[0].books(out)):  # as another process that trains it
        first, second = run_sweep(groups, out)
    assert {row["status"] for row in first} <= {"waiting", "running"}
    assert {row["status"] for row in second} == {"finished"}
    assert not (groups[0].books(out) / ROWS).exists(), "its rows are the other one's to write"
    assert {row["status"] for rows in run_sweep(groups, out) for row in rows} == {"finished"}


def test_sweeps_of_earlier_versions_open(tmp_path: Path) -> None:
    """Directories called by digests, rows in them, and a plan without names."""
    out = tmp_path / "old"
    runs = ({"seed": 0}, {"seed": 1})
    group = Group(TASK, SMALL, runs)
    out.mkdir()
    (out / PLAN).write_text(
        json.dumps([{"task": TASK, "settings": list(SMALL), "runs": list(runs)}], indent=1)
    )
    assert read_plan(out) == [group]
    ((rows),) = run_sweep(read_plan(out), out)
    assert {row["status"] for row in rows} == {"finished"}
    assert (out / group.id / ROWS).exists()
    assert (out / group.id / rows[0]["id"] / "ckpt.pt").exists()


def test_workers_give_the_same_bits_as_this_process(tmp_path: Path) -> None:
    groups = plan(TASK, SMALL, {"seed": [0, 1], "d_mlp": [8, 16, 24]})
    list(run_sweep(groups, tmp_path / "one"))
    seen = []
    rows = list(run_sweep(groups, tmp_path / "two", progress=seen.append, workers=2))
    assert {row["status"] for group in rows for row in group} == {"finished"}
    assert trained_files(tmp_path / "one") == trained_files(tmp_path / "two")
    assert len({now.part for now in seen}) == 3 and max(now.done for now in seen) == 1


def test_interrupted_workers_go_on_elsewhere(tmp_path: Path) -> None:
    """Stopped under two workers, gone on with in this process: the same bits."""
    long = tuple("steps=1500" if text == "steps=4" else text for text in SMALL)
    groups = plan(TASK, (*long, "evaluate_every=500"), {"seed": [0, 1], "d_mlp": [8, 16]})
    out, timer = tmp_path / "cut", []

    def interrupt(now) -> None:
        if now.step > 0 and not timer:
            timer.append(threading.Timer(0, os.kill, (os.getpid(), signal.SIGTERM)))
            timer[0].start()

    with pytest.raises(KeyboardInterrupt):
        list(run_sweep(groups, out, progress=interrupt, workers=2))
    assert {row["status"] for row in status(groups, out)} & {"interrupted", "waiting"}
    list(run_sweep(groups, out))
    list(run_sweep(groups, tmp_path / "whole"))
    assert trained_files(out) == trained_files(tmp_path / "whole")


def test_a_worker_that_is_killed_fails_its_group_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process dies at work, another takes its place; what it trained goes on when resumed."""
    module = sys.modules[local_executor.__module__]
    started = []

    class Watched(module._Worker):
        def __init__(self, *arguments) -> None:
            super().__init__(*arguments)
            started.append(self.process)

    monkeypatch.setattr(module, "_Worker", Watched)

    def kill(now) -> None:
        if now.step > 0 and len(started) == 2:  # whoever reports first has one of these
            for process in started:
                process.kill()

    groups = plan(TASK, (*longer(100), "evaluate_every=50"), {"seed": [0, 1, 2]}, group_size=1)
    out = tmp_path / "cut"
    rows = [row for group in run_sweep(groups, out, progress=kill, workers=2) for row in group]
    failed = [row for row in rows if row["status"] == "failed"]
    assert len(rows) == 3 and len(failed) in (1, 2), "one may have ended its group by then"
    assert len(started) > 2 and {row["status"] for row in rows} == {"failed", "finished"}
    for row in failed:
        assert "signal 9, perhaps because memory ran out; --resume goes on" in row["error"]
    kept = [row for group in groups for row in rows_of(group, out)]
    assert [row for row in kept if row["status"] == "failed"] == sorted(
        failed, key=lambda row: row["id"]
    )
    again = [row for group in run_sweep(groups, out, workers=2) for row in group]
    assert {row["status"] for row in again} == {"finished"}
    list(run_sweep(groups, tmp_path / "whole"))
    assert trained_files(out) == trained_files(tmp_path / "whole")


def test_an_error_of_one_worker_stops_the_others(tmp_path: Path) -> None:
    """They commit what they train, which would take hours to end."""
    groups = plan(TASK, longer(10**8), {"seed": [0, 1]}, group_size=1)
    out = tmp_path / "sweep"
    keep_plan(groups, out)
    (out / "groups").mkdir()
    (out / "groups" / groups[0].id).touch()
    with pytest.raises(MechintError, match="expected a directory"):
        list(run_sweep(groups, out, workers=2))
    assert status(groups[1:], out)[0]["status"] in ("interrupted", "waiting")


def test_without_ray_its_executor_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunError, match=r"Ray is not installed; pip install 'mechint\[ray\]'"):
        list(EXECUTORS["ray"](Job([], tmp_path)))
