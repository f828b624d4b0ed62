"""The device against the CPU: the same losses in training, captured or not, and the same metrics
of every probe that the model allows.

Training is compared in float64, where the order of sums does not matter at the tolerance, and in
float32 over few steps, before rounding grows. Dropout draws on the device and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.on_gpu.checks import Row, apart, at_most, numbers, unmeasured
from mechint import load
from mechint.errors import MechintError
from mechint.probe import quick_probes
from mechint.registry import PROBES, TASKS
from mechint.training import spec, train
from mechint.training.run import Run
from mechint.training.trainer import Ensemble

SMALL: Mapping[str, Any] = {"d_model": 16, "n_heads": 2, "d_head": 8, "d_mlp": 32}

TRAININGS: tuple[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
    ("modular-arithmetic", {"p": 23}, {**SMALL}, {}),
    ("listops", {}, {"d_model": 16, "n_heads": 1, "n_layers": 2}, {"eval_examples": 100}),
    ("remainders", {"p": 11}, {**SMALL, "dropout": 0.0}, {}),
    ("composition", {}, {"d_model": 16, "n_heads": 1}, {"eval_examples": 100}),
    ("regression-mixture", {}, {}, {"eval_examples": 100}),
    ("single-index", {}, {}, {}),
)
"""Task, parameters, and overrides on its model and training: one for every kind of step."""

TOLERANCE = {"float64": 1e-9, "float32": 1e-3}
"""Of losses, as a share of the larger of 1 and the CPU's."""

METRICS_TOLERANCE = 2e-3
CAPTURED_TOLERANCE = 1e-9


def rows(device: str, quick: bool) -> Iterator[Row]:
    """Every training, captured against eager, then every probe on a trained model (of a quick look
    the quick ones).
    """
    steps = 5 if quick else 50
    for task, parameters, model, settings in TRAININGS:
        for precision, tolerance in TOLERANCE.items():
            made = TASKS[task].from_dict(parameters)
            chosen = {**settings, "steps": steps, "evaluate_every": 5, "precision": precision}
            here, there = (_losses(made, model, chosen, place) for place in ("cpu", device))
            yield at_most(
                f"training, {task}, {precision}, losses apart",
                apart(there, here),
                tolerance,
                "of the CPU's",
                f"{len(here)} numbers over {steps} steps",
            )
    yield captured_against_eager(device, steps)
    yield from probes_apart(
        device, 20 if quick else 1500, quick_probes() if quick else sorted(PROBES)
    )


def _losses(task: Any, model: dict[str, Any], settings: dict[str, Any], device: str) -> list[float]:
    """Every number recorded along a training, in order."""
    (run,) = train(task, model, settings, device=device)
    return [value for row in run.metrics for value in _measured(row)]


def _measured(row: Mapping[str, Any]) -> list[float]:
    return [value for key, value in numbers(row).items() if "loss" in key]


def captured_against_eager(device: str, steps: int) -> Row:
    """Weights after the same steps, replayed as a CUDA graph and called one by one."""
    name = "CUDA graph against eager, weights apart"
    if not device.startswith("cuda"):
        return unmeasured(name, "graphs are captured on a GPU alone")
    ends: list[torch.Tensor] = []
    for capture in (True, False):
        made = spec(
            TASKS["modular-arithmetic"].from_dict({"p": 23}), SMALL, {"precision": "float64"}
        )
        ensemble = Ensemble([Run(made)], [None], torch.device(device), capture=capture)
        for _ in range(steps):
            ensemble.advance()
        assert capture == (ensemble.captured is not None)
        ends.append(ensemble.parameters.values.detach().cpu().flatten())
    return at_most(name, apart(*(end.tolist() for end in ends)), CAPTURED_TOLERANCE, "of eager's")


def probes_apart(device: str, steps: int, names: Sequence[str]) -> Iterator[Row]:
    """Metrics of the probes `names` on one trained checkpoint, opened on both sides."""
    with TemporaryDirectory(prefix="mechint-gpu-") as folder:
        place = Path(folder) / "run"
        train(
            TASKS["modular-arithmetic"].from_dict({"p": 23, "train_fraction": 0.6}),
            SMALL,
            {"steps": steps, "evaluate_every": steps, "lr": 5e-3},
            out=place,
        )
        for name in names:
            title = f"probe {name}, metrics apart"
            try:
                here, there = (
                    numbers(PROBES[name]().run(load(place, device=at), seed=0).metrics)
                    for at in ("cpu", device)
                )
            except MechintError as error:
                yield unmeasured(title, str(error))
                continue
            values = [[side[key] for key in sorted(side)] for side in (there, here)]
            yield at_most(
                title, apart(*values), METRICS_TOLERANCE, "of the CPU's", f"{len(here)} numbers"
            )
