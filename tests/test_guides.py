"""The guides are true: what they show is written to a package, installed and used from outside."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from mechint.planted import library
from mechint.probe import NEEDS, Need, Report

ROOT = Path(__file__).parents[1]
GUIDES = {"parity-task": "write-a-task.md", "embedding-norms": "write-a-probe.md"}


def blocks(guide: str) -> dict[str, str]:
    """File name → text of the code blocks that name their file in the first line."""
    text = (ROOT / "docs" / guide).read_text(encoding="utf-8")
    found = re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", text, flags=re.DOTALL)
    assert found
    return dict(found)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as pip leaves it: the modules, and per distribution its metadata."""
    place = tmp_path_factory.mktemp("site")
    for distribution, guide in GUIDES.items():
        files = blocks(guide)
        project = tomllib.loads(files.pop("pyproject.toml"))["project"]
        assert project["name"] == distribution
        info = place / f"{distribution.replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {project['version']}\n"
        )
        points = (
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in project["entry-points"].items()
        )
        (info / "entry_points.txt").write_text("\n".join(points))
        for name, text in files.items():
            (place / name).write_text(text, encoding="utf-8")
    return place


def run(place: Path, arguments: Sequence[str], cwd: Path | None = None) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{place}"}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=cwd or place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_they_are_listed_beside_the_built_ins(installed: Path) -> None:
    tasks = run(installed, ["mechint", "tasks"])
    assert re.search(r"^  parity +Whether an odd number of the first", tasks, re.M)
    probes = json.loads(run(installed, ["mechint", "probes", "--json"]))
    assert probes["embedding-norms"].startswith("Is some token's embedding shorter")
    assert probes["shortfall"].startswith("Is some token's embedding shorter than in untrained")
    assert "Inputs that a function answers" in tasks and "operand 0" in run(
        installed, ["mechint", "tasks", "minus"]
    )
    assert "bits that matter" in run(installed, ["mechint", "tasks", "parity"])


@pytest.mark.full
def test_the_task_trains_and_the_probe_runs_on_it_unasked(installed: Path, tmp_path: Path) -> None:
    model = ["--set", "steps=30", "--set", "n=5", "--set", "d_model=16"]
    run(installed, ["mechint", "train", "parity", *model, "--out", "run"], tmp_path)
    analysis = json.loads(run(installed, ["mechint", "analyze", "run", "--json"], tmp_path))
    found = analysis["accounts"][0]["results"]["embedding-norms"]
    assert 0 < found["null"]["norms.shortfall"]["p_value"] <= 1
    (finding,) = found["findings"]
    assert finding["p_value"] == found["null"]["norms.shortfall"]["p_value"]
    assert finding["null"].startswith("the same architecture")


@pytest.mark.full
def test_their_tests_pass(installed: Path) -> None:
    tests = ["test_parity.py", "test_embedding_norms.py"]
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-W", "error"]
    assert " passed" in run(installed, ["pytest", *options, *tests])


def test_the_table_of_needs_is_complete() -> None:
    text = (ROOT / "docs" / "write-a-probe.md").read_text(encoding="utf-8")
    table = text.partition("<!-- needs -->")[2].partition("<!-- end of needs -->")[0]
    rows = dict(re.findall(r"^\| `Need\.(\w+)` \| (.*) \|$", table, flags=re.M))
    assert rows == {need.name: NEEDS[need][1] for need in Need}


def test_the_tables_of_what_a_probe_calls_are_complete() -> None:
    text = (ROOT / "docs" / "write-a-probe.md").read_text(encoding="utf-8")
    methods = set(re.findall(r"`(\w+)\(", text.partition("| method of `Report` |")[2]))
    every = {name for name, _ in inspect.getmembers(Report, inspect.isfunction)}
    assert methods >= {name for name in every if not name.startswith("_")}
    plants = set(re.findall(r"`(\w+)", text.partition("| | in `library` |")[2]))
    own = inspect.getmembers(library, inspect.isfunction)
    assert plants >= {name for name, made in own if made.__module__ == library.__name__}
