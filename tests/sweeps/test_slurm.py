"""The Slurm executor against a stand-in: arrays, limits, kills before the time is up, requeues."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mechint.errors import ParameterError, RunError
from mechint.sweeps import plan, run_sweep, status
from mechint.sweeps.executors.slurm import parse_options, script
from tests import campaigns
from tests.sweeps.conftest import SMALL, TASK, longer, trained_files


def test_the_script_asks_for_what_was_asked(tmp_path: Path) -> None:
    options = parse_options(
        ["time=4:00:00", "mem=8G", "partition=long", "account=lab", "concurrent=16"]
    )
    text = script(100, tmp_path, options=options | {"groups_per_task": "8"})
    for line in ("time=4:00:00", "mem=8G", "partition=long", "account=lab", "signal=B:TERM@120"):
        assert f"#SBATCH --{line}\n" in text
    assert "#SBATCH --array=0-12%16\n" in text
    assert "#SBATCH --requeue\n" in text
    assert "first=$((SLURM_ARRAY_TASK_ID * 8))\n" in text
    assert "--only $first:$((first + 8))" in text
    assert "gres" not in text
    assert "#SBATCH --gres=gpu:1\n" in script(1, tmp_path, "cuda")
    assert "#SBATCH --signal=B:TERM@30\n" in script(1, tmp_path, options={"signal": "B:TERM@30"})


@pytest.mark.parametrize("wrong", ["time", "=3", "time=", "a b=1"])
def test_options_that_sbatch_could_not_read(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ParameterError, match="--slurm"):
        script(1, tmp_path, options=parse_options([wrong]))
    with pytest.raises(ParameterError, match="groups_per_task=0"):
        script(1, tmp_path, options={"groups_per_task": "0"})


def test_without_sbatch_the_script_is_left_to_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    groups = plan(TASK, SMALL, {"d_mlp": [8, 16, 24]})
    with pytest.raises(RunError, match=r"sbatch is not on the PATH; submit .*sweep\.sbatch"):
        list(run_sweep(groups, tmp_path / "s", "slurm"))
    text = (tmp_path / "s" / "sweep.sbatch").read_text()
    assert re.search(r"#SBATCH --array=0-2\n", text)


@pytest.mark.slow
def test_an_array_trains_the_sweep(tmp_path: Path, cluster: Path) -> None:
    groups = plan(TASK, SMALL, {"seed": [0, 1], "d_mlp": [8, 16]})
    rows = list(run_sweep(groups, tmp_path / "slurm", "slurm"))
    assert {row["status"] for group in rows for row in group} == {"submitted"}
    assert {row["status"] for row in status(groups, tmp_path / "slurm")} == {"finished"}
    list(run_sweep(groups, tmp_path / "here"))
    assert trained_files(tmp_path / "slurm") == trained_files(tmp_path / "here")


@pytest.mark.slow
def test_a_task_that_is_stopped_is_queued_again_and_goes_on(tmp_path: Path, cluster: Path) -> None:
    (cluster / "kill").touch()
    groups = plan(TASK, (*longer(1500), "evaluate_every=500"), {"seed": [0, 1], "d_mlp": [8, 16]})
    options = {"groups_per_task": "2"}
    list(run_sweep(groups, tmp_path / "slurm", "slurm", options=options))
    assert (cluster / "requeued").read_text() == "7_0\n"
    list(run_sweep(groups, tmp_path / "here"))
    lost = trained_files(tmp_path / "slurm") != trained_files(tmp_path / "here")
    campaigns.record(
        "tasks of a Slurm array stopped and queued again", resumed=not lost, lost_state=lost
    )
    assert not lost
