"""The table of what the slow campaigns came to, and that `make slow` reaches every slow test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import campaigns

ROOT = Path(__file__).parents[1]


def test_rows_of_campaigns_that_did_not_run_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"before\n{campaigns.BEGIN}\n{campaigns.END}\nafter\n")
    monkeypatch.setenv("MECHINT_CAMPAIGNS", str(tmp_path / "first"))
    campaigns.record("SIGKILLs of a run", resumed=100)
    campaigns.main(tmp_path / "first", document)
    monkeypatch.setenv("MECHINT_CAMPAIGNS", str(tmp_path / "second"))
    for part in ("0", "1"):
        campaigns.record("mutated checkpoints", part, right=300, refused_in_one_line=699, hang=1)
    campaigns.main(tmp_path / "second", document)
    lines = document.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "| mutated checkpoints | 2,000 | 600 | 1,398 | 0 | 0 | 2 | 0 | 0 |" in lines
    assert "| SIGKILLs of a run | 100 | 0 | 0 | 100 | 0 | 0 | 0 | 0 |" in lines
    assert "| hostile command lines | not run |  |  |  |  |  |  |  |" in lines


def test_make_slow_reaches_every_slow_test() -> None:
    text = (ROOT / "Makefile").read_text()
    parts = dict(re.findall(r"^SLOW_(\w+) := (.+)$", text, re.MULTILINE))
    listed = re.search(r"^SLOW := (.+)$", text, re.MULTILINE)
    assert listed is not None
    assert set(listed[1].split()) == set(parts)
    places = " ".join(parts.values()).split()
    mark = "@pytest.mark." + "slow"
    slow = [file for file in (ROOT / "tests").rglob("test_*.py") if mark in file.read_text()]
    assert len(slow) > 10
    for file in slow:
        name = str(file.relative_to(ROOT))
        assert any(name == place or name.startswith(f"{place}/") for place in places), name
