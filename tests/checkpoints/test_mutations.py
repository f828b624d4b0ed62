"""Thousands of damaged and hostile checkpoints: each is opened or refused in one line, in bounded
time and memory, and none runs code.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import campaigns

ROOT = Path(__file__).parents[2]
PACKAGES = ("mechint", "tasks", "probes", "benchmarks", "examples")


def attack(folder: Path, first: int, count: int) -> tuple[Counter[str], list[str]]:
    """How many of `count` mutants from seed `first` on came to which end, opened in another
    process, and what was wrong.
    """
    words = [str(folder), str(first), str(count)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.checkpoints.mutations", *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert sum(found["seen"].values()) == count
    return Counter(found["seen"]), found["wrong"]


@pytest.mark.full
def test_mutated_checkpoints_are_opened_or_refused(tmp_path):
    seen, wrong = attack(tmp_path, 0, 300)
    assert wrong == []
    assert seen["hostile_pickle opened"] == 0 and seen["hostile_pickle refused"] > 0
    assert seen["edit_sibling opened"] > 0  # the campaign opens what is still whole


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_mutated_checkpoints_are_opened_or_refused(tmp_path, part):
    seen, wrong = attack(tmp_path, 100_000 + 1000 * part, 1000)
    ends = Counter[str]()
    for kind, count in seen.items():
        ends[kind.rpartition(" ")[2]] += count
    campaigns.record(
        "mutated checkpoints",
        f"{part}",
        right=ends["opened"],
        refused_in_one_line=ends["refused"],
        traceback=ends["raised"],
        hang=ends["hung"],
        code_run=ends["ran"],
    )
    assert wrong == []


# --- no unsafe load anywhere ----------------------------------------------------------------------
FORBIDDEN = {
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "dill.load",
    "joblib.load",
    "marshal.loads",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "torch.jit.load",
    "torch.serialization.add_safe_globals",
    "pandas.read_pickle",
    "pd.read_pickle",
    "shelve.open",
    "eval",
    "exec",
    "__import__",
    "os.system",
    "os.popen",
}


FROM_OURSELVES = {
    "mechint/parallel.py": ["pickle.loads"],
    "mechint/report/measure.py": ["exec"],
    "mechint/explain/code.py": ["exec"],
}
"""Calls on what is ours: a worker reads its plans from its parent's pipe, the gallery runs the
examples of this repository, and the agreement of a written program is that of its text.
"""


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def unsafe_calls(tree: ast.Module) -> list[str]:
    """Calls in a module that would run what a file holds."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("pickle", "marshal", "dill"):
            found.append(f"line {node.lineno}: from {node.module} import")
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        given = {item.arg: item.value for item in node.keywords}
        safe = given.get("weights_only")
        if name == "torch.load" and not (isinstance(safe, ast.Constant) and safe.value is True):
            found.append(f"line {node.lineno}: torch.load without weights_only=True")
        pickled = given.get("allow_pickle")
        allowed = not (isinstance(pickled, ast.Constant) and pickled.value is False)
        if name in ("np.load", "numpy.load") and allowed:
            found.append(f"line {node.lineno}: {name} without allow_pickle=False")
        shell = given.get("shell")
        if name in FORBIDDEN or (isinstance(shell, ast.Constant) and shell.value is True):
            found.append(f"line {node.lineno}: {name}")
        trusted = given.get("trust_remote_code")
        if isinstance(trusted, ast.Constant) and trusted.value is True:
            found.append(f"line {node.lineno}: trust_remote_code=True")
    return found


@pytest.mark.full
def test_nothing_in_the_library_loads_unsafely():
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 100
    found = {}
    for file in files:
        name = str(file.relative_to(ROOT))
        calls = unsafe_calls(ast.parse(file.read_text(encoding="utf-8")))
        ours = FROM_OURSELVES.get(name, [])
        rest = [call for call in calls if call.partition(": ")[2] not in ours]
        if rest:
            found[name] = rest
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "torch.load(p)",
        "torch.load(p, weights_only=False)",
        "pickle.loads(b)",
        "eval(x)",
        "yaml.load(f, Loader=L)",
        "np.load(p)",
        "from pickle import loads",
        "f(p, trust_remote_code=True)",
    ],
)
def test_the_scan_sees_what_it_is_for(text):
    assert unsafe_calls(ast.parse(text))
