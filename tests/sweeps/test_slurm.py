"""Slurm through submitit: arrays, options, tasks that are stopped and queued again."""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mechint.cli import main
from mechint.errors import ParameterError, RunError
from mechint.sweeps import keep_plan, plan, run_sweep, status
from mechint.sweeps.on_slurm import parse_options, submit
from tests.sweeps.conftest import SMALL, TASK, longer, trained_files

pytest.importorskip("submitit")


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an sbatch that keeps the scripts it is given, first on the PATH."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "srun").write_text("#!/bin/sh\n")
    (place / "sbatch").write_text(
        f'#!/bin/sh\ncp "$1" {place}/script\necho Submitted batch job 7\n'
    )
    for name in ("srun", "sbatch"):
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    return place


def test_the_array_asks_for_what_was_asked(tmp_path: Path, sbatch: Path) -> None:
    groups = plan(TASK, SMALL, {"d_mlp": [8, 16, 24]})
    options = parse_options(
        ["time=4:00:00", "mem=8G", "partition=long", "account=lab", "concurrent=2", "setup=true"]
    )
    rows = list(run_sweep(groups, tmp_path / "s", "slurm", options=options))
    assert {row["status"] for some in rows for row in some} == {"submitted"}
    text = (sbatch / "script").read_text()
    for option in ("time=4:00:00", "mem=8G", "partition=long", "account=lab", "array=0-2%2"):
        assert f"#SBATCH --{option}\n" in text
    assert "gres" not in text and "\ntrue\n" in text
    submit(groups, tmp_path / "s", "cuda", {"groups_per_task": "2"})
    text = (sbatch / "script").read_text()
    assert "#SBATCH --gres=gpu:1\n" in text and "#SBATCH --array=0-1" in text


@pytest.mark.parametrize("wrong", ["time", "=3", "time=", "a b=1", "groups_per_task=0"])
def test_options_that_sbatch_could_not_read(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ParameterError, match="--slurm"):
        submit([], tmp_path, "cpu", parse_options([wrong]))


def test_without_slurm_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError, match=r"executor slurm: .* use --executor local"):
        list(run_sweep(plan(TASK, SMALL, {"seed": [0]}), tmp_path / "s", "slurm"))
    settings = [word for text in SMALL for word in ("--set", text)]
    command = ["sweep", TASK, "--over", "seed=0:2", *settings, "--executor", "slurm"]
    done = CliRunner().invoke(main, [*command, "--out", str(tmp_path / "s")])
    assert done.exit_code == 2 and "sbatch" in done.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.slow
def test_tasks_train_the_sweep_and_go_on_after_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By submitit's local executor, which sends the signal of a time limit and starts the task
    again.
    """
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    groups = plan(TASK, (*longer(4000), "evaluate_every=500"), {"seed": [0, 1], "d_mlp": [8, 16]})
    out = tmp_path / "slurm"
    keep_plan(groups, out)
    jobs: list[Any] = submit(groups, out, "cpu", {"cluster": "local", "groups_per_task": "1"})
    while not list(out.rglob("metrics.jsonl")):
        select.select([], [], [], 0.05)
    for job in jobs:
        job._interrupt()
    for job in jobs:
        job.result()
    assert {row["status"] for row in status(groups, out)} == {"finished"}
    list(run_sweep(groups, tmp_path / "here"))
    assert trained_files(out) == trained_files(tmp_path / "here")
