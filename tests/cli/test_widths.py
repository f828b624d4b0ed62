"""No command prints a line that is wider than the terminal, nor breaks a word to keep within it."""

from __future__ import annotations

import re
from collections import defaultdict
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
GROUPS = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


@pytest.mark.parametrize("group", GROUPS)
def test_no_line_is_wider_than_the_terminal(
    mechint: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, group: str
) -> None:
    for name, value in (("TTY_COMPATIBLE", "1"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    words = defaultdict[str, list[set[str]]](list)
    for width in (1000, *WIDTHS) if group == "lists" else WIDTHS:
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
            words[command].append({word.strip("()=") for word in text.split()} - {""})
    for command in QUICK["lists"] if group == "lists" else ():  # others print less in less room
        assert all(some <= words[command][0] | {"name", "value"} for some in words[command])


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_of_a_help_is_wider_than_the_terminal(width: int) -> None:
    inner = main.commands["checkpoint"].commands  # type: ignore[attr-defined]
    for command in (main, *main.commands.values(), *inner.values()):
        lines = command.get_help(click.Context(command, terminal_width=width - 2)).splitlines()
        assert max(map(len, lines)) <= width, max(lines, key=len)


@pytest.mark.parametrize("columns", ["0", "1"])
def test_a_terminal_of_hardly_any_columns_is_printed_to(
    mechint: Command, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """None are taken for eighty; in one every word has a line."""
    monkeypatch.setenv("COLUMNS", columns)
    assert "fourier" in mechint("probes", "fourier").stdout
