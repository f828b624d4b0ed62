"""What the joint-training study trains on triplets of digits, which are not nested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mechint.studies.core.study import FRESH, PlannedRun, plan
from mechint.studies.joint_training.arms import SUMS

TRIPLET_WIDTHS = (8, 16, 32, 64)
TRIPLET_TRAIN = {"steps": 5000, "evaluate_every": 50}
LEARNED = {"stop_accuracy": 0.99}
"""A run on triplets ends where it has learned all that is held out: what it costs after that
decides nothing.
"""

EARLY_STOP = {"stop_patience": 10, "stop_after": 2000, "stop_delta": 2.5e-4}
"""The paper's rule: the training loss changed by less than this over ten evaluations."""


def triplets(
    arm: str,
    operations: Sequence[str],
    width: int,
    seeds: int,
    train: Mapping[str, Any],
    init: str = "normal",
    stage: int = 0,
    **task: Any,
) -> Iterator[PlannedRun]:
    """Runs on triplets of digits, not nested: the paper's most controlled comparison."""
    judged = "ADD" if "ADD" in operations else operations[-1]
    for seed in range(FRESH, FRESH + seeds):
        name = f"triplets-{arm}-{width}" + (f"-{init}" if init != "normal" else "")
        yield plan(
            name.replace(" ", "-"),
            "listops-triplets",
            {"operations": tuple(operations), **task},
            {"d_model": width, "init_mode": init},
            train,
            seed=seed,
            stage=stage,
            arm=f"triplets {arm}",
            width=width,
            init=init,
            judged=judged,
        )


def triplet_arms(
    train: Mapping[str, Any],
    widths: Sequence[int] = TRIPLET_WIDTHS,
    seeds: int = 12,
    few: int = 5,
    stage: int = 0,
    **task: Any,
) -> Iterator[PlannedRun]:
    """Sums alone and beside others at every width; each operation alone at the middle one; the
    early stop, of both as in the paper, and the other initial weights at the widest. 300 of each
    operation is shown and not judged, by fewer seeds.
    """
    early, train = {**train, **EARLY_STOP}, {**train, **LEARNED}
    middle, widest = widths[-2], widths[-1]
    per_operation: dict[str, Any] = {"per_operation": 300 if task.get("n", 10) == 10 else 10}
    for width in reversed(widths):
        yield from triplets("MAX+MED+ADD", SUMS, width, seeds, train, stage=stage, **task)
        yield from triplets("ADD", ("ADD",), width, seeds, train, stage=stage, **task)
        yield from triplets(
            "300 each of MAX+MED+ADD",
            SUMS,
            width,
            few,
            train,
            stage=stage,
            **task,
            **per_operation,
        )
    for name in ("MAX", "MIN", "MED", "PROD", "NADD"):
        yield from triplets(name, (name,), middle, few, train, stage=stage, **task)
    for arm in ("MAX+MED+ADD", "ADD"):
        stopped = f"{arm}, early stop"
        yield from triplets(stopped, arm.split("+"), widest, seeds, early, stage=stage, **task)
    for arm in ("MAX+MED+ADD", "ADD"):
        yield from triplets(arm, arm.split("+"), widest, few, train, "torch", stage, **task)
