"""Tasks, probes and families of one's own: on the command line, and given to `mechint.load`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

import mechint as library
from mechint import planted
from mechint.errors import CheckpointError
from mechint.explanation import explain
from mechint.registry import EXPLANATIONS, PROBES, TASKS
from mechint.registry.plugins import PLUGINS, given_plugins, load_plugin
from mechint.sweeps import keep_plan, on_ray, plan
from tests.cli.conftest import Command, one_line

SMALL = ("n=5", "steps=5", "d_model=8", "n_heads=2")
SETTINGS = [part for text in SMALL for part in ("--set", text)]
DOCS = Path(__file__).parents[2] / "docs"


BARE = """
from dataclasses import dataclass
from mechint import Probe, setting


class Bare(Probe):
    name = "bare"
    size: int = setting(3, "size", low=1, high=9)

    def measure(self, subject, seed):
        ...


@dataclass(frozen=True)
class Half(Probe):
    name = "half"
"""


def shown(page: str) -> str:
    """The first class of a guide."""
    blocks = (DOCS / page).read_text(encoding="utf-8").split("```python\n")[1:]
    return next(one for one in blocks if "\nclass " in one).split("```")[0]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the guides' task and probe, forgotten afterwards."""
    monkeypatch.setenv(PLUGINS, "[]")
    paths, modules = list(sys.path), set(sys.modules)
    (tmp_path / "own_parity.py").write_text(shown("write-a-task.md"), encoding="utf-8")
    (tmp_path / "own_norms.py").write_text(shown("write-a-probe.md"), encoding="utf-8")
    yield tmp_path
    forget(modules)
    sys.path[:] = paths


def forget(modules: set[str]) -> None:
    """Be as a process that knows none of them, with these modules."""
    for registry, name in (
        (TASKS, "parity"),
        (PROBES, "embedding-norms"),
        (PROBES, "broken"),
    ):
        if name in registry:
            registry.remove(name)
    for name in {"own_parity", "own_norms", "own_broken", "own_plain", "own_bare"} - modules:
        sys.modules.pop(name, None)


def test_a_task_and_a_probe_of_ones_own(mechint: Command, own: Path) -> None:
    task, run = f"{own / 'own_parity.py'}:Parity", own / "run"
    assert mechint("train", "parity", "--plugin", task, *SETTINGS, "--out", run).exit_code == 0
    probe = f"{own / 'own_norms.py'}:EmbeddingNorms"
    result = mechint(
        *("analyze", run, "--plugin", task, "--plugin", probe, "--probe", "embedding-norms"),
        *("--set", "models=99"),
    )
    said = " ".join(result.stdout.split())
    assert result.exit_code == 0 and "shorter than any in an untrained model" in said
    assert "parity" in mechint("tasks", "--plugin", task).stdout

    made = TASKS["parity"](n=5)
    TASKS.remove("parity")
    line = one_line(mechint("analyze", run, "--probe", "norms"))
    assert "unknown task 'parity'" in line and "--plugin FILE.py:NAME" in line
    with pytest.raises(CheckpointError, match="task=MyTask"):
        library.load(run)
    subject = library.load(run, task=made)
    assert subject.task is made and len(subject.data) == 32
    changed = library.load(run, task=made, train_fraction=0.5)
    assert changed.task == type(made)(n=5, train_fraction=0.5)


@pytest.mark.full
def test_a_quick_probe_of_ones_own_that_fails_is_said(mechint: Command, own: Path) -> None:
    """Though nobody named it, and the others have results."""
    text = """from dataclasses import dataclass
from mechint import Probe
@dataclass(frozen=True)
class Broken(Probe):
    name, source, quick = "broken", "a test", True
    def measure(self, subject, seed):
        return 1 / 0
"""
    (own / "own_broken.py").write_text(text)
    result = mechint(
        "analyze",
        DOCS.parent / "examples/models/clock.pt",
        "--plugin",
        f"{own / 'own_broken.py'}:Broken",
    )
    assert result.exit_code == 2 and "clock" in result.stdout
    assert "probe broken failed: own_broken.py, line 7: ZeroDivisionError" in result.stderr


def test_a_plugin_has_whatever_name_its_file_has(mechint: Command, own: Path) -> None:
    """Names of mechint's own packages and of the standard library, too, in a folder with both."""
    for name in ("tasks", "json"):
        file = (own / "own_parity.py").rename(own / f"{name}.py")
        assert "parity" in mechint("tasks", "--plugin", f"{file}:Parity").stdout
        assert TASKS["parity"](n=5).name == "parity"
        TASKS.remove("parity")
        file.rename(own / "own_parity.py")


