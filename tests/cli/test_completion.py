"""Completion of half-typed words, in click and in a real bash."""

from __future__ import annotations

from click.shell_completion import ShellComplete

from mechint.cli import main
from mechint.registry import PROBES, STUDIES, TASKS

VARIABLE = "_MECHINT_COMPLETE"


def completed(*words: str) -> list[str]:
    """The completions of the last of `words`."""
    found = ShellComplete(main, {}, "mechint", VARIABLE).get_completions([*words[:-1]], words[-1])
    return [item.value for item in found]


def test_names_of_the_registries() -> None:
    assert completed("train", "") == TASKS.names()
    assert completed("calibrate", "") == PROBES.names()
    assert completed("reproduce", "") == STUDIES.names()
    assert completed("tasks", "list") == ["listops", "listops-triplets"]
    assert completed("analyze", "x.pt", "--probe", "fo") == ["fourier"]
    assert completed("analyze", "x.pt", "--task", "remain") == ["remainders"]
    assert completed("analyze", "x.pt", "--probe", "das,fo") == ["das,fourier"]
    assert "das,das" not in completed("analyze", "x.pt", "--probe", "das,")
    assert completed("train", "listops", "--log", "ten") == ["tensorboard"]
    assert completed("sweep", "modular") == ["modular-arithmetic"]
