"""``mechint tasks``, ``mechint probes``, help, and the small words of the command line."""

from __future__ import annotations

import json

import pytest
import torch

from mechint.cli import main
from mechint.registry import PROBES, TASKS
from tests.cli.conftest import Command


@pytest.mark.parametrize(
    "command",
    [
        [],
        *([name] for name in main.commands),
        ["checkpoint", "info"],
        ["gallery", "build"],
    ],
    ids=" ".join,
)
def test_every_command_has_help(mechint: Command, command: list[str]) -> None:
    result = mechint(*command, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: mechint")


def test_lists_name_everything(mechint: Command) -> None:
    names, topics = [], []
    for line in mechint("tasks").stdout.splitlines():
        if line.startswith("  ") and line[2] != " ":
            names.append(line.split()[0])
        elif line and line[0] != " ":
            topics.append(line)
    assert sorted(names) == TASKS.names() and "modular-arithmetic" in names[:7]
    assert topics == ["ARITHMETIC", "GROUPS", "LANGUAGES", "LISTS", "REGRESSION"]
    assert all(
        TASKS[name].topic == topic for topic, held in TASKS.topics().items() for name in held
    )
    assert list(json.loads(mechint("probes", "--json").stdout)) == PROBES.names()


@pytest.mark.parametrize(
    ("kind", "name"), [*(("tasks", n) for n in TASKS), *(("probes", n) for n in PROBES)]
)
def test_every_task_and_probe_shows_itself(mechint: Command, kind: str, name: str) -> None:
    result = mechint(kind, name)
    words = {"tasks": ("parameters", "examples", "controls", "→"), "probes": ("?",)}[kind]
    assert result.exit_code == 0 and all(word in result.stdout for word in ("source", *words))


@pytest.mark.parametrize("name", TASKS.names())
def test_examples_as_json_are_the_task_s_own(mechint: Command, name: str) -> None:
    found = json.loads(
        mechint("tasks", name, "--examples", 4, "--seed", 3, "--split", "test", "--json").stdout
    )
    assert list(found) == ["task", "parameters", "tables", "examples"]
    task = TASKS[name].from_dict(found["parameters"])
    batch = task.sample(4, 3, "test")
    for i, example in enumerate(found["examples"]):
        assert torch.equal(
            torch.tensor(example["tokens"], dtype=batch.tokens.dtype), batch.tokens[i]
        )
        assert torch.equal(
            torch.tensor(example["targets"], dtype=batch.targets.dtype), batch.targets[i]
        )
        assert example["text"] == task.text(batch.tokens[i])


def test_version(mechint: Command) -> None:
    assert mechint("--version").stdout == "mechint 0.2.0\n"
