"""tf32 and bf16 against float32 at equal outcome: seconds until addition generalizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.on_gpu.checks import Row, unmeasured
from benchmarks.timing import seconds
from mechint.demo import PARAMETERS, TASK, TRAIN
from mechint.registry import TASKS
from mechint.training import train


def rows(device: str, quick: bool) -> Iterator[Row]:
    """One row per precision; float32 comes first, and the others are ratios to it."""
    short = {"steps": 4} if quick else {}
    plain: float | None = None
    for precision in ("float32", "tf32", "bf16"):
        settings: dict[str, Any] = {**TRAIN, **short, "precision": precision}
        finished: list[Any] = []

        def run(settings: dict[str, Any] = settings, finished: list[Any] = finished) -> None:
            finished.extend(train(TASKS[TASK].from_dict(PARAMETERS), None, settings, device=device))

        took = seconds(run)
        (trained,) = finished
        accuracy = trained.final["test.accuracy"]
        name = f"{precision}: addition mod 113 to 99.9% test accuracy"
        if accuracy < TRAIN["stop_accuracy"]:
            note = f"test accuracy {accuracy:.4f} after {trained.step} steps, {took:.2f} s"
            yield {**unmeasured(name, note), "holds": None if quick else False}
            continue
        plain = took if plain is None else plain
        yield {
            "name": name,
            "value": took,
            "limit": None,
            "unit": "s",
            "holds": True,
            "note": (
                f"test accuracy {accuracy:.4f} after {trained.step} steps; "
                f"{plain / took:.2f} times the speed of float32"
            ),
        }
