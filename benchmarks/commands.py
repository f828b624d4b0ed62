"""Whole runs and commands, on the wall clock: training from nothing, the light commands, one
analysis.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.timing import Bench, Row, bounded, paired, seconds, shown
from mechint.demo import PARAMETERS, TASK, TRAIN
from mechint.registry import TASKS
from mechint.training import train

TINY = 100
LIGHT = (["--help"], ["tasks"], ["probes"])


def python(*arguments: str) -> float:
    """Seconds of a Python process."""
    return seconds(
        lambda: subprocess.run(
            [sys.executable, *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    )


def tiny_runs(bench: Bench) -> Row:
    """What runs cost besides their steps: directories, plan, first and last evaluation, metrics and
    checkpoints of a hundred runs of two steps.
    """
    task, settings = TASKS["modular-arithmetic"].from_dict({"p": 5}), {"steps": 2}
    places = iter(range(1 << 30))

    def trained() -> None:
        out = bench.folder / f"tiny-{next(places)}"
        train(task, {"d_model": 8, "n_heads": 1}, settings, seeds=range(TINY), out=out)

    took = statistics.median(seconds(trained) for _ in range(bench.repeats(3)))
    note = f"{1e3 * took / TINY:.3g} ms a run, metrics and checkpoints written"
    return shown(f"{TINY} runs of two steps, from start to end", took, "s", note)


def rows(bench: Bench) -> Iterator[Row]:
    """The rows of whole runs and commands."""
    checkpoint = bench.folder / "addition"
    task, settings = (
        TASKS[TASK].from_dict(PARAMETERS),
        {**TRAIN, **({"steps": 5} if bench.quick else {})},
    )
    took = seconds(lambda: train(task, None, settings, seeds=(0,), out=checkpoint))
    (run,) = train(
        task, None, settings, seeds=(0,), out=checkpoint, resume=True
    )  # finished: read back, not trained
    note = (
        f"test accuracy {run.final['test.accuracy']:.4f} after {run.step} steps, seed 0, "
        "evaluations and checkpoints included"
    )
    row = bounded(
        "addition mod 113 from nothing to 99.9% test accuracy", took, 120.0, "at most", note=note
    )
    yield {**row, "met": row["met"] and run.final["test.accuracy"] >= 0.999}

    yield tiny_runs(bench)
    for arguments in LIGHT:
        yield bounded(
            f"mechint {' '.join(arguments)}",
            statistics.median(python("-m", "mechint", *arguments) for _ in range(bench.repeats(7))),
            0.5,
            "at most",
        )

    analysis = (
        "-m",
        "mechint",
        "analyze",
        str(checkpoint / "ckpt.pt"),
        "--probe",
        "fourier",
        "--json",
    )
    python(*analysis)  # compiles what is compiled once
    whole, importing, _ = paired(
        lambda: python(*analysis), lambda: python("-c", "import transformer_lens"), bench.repeats(3)
    )
    note = f"{whole:.1f} s, of which {importing:.1f} s are the import"
    yield bounded(
        "mechint analyze, fourier, one checkpoint, beyond importing TransformerLens",
        whole - importing,
        3.0,
        "at most",
        note=note,
    )
