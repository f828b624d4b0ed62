"""Fixtures of the tests of the commands: a runner, and a checkpoint with a planted mechanism."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mechint.checkpoints import save_checkpoint
from mechint.cli import main
from mechint.planted import modular_addition
from mechint.subject import Subject

Command = Callable[..., Result]


def invoke(*arguments: object) -> Result:
    """Run ``mechint`` with the given arguments; exceptions that are no exit of ours fail the
    test.
    """
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def mechint() -> Command:
    return invoke


def save(subject: Subject, path: Path, **more: Any) -> Path:
    """The subject's model as a checkpoint of ours at `path`."""
    stated: dict[str, Any] = {"task": subject.task, "step": 0, "metrics": {}, **more}
    config, weights = subject.model.config, subject.model.weights()
    save_checkpoint(path, config=config, weights=weights, **stated)
    return path


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that adds modulo 23 by the frequencies 3, 7 and 10."""
    path = tmp_path_factory.mktemp("planted") / "ckpt.pt"
    subject = modular_addition(p=23, frequencies=(3, 7, 10)).subject
    return save(subject, path, step=12, metrics={"test.accuracy": 1.0})


def one_line(result: Result) -> str:
    """The single line on stderr of a command that refused its input, without the program's name."""
    assert result.exit_code == 2, result.output
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("mechint: ")
    assert "Traceback" not in result.output
    return lines[0].removeprefix("mechint: ")
