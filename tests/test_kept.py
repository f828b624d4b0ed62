"""Kept numbers state what made them, and pages name tests that are there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.kept import keep_row, made
from mechint.registry import PROBES

ROOT = Path(__file__).parents[1]
KEPT = [
    ROOT / "docs" / "generated" / "trained-truth.json",
    *sorted((ROOT / "results").glob("*/*/study.json")),
    *sorted((ROOT / "benchmarks" / "results").rglob("*.json")),
]


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_kept_table_states_its_command_and_commit(file: Path) -> None:
    kept = json.loads(file.read_text(encoding="utf-8"))
    origins = kept.get("origins", [kept])
    assert origins
    for one in origins:
        assert one["command"] and re.fullmatch("[0-9a-f]{7,40}", one["commit"])


def test_every_row_of_the_calibration_states_its_commit() -> None:
    kept = json.loads(
        (ROOT / "docs" / "generated" / "calibration.json").read_text(encoding="utf-8")
    )
    assert set(kept["commits"]) == set(kept["columns"]["probe"])
    assert all(re.fullmatch("[0-9a-f]{7,40}", one) for one in kept["commits"].values())


def test_a_row_that_is_measured_again_leaves_the_others(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    for name, count in (("a", 1), ("b", 2), ("a", 3)):
        keep_row(file, {"count": count}, made("count", name))
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert kept["rows"] == {"a": {"count": 3}, "b": {"count": 2}}
    assert sorted(one["of"] for one in kept["origins"]) == ["a", "b"]


def test_the_settings_of_a_kept_calibration_exist() -> None:
    kept = json.loads(
        (ROOT / "docs" / "generated" / "calibration.json").read_text(encoding="utf-8")
    )
    for name, choices in kept["settings"].items():
        for one in choices:
            for settings in (one["plants"], one["controls"]):
                assert settings.items() <= PROBES[name].from_dict(settings).to_dict().items()


def test_the_tests_that_a_page_names_are_there() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)`", page)
    assert len(named) > 9 and not [name for name in named if not (ROOT / name).is_file()]
