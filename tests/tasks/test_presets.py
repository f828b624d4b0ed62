"""Presets: every family has them, and what the fast one is said to reach it reaches."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mechint.registry import TASKS
from mechint.task import FiniteTask
from mechint.training import train_many

RESULTS = Path(__file__).parents[2] / "results" / "tasks"
LINE = re.compile(
    r"test (?:accuracy (?P<low>[\d.]+)(?:–(?P<high>[\d.]+))?%"
    r"|loss (?P<under>under )?(?P<loss>[\de.-]+))"
    r" by step (?P<step>\d+), seeds? \d+(?:–\d+)?(?:; at least \d+% in \d of them)?"
    r"(?:; accuracy of the injected task (?P<injected>[\d.]+)%)?"
)


def said(name: str) -> re.Match[str]:
    match = LINE.fullmatch(TASKS[name].preset_results["fast"])
    assert match is not None, TASKS[name].preset_results["fast"]
    return match


def holds(line: re.Match[str], accuracy: float | None, loss: float, slack: float) -> bool:
    """Whether a model of seed 0 is within what the line says; `slack` in shares."""
    if line["loss"]:
        return loss <= float(line["loss"]) * (1 if line["under"] else 1.3)
    assert accuracy is not None
    low, high = float(line["low"]), float(line["high"] or line["low"])
    return low / 100 - slack <= accuracy <= high / 100 + slack


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_family_has_a_fast_and_a_paper_preset(name: str) -> None:
    kind = TASKS[name]
    assert {"fast", "paper"} <= set(kind.presets)
    assert set(kind.preset_results) <= set(kind.presets)
    assert "fast" in kind.preset_results, "it was trained"
    assert int(said(name)["step"]) <= kind.presets["fast"]["train.steps"]


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_kept_page_of_the_preset_shows_what_it_says(name: str) -> None:
    page = json.loads((RESULTS / name / "page.json").read_text(encoding="utf-8"))
    presets = TASKS[name].presets["fast"]
    fields = {key[5:]: value for key, value in presets.items() if key.startswith("task.")}
    task = TASKS[name].from_dict(fields)
    if isinstance(task, FiniteTask):  # others have the chance level of the examples drawn
        chance = [f"chance {one.accuracy:.1%}" for one in task.chance.values()]
        shown = page["scores"].values()
        if not all(text.endswith(one) for text, one in zip(shown, chance, strict=True)):
            pytest.skip("the chance level is not the page's: another preset, or other examples")
    last = {
        trace["yaxis"]: (trace["x"][-1], trace["y"][-1])
        for trace in page["figures"]["training"]["spec"]["data"]
        if trace["name"] == "test"
    }
    step, first = last["y"]
    line = said(name)
    accuracy = first if "y2" in last else None  # a lone axis is that of a loss
    assert step <= int(line["step"]) and holds(line, accuracy, last.get("y2", last["y"])[1], 0.001)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_fast_preset_reaches_what_it_says(name: str) -> None:
    from mechint.cli.train import preset_settings
    from mechint.sweeps.plan import make_spec

    line = said(name)
    (run,) = train_many([make_spec(name, preset_settings(name, "fast"), {"seed": 0})])
    assert run.final["step"] <= int(line["step"])
    assert holds(line, run.final.get("test.accuracy"), run.final["test.loss"], 0.02)
    if line["injected"] is not None:
        assert run.final["test.greedy.accuracy.task"] >= float(line["injected"]) / 100 - 0.02
