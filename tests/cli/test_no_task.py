"""A checkpoint whose task nobody names: what is said of it before anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from mechint.checkpoints import load_checkpoint, save_checkpoint
from mechint.planted import modular_addition
from mechint.report import head_of
from tests.cli.conftest import Command


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The weights of an addition modulo 23 without the task's name."""
    model = modular_addition(p=23, frequencies=(3, 7, 10)).subject.model
    save_checkpoint(
        tmp_path / "bare.pt",
        config=model.config,
        weights=model.weights(),
        task=None,
        step=0,
        metrics={},
    )
    return tmp_path / "bare.pt"


def test_analyze_opens_with_what_a_task_would_add(mechint: Command, bare: Path) -> None:
    shown = mechint("analyze", bare, "--probe", "embedding").stdout.splitlines()
    assert shown[0].startswith("no task is known, so only probes that need none apply; name it")
    assert "--task modular-arithmetic --set p=23" in shown[0]
    named = mechint(
        "analyze", bare, "--probe", "embedding", "--task", "modular-arithmetic", "--set", "p=23"
    )
    assert "no task is known" not in named.output


def test_the_first_next_step_names_the_task_that_fits(bare: Path) -> None:
    opened = load_checkpoint(bare)
    steps = list(head_of(opened, opened.subject(), [], options=" --seed 3")["next_steps"])
    assert steps[0] == f"mechint analyze {bare} --task modular-arithmetic --set p=23 --seed 3"
