"""Completion of half-typed words, in click and in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from mechint.cli import main
from mechint.registry import PROBES, STUDIES, TASKS

ROOT = Path(__file__).parents[2]
VARIABLE = "_MECHINT_COMPLETE"
PROGRAM = f'#!/bin/sh\nexec "{sys.executable}" -m mechint "$@"\n'


def completed(*words: str) -> list[str]:
    """What the last of `words` can become."""
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


LINES = {
    "mechint train mod": "modular-arithmetic",
    "mechint reproduce cap": "capacity",
    "mechint analyze x --probe das,four": "das,fourier",
    "mechint sw": "sweep",
}
"""A half-typed line, and what its last word becomes."""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes(tmp_path: Path) -> None:
    """The printed script in a real bash, for the words of a line."""
    asked = "".join(
        f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()\n"
        '_mechint_completion mechint; echo "${COMPREPLY[*]}"\n'
        for words in LINES
    )
    script = f'eval "$({VARIABLE}=bash_source mechint)"\ncomplete -p mechint\n{asked}'
    program = tmp_path / "mechint"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, **path},
        cwd=tmp_path,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    first, *answers = done.stdout.splitlines()
    assert "_mechint_completion mechint" in first
    assert answers == list(LINES.values())
