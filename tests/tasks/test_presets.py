"""Presets: what one is said to reach it reaches."""

from __future__ import annotations

import re

import pytest

from mechint.registry import TASKS
from mechint.training import train_many

LINE = re.compile(
    r"test (?:accuracy (?P<low>[\d.]+)(?:–(?P<high>[\d.]+))?%"
    r"|loss (?P<under>under )?(?P<loss>[\de.-]+))"
    r" by step (?P<step>\d+), seeds? \d+(?:–\d+)?(?:; at least \d+% in \d of them)?"
    r"(?:; accuracy of the injected task (?P<injected>[\d.]+)%)?"
)


def said(name: str, preset: str) -> re.Match[str]:
    match = LINE.fullmatch(TASKS[name].preset_results[preset])
    assert match is not None, TASKS[name].preset_results[preset]
    return match


def holds(line: re.Match[str], accuracy: float | None, loss: float, slack: float) -> bool:
    """Return whether a model of seed 0 is within what the line says; `slack` in shares."""
    if line["loss"]:
        return loss <= float(line["loss"]) * (1 if line["under"] else 1.3)
    assert accuracy is not None
    low, high = float(line["low"]), float(line["high"] or line["low"])
    return low / 100 - slack <= accuracy <= high / 100 + slack


MEASURED = sorted((name, preset) for name in TASKS for preset in TASKS[name].preset_results)


def test_results_are_those_of_presets() -> None:
    for name, preset in MEASURED:
        steps = TASKS[name].presets[preset]["train.steps"]
        assert int(said(name, preset)["step"]) <= steps, (name, preset)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "preset"), MEASURED)
def test_a_preset_reaches_what_it_says(name: str, preset: str) -> None:
    from mechint.cli.train import preset_settings
    from mechint.sweeps.planning import make_spec

    line = said(name, preset)
    (run,) = train_many([make_spec(name, preset_settings(name, preset), {"seed": 0})])
    assert run.final["step"] <= int(line["step"])
    assert holds(line, run.final.get("test.accuracy"), run.final["test.loss"], 0.02)
    if line["injected"] is not None:
        assert run.final["test.greedy.accuracy.task"] >= float(line["injected"]) / 100 - 0.02
