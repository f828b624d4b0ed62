"""Command lines that nobody should type: each ends with a status of ours, without a traceback."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from mechint.config import ModelConfig, TrainConfig
from mechint.registry import PROBES, TASKS
from tests.cli.conftest import Command

VALUES = (
    "1000000000",
    "-1",
    "NaN",
    "1e400",
    "9" * 5000,
    "[" * 3000,
    "[[1]]",
    "{}",
    "",
    "none",
    "a,b",
    "1,2",
    "0",
    "true",
    "\u202e\x1b[31m",
    "0:3",
)
TINY = ("d_model=8", "n_heads=1", "d_mlp=8", "steps=2", "batch_size=4", "eval_examples=4")


def settings_of(task: str, dice: random.Random) -> str:
    """A ``NAME=VALUE`` for a field of the task, the model or the training."""
    owner = dice.choice(["task", "model", "train"])
    cls = {"task": TASKS[task], "model": ModelConfig, "train": TrainConfig}[owner]
    field = dice.choice([field.name for field in dataclasses.fields(cls)] or ["p"])
    return f"{owner}.{field}={dice.choice(VALUES)}"


def line(dice: random.Random, out: Path) -> list[str]:
    """One command line."""
    task = dice.choice(["modular-arithmetic", "listops", "remainders", "composition", "zzz"])
    hostile = settings_of(task if task != "zzz" else "listops", dice)
    tiny = [part for text in TINY for part in ("--set", text)]
    command = dice.choice(["train", "train", "sweep", "tasks", "probes", "analyze", "checkpoint"])
    if command == "train":
        seeds = dice.choice([[], ["--seeds", dice.choice(["0:2", "0:100000000000", "x", "3,3"])]])
        return ["train", task, *tiny, "--set", hostile, *seeds, "--out", str(out)]
    if command == "sweep":
        over = f"{dice.choice(['seed', 'lr', 'p', 'x'])}={dice.choice(VALUES)}"
        return ["sweep", task, *tiny, "--over", over, "--workers", "1", "--out", str(out)]
    if command == "tasks":
        return ["tasks", task, "--set", hostile, "--examples", dice.choice(["2", "-1", "10000000"])]
    if command == "probes":
        return ["probes", dice.choice([*sorted(PROBES), "x", ""])]
    place = dice.choice([str(out), "/dev/null", "", "a" * 5000, "."])
    if command == "analyze":
        return ["analyze", place, "--probe", dice.choice(["norms", "zzz"]), "--set", hostile]
    return ["checkpoint", "info", place]


SEEDS = [range(start, start + 20) for start in range(0, 60, 20)]


@pytest.mark.parametrize(
    "seeds", [*SEEDS, pytest.param(range(1000, 2000), marks=pytest.mark.slow)], ids=str
)
def test_hostile_lines(mechint: Command, tmp_path: Path, seeds: range) -> None:
    """An error that is not ours would be raised by the runner."""
    for seed in seeds:
        arguments = line(random.Random(seed), tmp_path / str(seed))
        result = mechint(*arguments)
        shown = f"seed {seed}: {[one[:60] for one in arguments]}: {result.output[-500:]}"
        assert result.exit_code in (0, 1, 2) and "Traceback" not in result.output, shown
        assert max(map(len, result.stderr.splitlines()), default=0) < 1000, shown
