"""No command prints a line that is wider than the terminal, nor breaks a word to keep within it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mechint.cli import main
from mechint.shipped import example
from tests.cli.conftest import Command

WIDTHS = (60, 80, 120)
MODELS = ("clock.pt", "digits.pt", "induction.pt", "maximum.pt", "pizza.pt")
TRAIN = "modular-arithmetic --set p=5 --set steps=20"
QUICK = {
    "lists": ("tasks", "tasks groups", "tasks listops", "probes", "probes das"),
    "words": ("help", "help superfluous"),
    "models": (
        "checkpoint info clock.pt",
        "table clock.pt pizza.pt --probe lens",
        "analyze clock.pt --probe lens",
        "analyze clock.pt --probe lens --full",
    ),
}
SLOW = {
    "training": (
        f"train {TRAIN} --out run",
        f"train {TRAIN} --seeds 0:2 --out runs",
        f"sweep {TRAIN} --over d_model=8,16 --workers 1 --out sweep",
        "sweep sweep",
        "table sweep --transition d_model",
        "table run --over-steps",
        "checkpoint info run",
    ),
    "clock": ("analyze clock.pt", "explain clock.pt --certify", "compare clock.pt pizza.pt"),
    "programs": ("analyze digits.pt", "explain digits.pt", "explain maximum.pt"),
    "heads": ("analyze induction.pt",),
}
LATER = {name: pytest.mark.slow if name == "clock" else pytest.mark.full for name in SLOW}
GROUPS = [*QUICK, *(pytest.param(name, marks=mark) for name, mark in LATER.items())]


@pytest.mark.parametrize("group", GROUPS)
def test_no_line_is_wider_than_the_terminal(
    mechint: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, group: str
) -> None:
    for name, value in (("TTY_COMPATIBLE", "1"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    words = dict[tuple[str, int], set[str]]()
    for width in (*WIDTHS, *[1000] * (group == "lists")):
        (tmp_path / str(width)).mkdir()
        monkeypatch.chdir(tmp_path / str(width))
        monkeypatch.setenv("COLUMNS", str(width))
        for name in MODELS:
            Path(name).symlink_to(example(name))
        for command in (QUICK | SLOW)[group]:
            result = mechint(*command.split())
            assert result.exit_code == 0, (command, result.stderr)
            text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", result.stdout)
            wide = [line for line in text.splitlines() if len(line.rstrip()) > width]
            assert not wide, (command, width, wide[0])
            words[command, width] = {word.strip("()=") for word in text.split()}
    # lists are whole at any width; others print less where there is less room
    for command in QUICK["lists"] if group == "lists" else ():
        for width in WIDTHS:
            broken = words[command, width] - words[command, 1000] - {"", "name", "value"}
            assert not broken, (command, width)


def commands(group: click.Group, words: str = "mechint") -> Iterator[tuple[str, click.Command]]:
    """The command and those below it, with what calls each."""
    yield words, group
    for name, one in group.commands.items():
        if isinstance(one, click.Group):
            yield from commands(one, f"{words} {name}")
        else:
            yield f"{words} {name}", one


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_of_a_help_is_wider_than_the_terminal(width: int) -> None:
    for words, command in commands(main):
        context = click.Context(command, info_name=words, terminal_width=width - 2)
        lines = command.get_help(context).splitlines()
        assert max(map(len, lines)) <= width, (words, max(lines, key=len))
