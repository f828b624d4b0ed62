"""Kept numbers know their origin: every table says what made it, and what it names is there."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import pytest

from mechint.registry import PROBES
from mechint.training.origins import (
    BY_HAND,
    ROOT,
    Origin,
    comment,
    digest_of,
    older,
    origins_in,
    write_page,
)

PAGES = ("calibration", "trained-truth", "what-models-run", "benchmarks", "published")
KEPT = [
    *(ROOT / "docs" / f"{name}.md" for name in PAGES),
    *(ROOT / "docs" / f"{name}.json" for name in ("calibration", "trained-truth")),
    *sorted((ROOT / "results").glob("*/*/study.json")),
    *sorted((ROOT / "results").glob("*/page.json")),
    *sorted((ROOT / "results" / "probes").glob("*/page.json")),
    *sorted((ROOT / "benchmarks" / "results").rglob("*.json")),
]


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_kept_table_states_command_commit_and_sources(file: Path) -> None:
    origins = origins_in(file.read_text(encoding="utf-8"))
    assert origins
    for one in origins:
        assert one.command and re.fullmatch("[0-9a-f]{7,40}", one.commit)
        assert one.sources  # some of them were programs that are no longer kept


def test_tables_older_than_their_sources_are_named() -> None:
    """For people to read: `pytest -rP tests/test_origins.py`. The site warns on those pages."""
    for file in KEPT:
        for one in older(file.read_text(encoding="utf-8")):
            sys.stdout.write(f"{file.relative_to(ROOT)}: older than its sources: {one}\n")


def test_code_makes_a_table_older_and_words_do_not(tmp_path: Path) -> None:
    source = tmp_path / "rule.py"
    source.write_text("LEVEL = 0.01\n")
    page = "# Table\n" + comment([Origin.now("make it", ["rule.py"], "a row", tmp_path)])
    source.write_text('"""The rule."""\nimport math\n\nLEVEL = 0.01  # fixed\n')
    assert older(page, tmp_path) == []
    source.write_text("LEVEL = 0.05\n")
    assert [one.of for one in older(page, tmp_path)] == ["a row"]
    (tmp_path / "moved").mkdir()
    source.rename(tmp_path / "moved" / "other.py")
    same = digest_of(["moved"], tmp_path)
    assert same == Origin.now("make it", ["moved/other.py"], root=tmp_path).digest


def test_words_by_hand_stay_where_a_command_writes_again(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write_page(page, "# First\n")
    page.write_text(f"{page.read_text()}\n{BY_HAND}\nA remark.\n")
    write_page(page, "# Second\n")
    assert page.read_text() == f"# Second\n\n{BY_HAND}\nA remark.\n"


def test_the_settings_of_a_kept_calibration_exist() -> None:
    kept = json.loads((ROOT / "docs" / "calibration.json").read_text(encoding="utf-8"))
    for name, choices in kept["settings"].items():
        for one in choices:
            PROBES[name].from_dict(one["plants"])
            PROBES[name].from_dict(one["controls"])


def test_the_tests_that_a_page_names_are_there() -> None:
    """Each name that begins with test_, in the file that stands before it, here or in its row."""
    tests = ROOT / "tests"
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    for row in page.splitlines():
        file: Path | None = None
        for name in re.findall(r"`(?:tests/)?([\w/]*(?:\.py)?(?:::)?\w*)`", row):
            if "test_" not in name:
                continue
            place, _, function = name.rpartition("::") if "::" in name else ("", "", name)
            if place or name.endswith(".py"):
                beside = file.parent if file is not None else tests
                named = [base / (place or name) for base in (tests, beside)]
                found = [one for one in named if one.is_file()]
                assert found, f"{name}: there is no such file"
                file = found[0]
            if function.startswith("test_") and not function.endswith(".py"):
                assert file is not None, row
                functions = {
                    node.name
                    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
                    if isinstance(node, ast.FunctionDef)
                }
                assert function in functions, f"{file.name} has no {function}"
