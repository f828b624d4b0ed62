"""The table of what the slow campaigns came to, and that `make slow` reaches every slow test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


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
