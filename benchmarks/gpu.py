"""Compare a GPU with the CPU, and time three rows on it: `python -m benchmarks.gpu`.

Trainings of a few steps must have the loss curves that they have on the CPU, in float64, where
rounding does not hide a difference. Then timed: addition mod 113 until it generalizes, a step of
remainders mod 113, and a step of 128 ListOps models.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.timing import seconds
from benchmarks.workloads import ADDITION, REMAINDERS, Workload, listops
from mechint.registry import TASKS
from mechint.training import train

TOLERANCE = 1e-6
"""Nats between the losses of the two devices, in float64."""

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "addition": ("modular-arithmetic", {"p": 13}, {}, {}),
    "addition, layer norm, minibatches": (
        "modular-arithmetic",
        {"p": 13},
        {"n_layers": 2, "normalization_type": "LN"},
        {"batch_size": 32, "optimizer": "muon", "clip": 1.0},
    ),
    "ListOps": ("listops", {"operands": 2, "depth": 2}, {"d_model": 16}, {"batch_size": 16}),
    "remainders": ("remainders", {"p": 5}, {"dropout": 0.0}, {"grokfast": "ema"}),
    "regression": ("regression-mixture", {"n": 8, "n_tasks": 2, "rank": 2}, {"width": 4}, {}),
}
FIRST_STEPS, MODELS = 20, 128


def curve(name: str, device: str, steps: int) -> list[float]:
    """The losses of a short training of two models."""
    task, parameters, model, settings = CASES[name]
    settings = {
        **settings,
        "steps": steps,
        "evaluate_every": 5,
        "eval_examples": 64,
        "precision": "float64",
        "checkpoints": None,
    }
    runs = train(TASKS[task].from_dict(parameters), model, settings, seeds=(0, 1), device=device)
    return [row["test.loss"] for run in runs for row in run.metrics]


def differences(device: str, steps: int = 20) -> Iterator[tuple[str, float]]:
    """The largest difference of a loss in nats between `device` and the CPU, case by case."""
    for name in CASES:
        here, there = curve(name, "cpu", steps), curve(name, device, steps)
        yield name, max(abs(a - b) for a, b in zip(here, there, strict=True))


def grokking(device: str, quick: bool) -> tuple[float, str]:
    """Seconds of training addition mod 113 until it generalizes, without the start of CUDA."""
    runs: list[Any] = []

    def run(steps: int | None) -> None:
        settings = {} if steps is None else {"steps": steps}
        runs[:] = train("modular-arithmetic", None, settings, preset="grokking", device=device)

    run(FIRST_STEPS)
    took = seconds(lambda: run(FIRST_STEPS if quick else None))
    (run,) = runs
    return took, f"test accuracy {run.final['test.accuracy']:.4f} after {run.step} steps"


def step(workload: Workload, device: str, models: int, times: int) -> tuple[float, str]:
    """Seconds of one training step of an ensemble."""
    ensemble = workload.ensemble(range(models), device)
    for _ in range(3):
        ensemble.advance()

    def run() -> None:
        for _ in range(times):
            ensemble.advance()
        if device != "cpu":
            torch.cuda.synchronize()

    return seconds(run) / times, f"{models} models"


def timings(device: str, quick: bool = False) -> Iterator[tuple[str, float, str]]:
    """The three rows: name, seconds, and a note."""
    models, times, small = (2, 1, listops(16, 1, 1.0)) if quick else (MODELS, 20, listops(48, 3, 1))
    large = ADDITION if quick else REMAINDERS
    rows: dict[str, Callable[[], tuple[float, str]]] = {
        "addition mod 113 until it generalizes": lambda: grokking(device, quick),
        f"step, {large.name}": lambda: step(large, device, 1, times),
        f"step, {models} models of {small.name}": lambda: step(small, device, models, times),
    }
    for name, measure in rows.items():
        yield name, *measure()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", help="the device that is compared")
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that all runs")
    options = parser.parse_args(arguments)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("no GPU: torch.cuda.is_available() is False")
        return 1
    device = torch.cuda.get_device_name() if options.device.startswith("cuda") else options.device
    print(f"{device} against the CPU, largest difference of a loss (at most {TOLERANCE:g} nats)")
    failed = False
    for name, difference in differences(options.device, 5 if options.quick else 20):
        failed |= not difference <= TOLERANCE
        print(f"  {name:42}{difference:12.2g}{'' if difference <= TOLERANCE else '  differs'}")
    for name, took, note in timings(options.device, options.quick):
        print(f"  {name:42}{took:10.3g} s  {note}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
