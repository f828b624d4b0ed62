"""Tasks and probes in files of one's own: from the command line, and given to `mechint.load`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mechint as library
from mechint.errors import CheckpointError
from mechint.registry import PROBES, TASKS
from tests.cli.conftest import Command, one_line

DOCS = Path(__file__).parents[2] / "docs"


def shown(page: str) -> str:
    """The first program of a guide."""
    return (DOCS / page).read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A folder with the guides' task and probe, forgotten afterwards."""
    paths, modules = list(sys.path), set(sys.modules)
    (tmp_path / "own_parity.py").write_text(shown("write-a-task.md"), encoding="utf-8")
    (tmp_path / "own_norms.py").write_text(shown("write-a-probe.md"), encoding="utf-8")
    yield tmp_path
    for registry, name in ((TASKS, "parity"), (PROBES, "embedding-norms")):
        if name in registry:
            registry.remove(name)
    for name in {"own_parity", "own_norms", "own_broken", "own_plain"} - modules:
        sys.modules.pop(name, None)
    sys.path[:] = paths


def test_a_task_and_a_probe_of_ones_own(mechint: Command, own: Path) -> None:
    task, run = f"{own / 'own_parity.py'}:Parity", own / "run"
    small = [
        part for text in ("n=5", "steps=5", "d_model=8", "n_heads=2") for part in ("--set", text)
    ]
    assert mechint("train", "parity", "--plugin", task, *small, "--out", run).exit_code == 0
    probe = f"{own / 'own_norms.py'}:EmbeddingNorms"
    result = mechint(
        *("analyze", run, "--plugin", task, "--plugin", probe, "--probe", "embedding-norms"),
        *("--set", "models=99"),
    )
    assert result.exit_code == 0 and "of the mean" in result.stdout
    assert "parity" in mechint("tasks", "--plugin", task).stdout

    made = TASKS["parity"](n=5)
    TASKS.remove("parity")
    line = one_line(mechint("analyze", run, "--probe", "norms"))
    assert "unknown task 'parity'" in line and "--plugin FILE.py:CLASS" in line
    with pytest.raises(CheckpointError, match="task=MyTask"):
        library.load(run)
    subject = library.load(run, task=made)
    assert subject.task is made and len(subject.data) == 32
    changed = library.load(run, task=made, train_fraction=0.5)
    assert changed.task == type(made)(n=5, train_fraction=0.5)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("own_parity.py", "expected FILE.py:CLASS"),
        ("none.py:Parity", "there is no file"),
        ("own_parity.py:Nothing", "defines no Nothing"),
        ("own_parity.py:Any", "is neither a Task nor a Probe"),
        ("own_parity.py:FiniteTask", "has no class attribute `name`"),
        ("own-plain.py:A", "is not a module's name"),
        ("json.py:A", "another module is called 'json'"),
        ("own_broken.py:A", "ZeroDivisionError"),
    ],
)
def test_what_is_no_plugin(mechint: Command, own: Path, text: str, line: str) -> None:
    (own / "own_broken.py").write_text("A = 1 / 0\n")
    (own / "own-plain.py").write_text("A = 1\n")
    (own / "json.py").write_text("A = 1\n")
    assert line in one_line(mechint("tasks", "--plugin", f"{own}/{text}"))
