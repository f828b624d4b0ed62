"""Examples a second that one core draws, labels and checks against the split, and what share of a
training step that is.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.timing import Bench, Row, bounded, paired, timer, versus
from benchmarks.workloads import Workload, listops
from mechint.registry import TASKS
from mechint.task import GeneratedTask, rng

RATES = (
    ("listops with chain of thought, depth 2, 3 operands", "listops", {}, 200_000.0),
    ("composition, N = 8, k = 4", "composition", {"n": 8, "k": 4}, 1e6),
)


def drawing(task: GeneratedTask) -> Callable[[], Any]:
    """A call that generates one block of the training split, a new one every time."""
    blocks = iter(range(1 << 30))
    return lambda: task.generate(task.block, "train", rng("benchmark", next(blocks)))


def rows(bench: Bench) -> Iterator[Row]:
    """The rows of generation."""
    torch.set_num_threads(1)
    for name, task_name, parameters, target in RATES:
        task = TASKS[task_name].from_dict(parameters)
        once = timer(drawing(task))
        once()
        rate = task.block / statistics.median(once() for _ in range(bench.repeats(21)))
        yield bounded(
            f"generation, {name}", rate, target, "at least", unit="examples/s", note="one core"
        )
    torch.set_num_threads(bench.threads)
    yield share_of_step(bench, listops(48, 3, 10.0))


def share_of_step(bench: Bench, workload: Workload) -> Row:
    """A training step over the generation of its batch, both of one turn, a block of the stream."""
    ensemble = workload.ensemble()
    run = ensemble.runs[0]
    stream = run.spec.task.stream("train", 1, run.spec.train.batch_size)
    measured = paired(
        timer(lambda: next(stream), workload.turn),
        timer(ensemble.advance, workload.turn),
        bench.repeats(3),
    )
    return versus(
        f"generation of a batch, {workload.name}",
        measured,
        workload.target,
        against="the training step it is for",
    )
