"""Sweeps: the plan, the table that goes on where it stopped, and the executors."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mechint.cli import main
from mechint.errors import ParameterError, RunError
from mechint.sweeps import plan as sweeps
from mechint.sweeps.plan import EXECUTORS, PLAN, ROWS, parse_values, plan, read_plan, run_sweep

SMALL = ("p=5", "d_model=8", "n_heads=1", "d_mlp=8", "steps=4", "evaluate_every=2")


def test_runs_that_can_be_one_ensemble_are_one_group() -> None:
    groups = plan(
        "modular-arithmetic", SMALL, {"seed": [0, 1, 2], "d_model": [8, 16], "lr": [1e-3, 2e-3]}
    )
    assert [len(group.runs) for group in groups] == [6, 6]
    specs = groups[1].specs(Path("there"))
    assert {(spec.train.seed, spec.model.d_model, spec.train.lr) for spec in specs} == {
        (seed, 16, lr) for seed in range(3) for lr in (1e-3, 2e-3)
    }
    assert len({spec.out for group in groups for spec in group.specs(Path("there"))}) == 12


def test_a_wrong_value_is_found_before_anything_is_trained() -> None:
    with pytest.raises(ParameterError, match="modular-arithmetic: p=1: expected 2 to 1024"):
        plan("modular-arithmetic", (), {"p": [5, 1]})
    with pytest.raises(ParameterError, match="train: lr='x': expected float"):
        plan("modular-arithmetic", (), {"lr": ["x"]})
    with pytest.raises(ParameterError, match=r"train: seed=0\.5: expected int"):
        plan("modular-arithmetic", (), {"seed": [0.5]})


def test_values() -> None:
    assert parse_values("p=[[1, 2], 3]") == ("p", [[1, 2], 3])
    assert parse_values("x=-2:1") == ("x", [-2, -1, 0])
    for wrong in ("p", "=1", "p=", "p=3:3"):
        with pytest.raises(ParameterError, match="--over"):
            parse_values(wrong)


def test_a_sweep_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = plan("modular-arithmetic", SMALL, {"seed": [0, 1], "d_mlp": [8, 16]})
    stopped = run_sweep(groups, tmp_path / "sweep", "local")
    first = next(stopped)
    stopped.close()
    assert [row["status"] for row in sweeps.rows_of(groups[1], tmp_path / "sweep")] == [
        "waiting",
        "waiting",
    ]

    monkeypatch.setattr(
        "mechint.training.train_many",
        lambda *args, **kwargs: pytest.fail("a finished run was repeated"),
    )
    assert sweeps.run_group(groups[0], tmp_path / "sweep") == first
    monkeypatch.undo()
    rows = [
        row
        for group in run_sweep(read_plan(tmp_path / "sweep"), tmp_path / "sweep", "local")
        for row in group
    ]
    assert rows[:2] == first
    assert len({row["id"] for row in rows}) == 4
    for row in rows:
        assert (Path(row["path"]) / "metrics.jsonl").exists()
        assert 0 <= row["metrics"]["test.accuracy"] <= 1
    assert rows[0]["metrics"] != rows[1]["metrics"], "two seeds are two models"


def test_a_run_that_fails_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    groups = plan(
        "modular-arithmetic",
        (*SMALL, "optimizer=sgd", "warmup=0"),
        {"momentum": [0.5, 0.0], "lr": [1e30, 1e-3]},
    )
    for failed, fine in run_sweep(groups, tmp_path / "sweep"):
        assert failed["status"] == "failed" and "not finite" in failed["error"]
        assert fine["status"] == "finished" and fine["metrics"]["step"] == 4


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    sweeps.keep_plan(plan("modular-arithmetic", SMALL, {"d_mlp": [8]}), tmp_path / "a")
    with pytest.raises(RunError, match="holds another sweep"):
        sweeps.keep_plan(plan("modular-arithmetic", SMALL, {"d_mlp": [16]}), tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thing").touch()
    with pytest.raises(RunError, match="holds something else"):
        sweeps.keep_plan(plan("modular-arithmetic", SMALL, {}), tmp_path / "b")
    with pytest.raises(RunError, match="holds no sweep"):
        read_plan(tmp_path / "b")


def test_slurm_submits_one_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = plan("modular-arithmetic", SMALL, {"d_mlp": [8, 16, 24]})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        RunError, match=r"sbatch is not on the PATH; submit .*sweep\.sbatch where it is"
    ):
        list(run_sweep(groups, tmp_path / "s", "slurm"))
    stub = tmp_path / "sbatch"
    stub.write_text(
        f'#!{os.sep}bin/sh\nread -r first < "$1"\necho "$first" > "{tmp_path}/submitted"\n'
    )
    stub.chmod(0o755)
    rows = list(run_sweep(groups, tmp_path / "s", "slurm"))
    assert [row[0]["status"] for row in rows] == ["submitted"] * 3
    assert (tmp_path / "submitted").read_text() == "#!/bin/bash\n"
    script = (tmp_path / "s" / "sweep.sbatch").read_text()
    assert "#SBATCH --array=0-2\n" in script
    assert script.endswith("--only $SLURM_ARRAY_TASK_ID\n")


def test_without_ray_its_executor_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunError, match=r"Ray is not installed; pip install 'mechint\[ray\]'"):
        list(EXECUTORS["ray"]([], tmp_path, "cpu", None))


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    settings = [part for text in SMALL for part in ("--set", text)]
    arguments = [
        "sweep",
        "modular-arithmetic",
        *settings,
        "--over",
        "seed=0:2",
        "--over",
        "d_mlp=8,16",
        "--out",
        str(out),
    ]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 4
    again = CliRunner().invoke(main, ["sweep", str(out), "--json"])
    rows = json.loads(again.stdout)
    assert [row["parameters"] for row in rows] == [
        {"seed": seed, "d_mlp": width} for width in (8, 16) for seed in (0, 1)
    ]
    assert (out / PLAN).exists() and len(list(out.glob(f"*/{ROWS}"))) == 2
    one = CliRunner().invoke(main, ["sweep", str(out), "--only", "1", "--json"])
    assert json.loads(one.stdout) == rows[2:]
    assert CliRunner().invoke(main, ["sweep", str(out), "--only", "2"]).exit_code == 2


def test_a_file_describes_a_sweep(tmp_path: Path) -> None:
    toml = tmp_path / "sweep.toml"
    toml.write_text(
        'task = "modular-arithmetic"\n[set]\np = 5\nsteps = 2\nd_model = 8\nn_heads = '
        "1\n[over]\nseed = [0, 1]\n"
    )
    done = CliRunner().invoke(main, ["sweep", str(toml), "--out", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)) == 2
    toml.write_text("task = 3\n")
    wrong = CliRunner().invoke(main, ["sweep", str(toml)])
    assert wrong.exit_code == 2
    assert (
        "expected the names task, set (name = value) and over (name = list of values)"
        in wrong.stderr
    )
