"""tf32 and bf16 against float32 at equal outcome: seconds until addition generalizes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from benchmarks.on_gpu.checks import Row, guarded, unmeasured
from benchmarks.timing import seconds
from mechint.demo import PARAMETERS, TASK, TRAIN
from mechint.registry import TASKS
from mechint.training import Run, train

WARM_UP = 20
"""Steps of each precision before its clock: the first training of a process starts CUDA, and each
precision loads kernels of its own.
"""


def rows(device: str, quick: bool) -> Iterator[Row]:
    """One row per precision; float32 comes first, and the others are ratios to it."""
    plain: list[float] = []
    for precision in ("float32", "tf32", "bf16"):
        name = f"{precision}: addition mod 113 to 99.9% test accuracy"
        yield guarded(name, functools.partial(_row, name, precision, device, quick, plain))


def _row(name: str, precision: str, device: str, quick: bool, plain: list[float]) -> Row:
    """The seconds of one precision; those of the first that comes to its end go into `plain`."""
    settings: dict[str, Any] = {**TRAIN, "precision": precision} | ({"steps": 4} if quick else {})
    started = seconds(
        lambda: _trained({**settings, "steps": min(WARM_UP, settings["steps"])}, device)
    )
    finished: list[Run] = []
    took = seconds(lambda: finished.append(_trained(settings, device)))
    (trained,) = finished
    accuracy = trained.final["test.accuracy"]
    before = f"a first {min(WARM_UP, settings['steps'])} steps, not counted, took {started:.2f} s"
    if accuracy < TRAIN["stop_accuracy"]:
        note = f"test accuracy {accuracy:.4f} after {trained.step} steps, {took:.2f} s; {before}"
        return {**unmeasured(name, note), "holds": None if quick else False}
    speed = ""
    if precision == "float32":
        plain.append(took)
    elif plain:
        speed = f"; {plain[0] / took:.2f} times the speed of float32"
    note = f"test accuracy {accuracy:.4f} after {trained.step} steps{speed}; {before}"
    return {"name": name, "value": took, "limit": None, "unit": "s", "holds": True, "note": note}


def _trained(settings: dict[str, Any], device: str) -> Run:
    (run,) = train(TASKS[TASK].from_dict(PARAMETERS), None, settings, device=device)
    return run
