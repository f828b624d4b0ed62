"""Command lines that nobody should type: each ends with a status of ours, without a traceback."""

from __future__ import annotations

import dataclasses
import random
import signal
import sys
from collections import Counter
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


SECONDS = 60
"""Processor seconds of a line; the slowest takes about one."""


class HangError(Exception):
    """A line took more than `SECONDS`."""


def end_of(mechint: Command, tmp_path: Path, seed: int) -> tuple[str, str]:
    """The end of a line: "right", "refused_in_one_line", "traceback" or "hang"; and the line
    with what it printed.
    """

    def hung(*_: object) -> None:
        raise HangError

    arguments = line(random.Random(seed), tmp_path / str(seed))
    shown = f"seed {seed}: {[argument[:60] for argument in arguments]}"
    before = signal.signal(signal.SIGVTALRM, hung)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        result = mechint(*arguments)
    except HangError:
        return "hang", shown
    except Exception as error:
        return "traceback", f"{shown}: {type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    said = result.stderr.splitlines()
    wrong = "Traceback" in result.output or result.exit_code not in (0, 1, 2)
    if wrong or max(map(len, said or [""])) >= 1000:
        return "traceback", f"{shown}: {result.output[-500:]}"
    return ("right" if result.exit_code == 0 else "refused_in_one_line"), shown


def check(mechint: Command, tmp_path: Path, seeds: range) -> Counter[str]:
    """The ends of the lines, counted; the wrong ones are printed."""
    seen = Counter[str]()
    for seed in seeds:
        end, shown = end_of(mechint, tmp_path, seed)
        seen[end] += 1
        if end in ("hang", "traceback"):
            sys.stdout.write(f"{end}: {shown}\n")
    return seen


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_hostile_lines(mechint: Command, tmp_path: Path, start: int) -> None:
    seen = check(mechint, tmp_path, range(start, start + 20))
    assert set(seen) <= {"right", "refused_in_one_line"}


@pytest.mark.slow
def test_a_thousand_hostile_lines(mechint: Command, tmp_path: Path) -> None:
    seen = check(mechint, tmp_path, range(1000, 2000))
    assert set(seen) == {"right", "refused_in_one_line"}
