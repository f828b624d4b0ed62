"""Thousands of damaged and hostile checkpoints: each is opened or refused in one line, in bounded
time and memory, and none runs code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("mechint", "tasks", "probes", "benchmarks", "examples")


NAMES = {
    "all": "mutated checkpoints",
    "mappings": "mutated mappings",
    "modules": "mutated pickled modules",
}


def attack(
    folder: Path, first: int, count: int, campaign: str = "all"
) -> tuple[Counter[str], list[str]]:
    """The ends that `count` mutants from seed `first` on came to, counted, opened in another
    process, and what was wrong.
    """
    words = [str(folder), str(first), str(count), campaign]
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


@pytest.mark.full
@pytest.mark.parametrize("campaign", ["mappings", "modules"])
def test_mappings_and_modules_of_strangers_are_opened_or_refused(tmp_path, campaign):
    seen, wrong = attack(tmp_path, 55_000, 60, campaign)
    assert wrong == []
    assert len({end.rpartition(" ")[2] for end in seen}) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "campaign", "count"),
    [*((part, "all", 1000) for part in range(10)), (55, "mappings", 1000), (56, "modules", 100)],
)
def test_many_mutated_checkpoints_are_opened_or_refused(tmp_path, part, campaign, count):
    _, wrong = attack(tmp_path, 100_000 + 1000 * part, count, campaign)
    assert wrong == []


def test_nothing_in_the_library_asks_to_load_unsafely():
    """Calls that run what a file holds are ruff's to find; these are arguments."""
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 100
    for argument in ("weights_only=False", "allow_pickle=True", "trust_remote_code=True"):
        assert [file for file in files if argument in file.read_text(encoding="utf-8")] == []
