"""docs/checkpoint-formats.md says what the readers do."""

from __future__ import annotations

import re
from pathlib import Path

from mechint.checkpoints import load_checkpoint
from mechint.checkpoints.mapping import load_mapping
from mechint.checkpoints.open import format_names
from tests.checkpoints.bases import BASES

TEXT = (Path(__file__).parents[2] / "docs" / "checkpoint-formats.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head."""
    part = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_format_has_a_row():
    named = [row[0].strip("`") for row in rows("What is read")]
    assert sorted(named) == sorted(format_names())


def test_the_mapping_of_the_page_can_be_used(tmp_path):
    (text,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "own.yaml").write_text(text)
    mapping = load_mapping(tmp_path / "own.yaml")
    assert mapping.name == "my-lab" and "embed.W_E" in mapping.layout.table


def test_every_assumption_has_a_row_and_every_format_a_plant(tmp_path):
    """Hugging Face's are held by tests of their own (`test_one_reader`)."""
    listed = {row[0].strip("`") for row in rows("What is assumed")}
    opened = set()
    for name, made in BASES.items():
        (tmp_path / name).mkdir()
        checkpoint = load_checkpoint(made(tmp_path / name))
        assert set(checkpoint.assumed) <= listed
        opened.add(checkpoint.format)
    assert opened == set(format_names()) - {"huggingface"}
