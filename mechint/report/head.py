"""What a report opens with: how well the model answers, how it trained, and what to try next."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.figures import Figure, training_curve
from mechint.files import read_json_lines
from mechint.registry import PROBES
from mechint.task import FiniteTask

if TYPE_CHECKING:
    from mechint.checkpoints import Checkpoint
    from mechint.subject import Subject

METRICS = "metrics.jsonl"
MOST_STEPS = 4
"""Commands that a report proposes next, at most."""


def head_of(
    opened: Checkpoint,
    subject: Subject,
    measured: Collection[str],
    command: str = "",
    options: str = "",
) -> dict[str, Any]:
    """The fields of a `Page` that stand before its findings.

    Args:
        measured: names of the probes whose findings follow.
        command: what makes the page again; options: those of ``mechint analyze`` that open the
            model so again, with a space before each.
    """
    return {
        "scores": scores(opened),
        "figures": _training(opened),
        "next_steps": next_steps(opened, subject, measured, options),
        "command": command,
    }


def percent(share: float) -> str:
    """A share of one with as many digits as tell it from 0% and 100%.

    >>> percent(0.873), percent(0.9995), percent(1.0), percent(0.99999999)
    ('87.3%', '99.95%', '100.0%', 'over 99.999%')
    """
    for digits in (1, 2, 3):
        text = f"{share:.{digits}%}"
        if float(text[:-1]) not in (0.0, 100.0) or share in (0.0, 1.0):
            return text
    return "over 99.999%" if share > 0.5 else "under 0.001%"


def scores(opened: Checkpoint) -> dict[str, str]:
    """How well the model answers: name → accuracy beside chance, the test's first where it is
    known, and said of how many answers, trained on and held out, the accuracy of all is.
    """
    performance = opened.performance
    if performance is None:
        return {}
    several = len(performance.accuracy) > 1
    texts: dict[str, str] = {}
    for name, accuracy in performance.accuracy.items():
        examples = performance.examples(name)
        whole = f"all {examples}" if isinstance(opened.task, FiniteTask) else examples
        held_out = performance.held_out.get(name, math.nan)
        parts = [f"test {percent(held_out)}"] if math.isfinite(held_out) else []
        parts += [f"{whole} {percent(accuracy)}" if parts else f"{percent(accuracy)} on {whole}"]
        parts += [f"chance {performance.chance[name]['accuracy']:.1%}"]
        texts[f"accuracy, {name}" if several else "accuracy"] = (
            ", ".join(parts) if math.isfinite(accuracy) else "not asked in these examples"
        )
    return texts


def _training(opened: Checkpoint) -> dict[str, Figure]:
    """The training curve, where the checkpoint lies in a run."""
    folder = opened.path if opened.path.is_dir() else opened.path.parent
    rows = read_json_lines(folder / METRICS)
    curve = training_curve(rows, chance=_chance(opened), step=opened.step)
    return {} if curve is None else {"training": curve}


def _chance(opened: Checkpoint) -> float | None:
    """Chance level of the only output; None where there are several."""
    chances: Mapping[str, Any] = {} if opened.task is None else opened.task.chance
    return next(iter(chances.values())).accuracy if len(chances) == 1 else None


def next_steps(
    opened: Checkpoint,
    subject: Subject,
    measured: Collection[str],
    options: str = "",
) -> dict[str, str]:
    """Command → what it would show: probes that apply and were not run."""
    place = _place(opened.path)
    steps = {
        f"mechint analyze {place} {proposal}{options}": "No task is known; this one fits."
        for proposal in opened.proposals
    }
    for name in PROBES:
        if name not in measured and PROBES[name]().applicable(subject) is None:
            steps[f"mechint analyze {place}{options} --probe {name}"] = PROBES[name].question
    return dict(list(steps.items())[:MOST_STEPS])


def _place(path: Path) -> Path:
    """The run that the file lies in, else the file."""
    return path.parent if (path.parent / "config.json").is_file() else path
