"""The manifest.json of a run that was resumed says what it was trained with."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mechint
import tasks
from mechint.checkpoints import load_checkpoint
from mechint.errors import RunError
from mechint.registry import TASKS
from mechint.registry.plugins import PLUGINS, load_plugin
from mechint.run_table.page import notes_of
from mechint.sweeps import plan, run_sweep
from mechint.training import Run, run_directory, seed_specs, train_many
from mechint.training.trainer import Ensemble

TASK = tasks.make("modular-arithmetic", p=5, train_fraction=0.6)
SMALL = {"d_model": 8, "n_heads": 1, "d_mlp": 8}
BRIEF = {"steps": 12, "evaluate_every": 4, "checkpoints": None}


def go(
    out: Path,
    seeds: tuple[int, ...] = (0, 1, 2),
    threads: int = 1,
    task: Any = TASK,
    **options: Any,
) -> list[Run]:
    specs = seed_specs(task, SMALL, BRIEF, seeds=seeds, out=out)
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
    new = {**run_directory._versions(), "torch": torch}
    monkeypatch.setattr(run_directory, "_versions", lambda: new)
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


# --- sources of a task of one's own ---------------------------------------------------------------
OWN = """
from dataclasses import dataclass

import shifts.rule
from tasks.modular import ModularArithmetic


@dataclass(frozen=True)
class Shifted(ModularArithmetic):
    name = "shifted"
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a task in a file, whose rule is in a package beside it."""
    folder = tmp_path / "own"
    (folder / "shifts").mkdir(parents=True)
    (folder / "shifts/rule.py").write_text("SHIFT = 0\n")
    (folder / "shifted.py").write_text(OWN)
    monkeypatch.setenv(PLUGINS, "[]")
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    load_plugin(f"{folder / 'shifted.py'}:Shifted")
    yield folder
    TASKS.remove("shifted")
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("shifted", "shifts"):
            del sys.modules[name]


def test_a_run_knows_the_sources_that_it_was_trained_with(tmp_path: Path, own: Path) -> None:
    go(tmp_path / "a", seeds=(0,), task=TASKS["shifted"](p=5))
    sources = said(tmp_path / "a")["sources"]
    for name, file in {"shifted": "shifted.py", "shifts.rule": "shifts/rule.py"}.items():
        assert sources[name]["path"] == str(own / file)
        assert sources[name]["digest"] == hashlib.sha256((own / file).read_bytes()).hexdigest()
    assert not {"torch", "mechint", "tasks", "json", "__main__"} & set(sources)
    go(tmp_path / "b", seeds=(0,))
    assert said(tmp_path / "b")["sources"] == {}, "of a task that is installed"


def test_sources_that_differ_are_said_on_resume(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, out = TASKS["shifted"](p=5), tmp_path / "run"
    cut_at(monkeypatch, 4, out, seeds=(0,), task=task)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cut_at(monkeypatch, 8, out, seeds=(0,), task=task, resume=True)
    before = said(out)["sources"]
    (own / "shifts/rule.py").write_text("SHIFT = 12\n")
    with pytest.warns(UserWarning, match="goes on with other sources than before"):
        go(out, seeds=(0,), task=task, resume=True)
    assert said(out)["before"] == [{"until_step": 8, "sources": before}]


def test_sources_that_differ_are_refused_in_a_sweep_unless_told(tmp_path: Path, own: Path) -> None:
    settings = ["p=5", "steps=4", "evaluate_every=4", "d_model=8", "n_heads=1", "d_mlp=8"]
    first, both = (plan("shifted", settings, {"seed": seeds}, "cpu", 1) for seeds in ([0], [0, 1]))
    out = tmp_path / "sweep"
    list(run_sweep(first, out))
    (own / "shifts/rule.py").write_text("SHIFT = 12\n")
    (out / "sweep.json").write_text(json.dumps([dataclasses.asdict(one) for one in both]))
    with pytest.raises(RunError, match=r"seed=0: was trained with another \S+rule\.py"):
        list(run_sweep(both, out))
    assert not (out / "seed=1").exists()
    rows = [row for some in run_sweep(both, out, other_sources=True) for row in some]
    assert [row["status"] for row in rows] == ["finished", "finished"]


def test_sources_that_differ_are_marked_in_tables(tmp_path: Path, own: Path) -> None:
    go(tmp_path / "runs", seeds=(0, 1), task=TASKS["shifted"](p=5))
    (own / "shifts/rule.py").write_text("SHIFT = 12\n")
    go(tmp_path / "runs" / "new", seeds=(2,), task=TASKS["shifted"](p=5))
    rows = mechint.runs(tmp_path / "runs").rows()
    marks = {Path(row["path"]).name: row.get("changed") for row in rows}
    rule = [str(own / "shifts/rule.py")]
    assert marks == {"seed-0000": rule, "seed-0001": rule, "new": None}
    assert "rule.py is another file" in notes_of(rows)
    old, new = (load_checkpoint(tmp_path / "runs" / name) for name in ("seed-0000", "new"))
    assert sum("rule.py is another file" in line for line in old.warnings()) == 1
    assert not any("another file" in line for line in new.warnings())


def test_a_table_says_which_runs_of_a_sweep_it_lacks(tmp_path: Path) -> None:
    settings = ["p=5", "steps=4", "evaluate_every=4", "d_model=8", "n_heads=1", "d_mlp=8"]
    groups, out = (
        plan("modular-arithmetic", settings, {"seed": [0, 1, 2]}, "cpu", 1),
        tmp_path / "s",
    )
    list(run_sweep(groups, out))
    assert notes_of(mechint.runs(out).rows()) == ""
    shutil.rmtree(out / "seed=1")
    assert notes_of(mechint.runs(out).rows()) == f"2 of 3 runs of {out / 'sweep.json'}"
