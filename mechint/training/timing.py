"""How long runs will take, said before they start: a few of their steps are timed."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence

import torch

from mechint.training.estimate import model_bytes
from mechint.training.part import as_planned
from mechint.training.plan import partition, shape_of
from mechint.training.run import Run, Spec
from mechint.training.trainer import Ensemble

KINDS = 4
"""Kinds of ensembles that are timed at most."""
TIMED_MODELS = 16
"""Models of an ensemble that are timed at most."""
TIMED_STEPS = 4
SLOW = 5.0
"""Seconds from which one step, with what comes before it, is estimate enough."""


def seconds_per_step(specs: Sequence[Spec], device: torch.device) -> float:
    """Seconds that one step of these runs takes as one ensemble, the least of a few that are timed
    now: on a CPU those that one core computes, which other work on the machine does not lengthen.
    """
    short = {"steps": 1 + TIMED_STEPS, "evaluate_every": 1 + TIMED_STEPS, "eval_examples": 2}
    runs = [
        Run(
            dataclasses.replace(
                spec, train=dataclasses.replace(spec.train, checkpoints=None, **short), out=None
            )
        )
        for spec in specs
    ]
    clock = time.process_time if device.type == "cpu" else time.perf_counter

    with as_planned(device, 1):
        ensemble = Ensemble(runs, [None] * len(runs), device)

        def timed() -> float:
            started = clock()
            ensemble.advance().cpu()
            return clock() - started

        first = timed()
        return first if first > SLOW else min(timed() for _ in range(TIMED_STEPS))


def estimate_seconds(specs: Sequence[Spec], device: torch.device) -> float:
    """Seconds that the steps of the runs take on this machine while nothing else runs on it, one
    ensemble after another, on a CPU with a core each; evaluations and kept checkpoints come on top.

    An ensemble of each kind is timed for a few steps, with at most `TIMED_MODELS` of its models and
    of at most `KINDS` kinds; the others are taken to cost in proportion to their memory.
    """
    kinds: dict[str, list[Spec]] = {}
    at_once: dict[str, list[Spec]] = {}
    for part in partition(specs, device.type):
        own = [specs[i] for i in part.members]
        kinds.setdefault(shape_of(own[0]), []).extend(own)
        at_once.setdefault(shape_of(own[0]), own[:TIMED_MODELS])
    chosen = sorted(kinds, key=lambda kind: -model_bytes(kinds[kind][0]))
    timed = chosen if len(chosen) <= KINDS else chosen[:: math.ceil(len(chosen) / KINDS)]
    seconds = {kind: seconds_per_step(at_once[kind], device) / len(at_once[kind]) for kind in timed}
    per_byte = sum(seconds.values()) / max(1, sum(model_bytes(kinds[k][0]) for k in timed))
    return sum(
        seconds.get(kind, per_byte * model_bytes(some[0])) * sum(spec.train.steps for spec in some)
        for kind, some in kinds.items()
    )
