"""The device against the CPU: the same losses in training, captured or not, and the same metrics
of every probe that the model allows.

Training is compared in float64, where the order of sums does not matter at the tolerance, and in
float32 over few steps, before rounding grows. Dropout draws on the device and is left out. A row
that raises says so and the next one follows; but after some errors of CUDA a process can do no
more, so trainings and probes are two parts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.on_gpu.checks import Row, apart, at_most, farthest, guarded, numbers, unmeasured
from mechint import load
from mechint.errors import MechintError
from mechint.probe import quick_probes
from mechint.registry import PROBES, TASKS
from mechint.training import spec, train
from mechint.training.run import Run
from mechint.training.trainer import Ensemble

SMALL: Mapping[str, Any] = {"d_model": 16, "n_heads": 2, "d_head": 8, "d_mlp": 32}
EXACT: Mapping[str, Any] = {"batch_size": None}
"""A student on its exact loss, which is what may be captured of it."""

Training = tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]

TRAININGS: tuple[Training, ...] = (
    ("modular-arithmetic", {"p": 23}, {**SMALL}, {}),
    ("listops", {}, {"d_model": 16, "n_heads": 1, "n_layers": 2}, {"eval_examples": 100}),
    ("remainders", {"p": 11}, {**SMALL, "dropout": 0.0}, {}),
    ("composition", {}, {"d_model": 16, "n_heads": 1}, {"eval_examples": 100}),
    ("regression-mixture", {}, {}, {"eval_examples": 100}),
    ("regression-mixture", {}, {"decoder": "optimal"}, {**EXACT}),
    ("single-index", {}, {}, {}),
)
"""Task, parameters, and overrides on its model and training: one for every kind of step."""

CAPTURED: tuple[Training, ...] = (
    TRAININGS[0],
    TRAININGS[2],
    ("regression-mixture", {}, {}, {**EXACT}),
    ("single-index", {}, {}, {**EXACT}),
)
"""One for every kind of step that is captured."""

TOLERANCE = {"float64": 1e-9, "float32": 1e-3}
"""Of losses, as a share of the larger of 1 and the CPU's."""

METRICS_TOLERANCE = 2e-3
CAPTURED_TOLERANCE = 1e-9


def rows(device: str, quick: bool) -> Iterator[Row]:
    """Captured against eager, then every training on both sides."""
    steps = 5 if quick else 50
    for training in CAPTURED:
        name = f"CUDA graph against eager, {_title(training)}, weights apart"
        yield guarded(
            name, functools.partial(captured_against_eager, name, training, device, steps)
        )
    name = f"training twice, {_title(TRAININGS[0])}, float32, weights"
    yield guarded(name, functools.partial(trained_twice, name, TRAININGS[0], device, steps))
    for training in TRAININGS:
        for precision, tolerance in TOLERANCE.items():
            name = f"training, {_title(training)}, {precision}, losses apart"
            compare = functools.partial(
                losses_apart, name, training, precision, tolerance, device, steps
            )
            yield guarded(name, compare)


def _title(training: Training) -> str:
    task, _, model, settings = training
    said = [task, *(f"{key} {value}" for key, value in model.items() if key == "decoder")]
    return ", ".join([*said, *(["exact loss"] if "batch_size" in settings else [])])


def losses_apart(
    name: str, training: Training, precision: str, tolerance: float, device: str, steps: int
) -> Row:
    """The losses along a training on the device against those on the CPU."""
    task, parameters, model, settings = training
    made = TASKS[task].from_dict(parameters)
    chosen = {**settings, "steps": steps, "evaluate_every": 5, "precision": precision}
    here, there = (_losses(made, model, chosen, place) for place in ("cpu", device))
    note = f"{len(here)} numbers over {steps} steps"
    return at_most(name, apart(there, here), tolerance, "of the CPU's", note)


def _losses(task: Any, model: dict[str, Any], settings: dict[str, Any], device: str) -> list[float]:
    """Every number recorded along a training, in order."""
    (run,) = train(task, model, settings, device=device)
    return [value for row in run.metrics for value in _measured(row)]


def _measured(row: Mapping[str, Any]) -> list[float]:
    return [value for key, value in numbers(row).items() if "loss" in key]


def captured_against_eager(name: str, training: Training, device: str, steps: int) -> Row:
    """Weights after the same steps, replayed as a CUDA graph and called one by one."""
    if not device.startswith("cuda"):
        return unmeasured(name, "graphs are captured on a GPU alone")
    task, parameters, model, settings = training
    ends: list[torch.Tensor] = []
    for capture in (True, False):
        made = spec(TASKS[task].from_dict(parameters), model, {**settings, "precision": "float64"})
        ensemble = Ensemble([Run(made)], [None], torch.device(device), capture=capture)
        for _ in range(steps):
            ensemble.advance()
        if capture != (ensemble.captured is not None):
            return {**unmeasured(name, "the steps were not captured"), "holds": False}
        ends.append(ensemble.parameters.values.detach().cpu().flatten())
    return at_most(name, apart(*(end.tolist() for end in ends)), CAPTURED_TOLERANCE, "of eager's")


def trained_twice(name: str, training: Training, device: str, steps: int) -> Row:
    """How many weights differ in a bit between two equal trainings: none may on a CPU; on a GPU
    sums are added in no fixed order, and the row says what came of it.
    """
    task, parameters, model, settings = training
    ends: list[torch.Tensor] = []
    for _ in range(2):
        made = TASKS[task].from_dict(parameters)
        (run,) = train(made, model, {**settings, "steps": steps}, device=device)
        ends.append(torch.cat([value.flatten() for value in run.weights.values()]))
    differ, most = int((ends[0] != ends[1]).sum()), float((ends[0] - ends[1]).abs().max())
    note = f"of {len(ends[0])} after {steps} steps, by {most:.1e} at most"
    holds = differ == 0 if device == "cpu" else None
    said = {"value": differ, "limit": 0, "unit": "weights that differ", "holds": holds}
    return {**unmeasured(name, note), **said}


def probe_rows(device: str, quick: bool) -> Iterator[Row]:
    """Every probe on a trained model, those that are quick first; of a quick look no others."""
    others = [] if quick else sorted(set(PROBES) - set(quick_probes()))
    yield from probes_apart(device, 20 if quick else 1500, [*quick_probes(), *others])


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
            yield guarded(
                f"probe {name}, metrics apart", functools.partial(_probe, name, place, device)
            )


def _probe(name: str, place: Path, device: str) -> Row:
    """The metrics of one probe on the device against those on the CPU."""
    title = f"probe {name}, metrics apart"
    try:
        here, there = (
            numbers(PROBES[name]().run(load(place, device=at), seed=0).metrics)
            for at in ("cpu", device)
        )
    except MechintError as error:
        return unmeasured(title, str(error))
    value, which = farthest(there, here)
    note = f"{len(here)} numbers, farthest apart: {which}"
    return at_most(title, value, METRICS_TOLERANCE, "of the CPU's", note)
