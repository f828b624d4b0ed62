"""The Slurm executor against a stand-in: arrays, limits, kills before the time is up, requeues."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from mechint.errors import ParameterError, RunError
from mechint.sweeps import plan, run_sweep, status
from mechint.sweeps.executors.slurm import parse_options, script
from tests.sweeps.conftest import SMALL, TASK, trained_files


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


STAND_IN = """#!{python}
\"\"\"sbatch: runs an array's tasks one after another; scontrol: notes what is to run again.\"\"\"
import os, re, signal, subprocess, sys, time
from pathlib import Path
here = Path(__file__).parent
if Path(sys.argv[0]).name == "scontrol":
    (here / "requeued").open("a").write(sys.argv[2] + "\\n")
    sys.exit(0)
text = Path(sys.argv[1]).read_text()
last = int(re.search(r"--array=0-(\\d+)", text)[1])
kill = (here / "kill").exists()
for task in range(last + 1):
    for turn in range(3):
        environment = dict(os.environ, SLURM_ARRAY_TASK_ID=str(task), SLURM_ARRAY_JOB_ID="7")
        child = subprocess.Popen(["bash", sys.argv[1]], env=environment,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if kill and turn == 0:
            states = here.parent / "slurm"
            end = time.monotonic() + 120
            while not list(states.rglob("metrics.jsonl")) and child.poll() is None:
                assert time.monotonic() < end
                time.sleep(0.05)
            child.send_signal(signal.SIGTERM)
        if child.wait() != 130:
            break
print("Submitted batch job 7")
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with sbatch and scontrol, first on the PATH."""
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("sbatch", "scontrol"):
        (place / name).write_text(STAND_IN.format(python=sys.executable))
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", root)
    return place


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
    long = tuple("steps=3000" if text == "steps=4" else text for text in SMALL)
    groups = plan(TASK, (*long, "evaluate_every=1000"), {"seed": [0, 1], "d_mlp": [8, 16]})
    options = {"groups_per_task": "2"}
    list(run_sweep(groups, tmp_path / "slurm", "slurm", options=options))
    assert (cluster / "requeued").read_text() == "7_0\n"
    list(run_sweep(groups, tmp_path / "here"))
    assert trained_files(tmp_path / "slurm") == trained_files(tmp_path / "here")
