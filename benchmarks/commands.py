"""Whole runs and commands: training from nothing and the light commands on the wall clock, commands
on a checkpoint in processor time, as ratios to the least that one costs.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from benchmarks.timing import BenchSettings, Row, bounded, paired, seconds
from mechint.planted.groups import group_product
from mechint.registry import PROBES
from mechint.training import train

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "examples" / "models"
TRAIN = ["train", "modular-arithmetic", "--set", "p=13", "--set", "steps=60", "--out"]
COMMANDS = (
    ("train, 60 steps of addition mod 13", TRAIN, 1.3),
    ("analyze clock.pt --probe fourier", ["analyze", "clock.pt", "--probe", "fourier"], 1.9),
    ("analyze clock.pt", ["analyze", "clock.pt"], 2.4),
    ("compare clock.pt pizza.pt", ["compare", "clock.pt", "pizza.pt"], 3.0),
    ("explain clock.pt", ["explain", "clock.pt"], 2.0),
)
"""Commands on the shipped models, and the most that each may cost beside the floor."""


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


def processor_time(*arguments: str, peaks: list[float] | None = None) -> float:
    """Processor seconds, user and system, of a Python process; `peaks` is given its memory, MB."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=MODELS,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(arguments))
    if peaks is not None:
        peaks.append(used.ru_maxrss / 1024)
    return used.ru_utime + used.ru_stime


def commands(bench: BenchSettings) -> Iterator[Row]:
    """The rows of commands on a checkpoint, each in turn with the floor: import torch, read the
    file, one forward.
    """
    fresh = (str(bench.folder / f"run-{i}") for i in count())
    processor_time("-m", "mechint", "compare", "clock.pt", "pizza.pt")  # compiles what is compiled
    for name, line, most in COMMANDS:
        peaks = list[float]()

        def ours(line: list[str] = line, peaks: list[float] = peaks) -> float:
            out = [next(fresh)] if line[-1] == "--out" else []
            return processor_time("-m", "mechint", *line, *out, peaks=peaks)

        took, floor, ratio = paired(
            ours,
            lambda: processor_time(str(ROOT / "benchmarks" / "floor.py"), "clock.pt"),
            bench.repeats(5),
        )
        note = f"{took:.2f} s of processor time, the floor {floor:.2f} s; {max(peaks):.0f} MB"
        yield bounded(f"mechint {name}", 1 / ratio, most, "at most", unit="×", note=note)

    subject = group_product("S3" if bench.quick else "S6", ("standard",)).subject
    start = time.process_time()
    PROBES["irreps"]().run(subject)
    note = f"processor time; {len(subject.data):,} products by a planted model of "
    note += f"{subject.model.config.d_mlp:,} neurons"
    yield bounded("irreps on S6", time.process_time() - start, 60.0, "at most", note=note)


def rows(bench: BenchSettings) -> Iterator[Row]:
    """The rows of whole runs and commands."""
    checkpoint = bench.folder / "addition"
    more = {"preset": "grokking", "seeds": (0,), "out": checkpoint}
    settings = {"steps": 5} if bench.quick else None
    took = seconds(lambda: train("modular-arithmetic", None, settings, **more))
    (run,) = train(
        "modular-arithmetic", None, settings, **more, resume=True
    )  # finished: read back, not trained
    note = (
        f"test accuracy {run.final['test.accuracy']:.4f} after {run.step} steps, seed 0, "
        "evaluations and checkpoints included"
    )
    row = bounded(
        "addition mod 113 from nothing to 99.9% test accuracy", took, 100.0, "at most", note=note
    )
    yield {**row, "met": row["met"] and run.final["test.accuracy"] >= 0.999}

    yield bounded(
        "mechint --help",
        statistics.median(python("-m", "mechint", "--help") for _ in range(bench.repeats(7))),
        0.5,
        "at most",
    )
    yield from commands(bench)
