"""What the tests of sweeps share: the settings of tiny runs, and every file of a sweep."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mechint.sweeps.executors.ray import QUIET

SMALL = (
    "p=5",
    "d_model=8",
    "n_heads=1",
    "d_mlp=8",
    "steps=4",
    "evaluate_every=2",
    "checkpoints=none",
)
TASK = "modular-arithmetic"


def trained_files(out: Path) -> dict[str, bytes]:
    """Weights, states and metrics of every run of a sweep, by path."""
    names = ("ckpt.pt", "metrics.jsonl", "state.pt")
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.name in names
    }


def longer(steps: int) -> tuple[str, ...]:
    """`SMALL` for so many steps."""
    return tuple(f"steps={steps}" if text == "steps=4" else text for text in SMALL)


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Ray cluster of two nodes of one core each, which the executor finds."""
    for name, value in QUIET.items():  # some are read when Ray is imported
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_worker_niceness", "0")  # at 15 other tests starve the workers
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, *filter(None, sys.path)]))
    node = {"num_cpus": 1, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(**node)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


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
