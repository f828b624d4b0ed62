"""Every command that a command proposes as the next, followed to depth two: none refuses, proposes
itself, fills less than half of a table, or names what an installed wheel does not have.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mechint.shipped import example
from tests.cli.conftest import Command
from tests.cli.test_plugin import own  # noqa: F401  (a fixture)

MODELS = ("clock.pt", "digits.pt", "induction.pt", "maximum.pt", "pizza.pt")


def proposed(text: str) -> list[list[str]]:
    """The arguments of each command after "next:", with its lines joined."""
    lines = re.sub(r" \\\n\s+", " ", text).splitlines()
    found = [line.partition("next: mechint ")[2] for line in lines if "next: mechint " in line]
    return [shlex.split(one) for one in found]


def follow(mechint: Command, asked: list[str], depth: int = 2) -> Iterator[list[str]]:
    """Run a command and those that it proposes; yields each, with what is wrong about it raised."""
    result = mechint(*asked)
    assert result.exit_code == 0, (asked, result.stderr)
    assert "docs/" not in result.output, asked
    if asked[0] == "table":
        rows = json.loads(mechint(*asked, "--json").stdout)["rows"]
        columns = {name for row in rows for name in row}
        empty = [n for n in columns if 2 * sum(row.get(n) is None for row in rows) > len(rows)]
        assert not empty, (asked, empty)
    yield asked
    for one in proposed(result.output):
        assert one != asked, asked
        if depth:
            yield from follow(mechint, one, depth - 1)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_what_a_shipped_model_proposes_runs(mechint: Command, name: str) -> None:
    assert len([*follow(mechint, ["analyze", str(example(name))])]) >= 3


@pytest.mark.full
def test_what_two_models_propose_runs(mechint: Command) -> None:
    pair = [str(example(name)) for name in ("clock.pt", "pizza.pt")]
    assert [*follow(mechint, ["compare", *pair])]


@pytest.mark.full
def test_what_training_a_task_of_ones_own_proposes_runs(
    mechint: Command,
    own: Path,  # noqa: F811
) -> None:
    assert (own / "own_parity.py").is_file()
    asked = ["train", "parity", "--plugin", "own_parity.py:Parity", "--out", "run"]
    assert len([*follow(mechint, [*asked, "--set", "n=6", "--set", "steps=150"])]) >= 3


@pytest.mark.full
def test_what_a_sweep_proposes_runs(mechint: Command) -> None:
    small = ["p=7", "steps=60", "model.d_model=16", "model.d_mlp=16", "model.n_heads=2"]
    asked = ["sweep", "modular-arithmetic", "--over", "seed=0:2", "--out", "sweep"]
    asked += [word for one in small for word in ("--set", one)]
    assert len([*follow(mechint, asked)]) >= 2


@pytest.mark.full
def test_what_a_language_model_proposes_runs(mechint: Command, tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=16, n_positions=8, n_embd=16, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "model")
    rows = [{"prompt": [i % 16, (3 * i) % 16, (7 * i) % 16], "answer": i % 16} for i in range(64)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert [*follow(mechint, ["analyze", "model", "--data", "data.jsonl"])]
