"""Presets: every family has them, and what the fast one is said to reach it reaches."""

from __future__ import annotations

import re

import pytest

from mechint.registry import TASKS
from mechint.training import train_many


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_family_has_a_fast_and_a_paper_preset(name: str) -> None:
    kind = TASKS[name]
    assert {"fast", "paper"} <= set(kind.presets)
    assert set(kind.preset_results) <= set(kind.presets)
    assert "fast" in kind.preset_results, "it was trained"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_fast_preset_reaches_what_it_says(name: str) -> None:
    from mechint.cli.train import preset_settings
    from mechint.sweeps.plan import make_spec

    text = TASKS[name].preset_results["fast"]
    (run,) = train_many([make_spec(name, preset_settings(name, "fast"), {"seed": 0})])
    match = re.fullmatch(
        r"test (accuracy|loss) ([\d.e-]+)(%?) at step (\d+)"
        r"(?:, accuracy of the injected task ([\d.]+)%)?",
        text,
    )
    assert match is not None, text
    said = float(match[2]) / (100 if match[3] else 1)
    if match[1] == "accuracy":
        assert said >= 0.95 and run.final["test.accuracy"] >= said - 0.02
    else:
        assert run.final["test.loss"] <= 1.3 * said
    if match[5] is not None:
        assert run.final["test.greedy.accuracy.task"] >= float(match[5]) / 100 - 0.02
    assert run.final["step"] <= 2 * int(match[4])
