"""A checkpoint whose task nobody names: what is said of it before anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mechint.checkpoints import save_checkpoint
from mechint.planted import modular_addition
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
    shown = mechint("analyze", bare, "--probe", "embedding").stdout
    opening = " ".join(shown.partition("Language model")[0].split())  # lines are wrapped
    assert opening.startswith("warning: no task is known, so only probes that need none apply; ")
    assert "--task modular-arithmetic --set p=23" in opening
    named = mechint(
        "analyze", bare, "--probe", "embedding", "--task", "modular-arithmetic", "--set", "p=23"
    )
    assert "no task is known" not in named.output


@pytest.mark.full
def test_the_first_next_step_names_the_task_that_fits(mechint: Command, bare: Path) -> None:
    found = json.loads(mechint("analyze", bare, "--seed", 3, "--json").stdout)["accounts"][0]
    task = "--task modular-arithmetic --set p=23"
    assert found["next"][0] == f"mechint analyze {bare} {task} --seed 3"
    again = mechint("analyze", bare, "--probe", "norms", *task.split())
    assert again.exit_code == 0 and again.stdout.startswith("Addition mod 23, one layer")
