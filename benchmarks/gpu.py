"""What one GPU does: training from nothing as captured graphs, and an ensemble against one
HookedTransformer after another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.peers.process import NONE
from benchmarks.timing import Bench, Row, bounded, missing, paired, seconds, timer, versus
from benchmarks.workloads import listops
from mechint.demo import PARAMETERS, TASK, TRAIN
from mechint.registry import TASKS
from mechint.training import train

RUNS: tuple[tuple[str, str, dict[str, Any], dict[str, Any], float], ...] = (
    ("GPU: addition mod 113 to 99.9% test accuracy", TASK, PARAMETERS, TRAIN, 5.0),
    (
        "GPU: remainders, p = 113, 65,536 epochs",
        "remainders",
        {"p": 113},
        {"evaluate_every": 4096},
        150.0,
    ),
)
FIRST_STEPS = 20
MODELS, TOGETHER, NO_GPU = 128, "GPU: 128 listops models of 48×3", "no GPU"


def rows(bench: Bench) -> Iterator[Row]:
    """The rows of a GPU; without one they say so."""
    if not torch.cuda.is_available():
        for name, *_, target in RUNS:
            yield missing(name, None, target, NO_GPU, "at most")
        yield missing(TOGETHER, None, 50.0, NO_GPU)
        return
    for name, task, parameters, settings, target in RUNS:
        yield run(bench, name, task, parameters, settings, target)
    yield against_one_after_another(bench)


def part(name: str, quick: bool) -> Iterator[Row]:
    """The rows of one part of `make gpu`: "grokking", "remainders" or "ensemble"."""
    bench = Bench(torch.get_num_threads(), quick)
    try:
        if not torch.cuda.is_available():
            yield missing(name, None, 0.0, NO_GPU)
        elif name == "ensemble":
            yield against_one_after_another(bench)
        else:
            yield run(bench, *RUNS[("grokking", "remainders").index(name)])
    finally:
        bench.close()


def run(
    bench: Bench,
    name: str,
    task: str,
    parameters: dict[str, Any],
    settings: dict[str, Any],
    target: float,
) -> Row:
    """A whole training on the GPU, and before it, in the same clock, the first steps of the
    process, which start CUDA: the note says what of the seconds these are.
    """
    first = {"steps": FIRST_STEPS}
    finished: list[Any] = []

    def trained(changed: dict[str, Any]) -> None:
        task_made = TASKS[task].from_dict(parameters)
        finished.extend(train(task_made, None, {**settings, **changed}, device="cuda"))

    started = seconds(lambda: trained(first))
    finished.clear()
    took = started + seconds(lambda: trained(first if bench.quick else {}))
    accuracy = finished[0].final["test.accuracy"]
    row = bounded(
        name,
        took,
        target,
        "at most",
        note=(
            f"{torch.cuda.get_device_name()}; test accuracy {accuracy:.4f} after "
            f"{finished[0].step} steps; {started:.2f} s of it are {FIRST_STEPS} steps before "
            "them, with the start of CUDA"
        ),
    )
    return (
        row
        if "stop_accuracy" not in settings
        else {**row, "met": row["met"] and accuracy >= settings["stop_accuracy"]}
    )


def against_one_after_another(bench: Bench) -> Row:
    """A step of the ensemble against a step of HookedTransformer for each of its models, on the
    same GPU.
    """
    if bench.peer is None:
        return missing(TOGETHER, None, 50.0, NONE)
    workload = dataclasses.replace(listops(48, 3, 50.0), name="listops 48×3 on the GPU")
    ensemble = workload.ensemble(range(MODELS), "cuda")
    for _ in range(3):
        ensemble.advance()

    def advance() -> None:
        ensemble.advance()
        torch.cuda.synchronize()

    peer, turn = bench.peer, 2 if bench.quick else workload.turn
    peer.ask(build=workload.name, shape=workload.peer_shape("cuda"))
    measured = paired(
        timer(advance, turn),
        lambda: MODELS * peer.ask(run=workload.name, steps=turn)["seconds"] / turn,
        bench.repeats(5),
    )
    return versus(
        TOGETHER,
        measured,
        workload.target,
        against="one HookedTransformer after another",
        note=torch.cuda.get_device_name(),
    )
