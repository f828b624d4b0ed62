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


def language_model(folder: Path, kind: str = "gpt2") -> None:
    """A small model with random weights, and pairs of prompts beside it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 16, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "max_position_embeddings": 8}
    config = AutoConfig.for_model(kind, **sizes, bos_token_id=0, eos_token_id=1)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    rows = []
    for i in range(64):
        prompts = [[i % 16, (3 * i) % 16, (7 * i + j) % 16] for j in (0, 1)]
        one, other = ({"prompt": p, "answer": (i + j) % 16} for j, p in enumerate(prompts))
        rows.append(one | {"counterfactual": other})
    Path("pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))


@pytest.mark.full
@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox"])  # native, and a bridge
def test_what_a_language_model_proposes_runs(mechint: Command, kind: str) -> None:
    language_model(Path("model"), kind)
    assert [*follow(mechint, ["analyze", "model", "--data", "pairs.jsonl"])]


@pytest.mark.slow
def test_what_the_readme_says_runs_as_does_what_it_proposes(mechint: Command) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    said = re.findall(r"^    mechint (.*?)(?:\s+#.*)?$", text, re.MULTILINE)
    assert {one.split()[0] for one in said} == {"demo", "examples", "analyze", "compare", "explain"}
    language_model(Path("smollm2"))
    for name in ("clock", "pizza"):
        Path(f"{name}.pt").write_bytes(example(f"{name}.pt").read_bytes())
    Path("model.pt").write_bytes(example("clock.pt").read_bytes())
    for one in said:
        if "--task" not in one:  # of a file without one
            assert [*follow(mechint, shlex.split(one) + ["--quick"] * (one == "demo"))]
