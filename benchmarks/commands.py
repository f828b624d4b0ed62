"""Whole runs and commands, on the wall clock: training from nothing, the light commands,
analyses.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.timing import BenchSettings, Row, bounded, paired, seconds
from mechint.planted.groups import group_product
from mechint.registry import PROBES
from mechint.training import train


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


def analyses(bench: BenchSettings, run: Path) -> Iterator[Row]:
    """The rows of analyses of the run's last checkpoint, and of S6."""
    one = str(run / "ckpt.pt")
    asked = (
        ("fourier, one checkpoint", [one, "--probe", "fourier"], 3.0, 3),
        ("default probes, one checkpoint", [one], 10.0, 1),
    )
    python("-m", "mechint", "analyze", one, "--probe", "fourier")  # compiles what is compiled once
    for name, arguments, target, repeats in asked:
        whole, importing, _ = paired(
            lambda arguments=arguments: python("-m", "mechint", "analyze", *arguments, "--json"),
            lambda: python("-c", "import transformer_lens"),
            bench.repeats(repeats),
        )
        yield bounded(
            f"mechint analyze, {name}, beyond importing TransformerLens",
            whole - importing,
            target,
            "at most",
            note=f"{whole:.1f} s, of which {importing:.1f} s are the import",
        )

    subject = group_product("S3" if bench.quick else "S6", ("standard",)).subject
    took = seconds(lambda: PROBES["irreps"]().run(subject))
    d_mlp = subject.model.config.d_mlp
    note = f"{len(subject.data):,} products by a planted model of {d_mlp:,} neurons"
    yield bounded("irreps on S6", took, 15.0, "at most", note=note)


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
    yield from analyses(bench, checkpoint)
