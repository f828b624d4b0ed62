"""The tour behind ``make demo``: addition mod 113 trained until it generalizes, analyzed, and
reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mechint.registry import PROBES, TASKS

TASK, PARAMETERS = (
    "modular-arithmetic",
    {"p": 113, "train_fraction": 0.4},
)  # at 0.3 it generalizes too, in nearly twice the steps
TRAIN = {"steps": 4000, "lr": 2e-3, "grokfast": "ema", "stop_accuracy": 0.999}
PROBED = ("fourier", "attention", "embedding")


def run_demo(
    out: Path, report: Path, progress: Callable[[Any], None] | None = None
) -> dict[str, str]:
    """Train under `out`, write `report`; returns the findings by probe.

    A finished run in `out` is analyzed again, not trained again.
    """
    from mechint.checkpoints import load_checkpoint
    from mechint.files import write_text
    from mechint.report import PAGE, head_of, page_of, write_page
    from mechint.training import train

    task = TASKS[TASK].from_dict(PARAMETERS)
    train(task, None, TRAIN, seeds=(0,), out=out, resume=out.exists(), progress=progress)
    opened = load_checkpoint(out)
    subject = opened.subject()
    results = {name: PROBES[name]().run(subject, seed=0) for name in PROBED}
    head = head_of(opened, subject, results, "mechint demo")
    page = page_of(results, "Addition mod 113", **head)
    write_page(page, report)
    write_text(out / PAGE, json.dumps(page.to_dict()))
    return {name: result.finding for name, result in results.items()}
