"""Training in bfloat16 against float32: do the same seeds generalize, when, and to which mechanism?

    python -m benchmarks.precision            # trains, and writes the result of this processor

Seeds 0 … 15 of the preset `fast` (addition mod 29, one layer, 64 wide), each in both precisions.
The criteria were committed before a model was trained:

    reached        of 16, with at least 99% of the held-out pairs right by step 2,000: bf16 no more
                   than two fewer than float32
    step           the median of the first evaluations at 99%, of seeds that reach it in both: the
                   ratio bf16 / float32 between 0.8 and 1.25
    mechanism      what the probe clock-pizza names, seed by seed: the same in all but 4 of those
                   that reach 99% in both

All three hold: bf16 is advised where the processor has it. One fails: it is warned of. Sixteen
seeds of one small task: what holds here says nothing of another task.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.kept import made
from benchmarks.table import cpu_model, place
from mechint.registry import PROBES
from mechint.system.files import write_text
from mechint.training import train

SEEDS, REACHED = range(16), 0.99
STEP_RATIO, FEWER, OTHERS = (0.8, 1.25), 2, 4
PRECISIONS = ("float32", "bf16")


def measure(precision: str) -> list[dict[str, Any]]:
    """One mapping a seed: the first step at 99%, the last test accuracy, the mechanism named."""
    settings = {"precision": precision, "evaluate_every": 25, "checkpoints": None}
    rows = []
    runs = train("modular-arithmetic", None, settings, preset="fast", seeds=SEEDS)
    for seed, run in zip(SEEDS, runs, strict=True):
        at = [one["step"] for one in run.metrics if one.get("test.accuracy", 0) >= REACHED]
        result = PROBES["clock-pizza"]().run(run.subject())
        rows.append(
            {
                "seed": seed,
                "step": at[0] if at else None,
                "test.accuracy": run.final["test.accuracy"],
                "mechanism": result.metrics.get("mechanism", "none"),
                "symmetricity": result.metrics.get("symmetricity"),
            }
        )
    return rows


def judge(rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The three criteria, with their numbers.

    >>> one = [{"seed": s, "step": 100, "mechanism": "pizza"} for s in range(16)]
    >>> judge({"float32": one, "bf16": one})["advised"]
    True
    """
    first, second = rows["float32"], rows["bf16"]
    counts = {name: sum(one["step"] is not None for one in rows[name]) for name in PRECISIONS}
    both = [
        (one, other)
        for one, other in zip(first, second, strict=True)
        if one["step"] is not None and other["step"] is not None
    ]
    steps = [statistics.median(pair[i]["step"] for pair in both) for i in (0, 1)] if both else []
    ratio = steps[1] / steps[0] if both else None
    same = sum(one["mechanism"] == other["mechanism"] for one, other in both)
    held = {
        "reached": counts["bf16"] >= counts["float32"] - FEWER,
        "step": ratio is not None and STEP_RATIO[0] <= ratio <= STEP_RATIO[1],
        "mechanism": bool(both) and same >= len(both) - OTHERS,
    }
    return {
        "reached": counts,
        "median step": steps,
        "step ratio": ratio,
        "same mechanism": [same, len(both)],
        "held": held,
        "advised": all(held.values()),
    }


def main() -> int:
    cpu = cpu_model()
    file = Path("benchmarks/results/precision") / place(cpu).name
    rows = {precision: measure(precision) for precision in PRECISIONS}
    origin = made("python -m benchmarks.precision", cpu)
    found = {"origins": [origin], "processor": cpu, "rows": rows, "judged": judge(rows)}
    write_text(file, json.dumps(found, indent=1) + "\n")
    print(json.dumps(found["judged"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
