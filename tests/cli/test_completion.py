"""Completion of half-typed words, in click and in a real bash; the scripts of the other shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from mechint.cli import main
from mechint.cli.completion import SHELLS, VARIABLE
from mechint.registry import PROBES, STUDIES, TASKS
from tests.cli.conftest import Command, one_line

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_its_script(mechint: Command, shell: str) -> None:
    script = mechint("completion", shell).stdout
    assert f"{VARIABLE}={shell}_complete" in script and "mechint" in script
    program = shutil.which(shell)
    if program is not None:
        check = subprocess.run([program, "-n"], input=script, text=True, capture_output=True)
        assert check.returncode == 0, check.stderr


def test_an_unknown_shell_is_refused(mechint: Command) -> None:
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in one_line(mechint("completion", "tcsh"))


LINES = {
    "mechint train mod": "modular-arithmetic",
    "mechint reproduce cap": "capacity",
    "mechint analyze x --probe das,four": "das,fourier",
    "mechint sw": "sweep",
}
"""A half-typed line, and what its last word becomes."""


def in_shell(folder: Path, *arguments: str) -> list[str]:
    """The lines that a shell prints in `folder`, where `mechint` is a program."""
    program = folder / "mechint"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    done = subprocess.run(
        arguments,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        cwd=folder,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes(tmp_path: Path) -> None:
    """The printed script in a real bash, for the words of a line."""
    asked = "".join(
        f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()\n"
        '_mechint_completion mechint; echo "${COMPREPLY[*]}"\n'
        for words in LINES
    )
    script = f'eval "$(mechint completion bash)"\ncomplete -p mechint\n{asked}'
    first, *answers = in_shell(tmp_path, "bash", "-c", script)
    assert "_mechint_completion mechint" in first
    assert answers == list(LINES.values())


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish_completes(tmp_path: Path) -> None:
    """The printed script in a real fish, by its own `complete -C`."""
    asked = "; ".join(f"complete -C '{line}'" for line in LINES)
    script = f"mechint completion fish | source; {asked}"
    found = in_shell(tmp_path, "fish", "--no-config", "-c", script)
    assert [line.partition("\t")[0] for line in found] == list(LINES.values())


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
def test_zsh_completes(tmp_path: Path) -> None:
    """The printed script in a real zsh: what its function hands to the shell."""
    asked = "".join(f"words=({line}); CURRENT=${{#words}}; _mechint_completion\n" for line in LINES)
    # outside of the line editor the shell has no `compadd`; ours prints what it is given
    hands = 'compadd() { print -r -- "${(P)${@[-1]}}" }; _describe() { compadd "$3" }\n'
    script = f'compdef() {{ : }}\neval "$(mechint completion zsh)"\n{hands}{asked}'
    found = in_shell(tmp_path, "zsh", "-f", "-c", script)
    assert [line.partition(":")[0] for line in found] == list(LINES.values())