def test_a_family_of_ones_own(own: Path) -> None:
    """The guide's family is completed by the planted frequency that it leaves out at first."""
    page = (DOCS / "explanations.md").read_text(encoding="utf-8")
    text = page.split("```python\n# strongest.py\n")[1].split("```")[0]
    (own / "own_strongest.py").write_text(text, encoding="utf-8")
    assert load_plugin(f"{own / 'own_strongest.py'}:Strongest") == "strongest"
    try:
        plant = planted.modular_addition(23, (2, 5, 9), rotation_seed=1)
        best, first = explain(plant.subject, family="strongest")
    finally:
        EXPLANATIONS.remove("strongest")
        del sys.modules["own_strongest"]
    assert set(best.explanation.parts[0].blocks) == {"2", "5", "9"} and best.standing == "stands"
    assert len(first.explanation.parts[0].blocks) == 2 and first.standing in ("wrong", "incomplete")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("own_parity.py", "expected FILE.py:NAME"),
        ("none.py:Parity", "there is no file"),
        ("own_parity.py:Nothing", "defines no Nothing"),
        ("own_parity.py:Any", "is no Task, Probe or Family of explanations"),
        ("own_parity.py:FiniteTask", "has no class attribute `name`"),
        ("own-plain.py:A", "is not a module's name"),
        ("json.py:A", "A is no Task"),
        ("own_exit.py:A", "SystemExit: 0"),
        ("own_broken.py:A", "ZeroDivisionError"),
        ("own_bare.py:Bare", "Bare declares size and is no dataclass of its own"),
        ("own_bare.py:Half", "Half does not define measure"),
    ],
)
def test_what_is_no_plugin(mechint: Command, own: Path, text: str, line: str) -> None:
    (own / "own_broken.py").write_text("A = 1 / 0\n")
    (own / "own-plain.py").write_text("A = 1\n")
    (own / "json.py").write_text("A = 1\n")
    (own / "own_exit.py").write_text("import sys; sys.exit(0)\n")
    (own / "own_bare.py").write_text(BARE)
    assert line in one_line(mechint("tasks", "--plugin", f"{own}/{text}"))


@pytest.mark.full
def test_the_workers_of_a_sweep_have_them(
    mechint: Command, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task and a probe in another folder than the current one, by relative paths."""
    (own / "here").mkdir()
    monkeypatch.chdir(own / "here")
    task, probe = "../own_parity.py:Parity", "../own_norms.py:EmbeddingNorms"
    plugins = ["--plugin", task, "--plugin", probe]
    swept = ["sweep", "parity", *SETTINGS, "--over", "seed=0:2", "--group-size", 1, "--workers", 2]
    measured = ["--probe", "embedding-norms", "--set", "embedding-norms.models=99"]
    done = mechint(*swept, *plugins, *measured, "--out", "S")
    assert done.exit_code == 0, done.output
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["finished"] * 2
    assert pd.read_csv("S/sweep.csv")["embedding-norms.verdict"].notna().sum() == 2
    assert given_plugins() == [f"{own}/own_parity.py:Parity", f"{own}/own_norms.py:EmbeddingNorms"]

    TASKS.remove("parity")  # another command, which is given none
    PROBES.remove("embedding-norms")
    monkeypatch.setenv(PLUGINS, "[]")
    assert "--plugin" in one_line(mechint("sweep", "S", "--resume")), "no file is run unasked"
    again = mechint("sweep", "S", "--resume", *plugins)
    assert again.exit_code == 0 and "parity" in TASKS, again.output

    (own / "here" / "own_parity.py").touch()  # the file that was named counts, not this one
    again = mechint(*swept, *plugins, "--out", "T")
    assert [line.split()[1] for line in again.stdout.splitlines()] == ["finished"] * 2


def test_a_task_of_ray_has_them(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a node whose process was not given any."""
    modules = set(sys.modules)
    load_plugin(f"{own / 'own_parity.py'}:Parity")
    (group,) = plan("parity", SMALL, {"seed": [0]})
    keep_plan([group], own / "S")
    given = given_plugins()
    forget(modules)
    monkeypatch.setenv(PLUGINS, "[]")
    node = SimpleNamespace(get_node_id=lambda: "node")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get_runtime_context=lambda: node))
    name, rows = on_ray._work(group, own / "S", "cpu", given)
    assert name == "node" and rows[0]["status"] == "finished"
