"""docs/checkpoint-formats.md says what the readers do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mechint.checkpoints import configurations, load_checkpoint
from mechint.checkpoints.formats import transformer_lens
from mechint.checkpoints.mapping import load_mapping
from mechint.checkpoints.open import format_names
from mechint.cli.opening import Opening
from mechint.files import MAX_DEPTH, MAX_VALUES
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


@pytest.mark.parametrize("name", list(BASES))
def test_task_and_split_are_stated_where_the_table_says_so(name, tmp_path):
    opened = load_checkpoint(BASES[name](tmp_path))
    row = next(row for row in rows("What is read") if row[0] == f"`{opened.format}`")
    task, split = row[3], row[4]
    if task == "not stated":
        assert opened.task is None
    if split in ("not stated", "drawn without a seed: not known"):
        assert opened.split is None
    rules = {
        "torch.randperm": "torch-randperm",
        "random.seed": "python-shuffle",
        "its own": "mechint",
    }
    if opened.split is not None:
        assert any(
            word in split and opened.split.rule.startswith(rule) for word, rule in rules.items()
        )


@pytest.mark.parametrize("name", list(BASES))
def test_every_assumption_has_a_row(name, tmp_path):
    opened = load_checkpoint(BASES[name](tmp_path))
    listed = {row[0].strip("`") for row in rows("What is assumed")}
    assert set(opened.assumed) <= listed


def test_defaults_are_those_of_the_reader():
    taken = {row[0].strip("`"): row[1] for row in rows("What is assumed")}
    for name, item in (transformer_lens.ASSUMED | transformer_lens.UNSEEN).items():
        assert taken[name].startswith("none" if item.value is None else f"`{item.value}`")
    assert float(taken["eps"]) == transformer_lens.EPS.value
    assert transformer_lens.SCALE.value in taken["attn_scale"]
    assert taken["architecture"] == transformer_lens.ARCHITECTURE.value


def test_names_and_limits_are_those_of_the_code():
    assert all(f"`{name}`" in TEXT for name in configurations.NAMES)
    assert f"deeper than {MAX_DEPTH} levels or more than {MAX_VALUES:,}" in TEXT


def test_the_commands_set_what_they_seem_to():
    commands = re.findall(r"^    mechint .*$", TEXT, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        settings = tuple(re.findall(r"--set (\S+)", command))
        parameters, model, _ = Opening(Path(), None, settings).sorted
        assert model and set(parameters) <= {"p"}


def test_the_mapping_of_the_page_can_be_used(tmp_path):
    (text,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "own.yaml").write_text(text)
    mapping = load_mapping(tmp_path / "own.yaml")
    assert mapping.name == "my-lab" and "embed.W_E" in mapping.given["weights"]
