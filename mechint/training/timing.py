"""The time that runs will take, estimated before they start by timing a few of their steps."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence

import torch

from mechint.durations import in_words
from mechint.errors import counted
from mechint.training.estimate import disk_needed, model_bytes, parameter_count
from mechint.training.part import as_planned
from mechint.training.plan import EnsemblePart, partition, shape_of
from mechint.training.run import Run, Spec
from mechint.training.trainer import Ensemble

KINDS = 4
"""Kinds of ensembles that are timed at most."""
TIMED_MODELS = 16
"""Models of an ensemble that are timed at most."""
TIMED_STEPS = 4
ROUGH_RATE = 1.5e9
"""Bytes of a step (`model_bytes`) per second on one core, within a factor of three: it decides
whether a few steps are worth timing.
"""
WORTH_TIMING = 30.0
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
        ensemble = Ensemble(runs, device)

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


def announcement(
    specs: Sequence[Spec],
    device: torch.device,
    workers: int = 1,
    parts: Sequence[EnsemblePart] | None = None,
    times: int = 1,
) -> str:
    """Memory, disk and time that runs will take, in a line; time where it is worth timing.

    parts: their ensembles, the plan's own choice when None; times: how often as much is trained,
    for the trials of a search.
    """
    parts = partition(specs, device.type) if parts is None else parts
    at_once = sorted((part.bytes * len(part.members) for part in parts), reverse=True)[:workers]
    several = len(specs) > 1 or times > 1
    models, ensembles = (
        counted(len(specs) * times, "model"),
        counted(len(parts) * times, "ensemble"),
    )
    text = f"{models} in {ensembles} of " if several else ""
    text += f"{max(parameter_count(spec.model) for spec in specs):,} parameters: "
    text += f"about {max(sum(at_once) / 2**30, 0.01):.2g} GiB of memory"
    disk = times * disk_needed(specs)
    text += f", {bytes_in_words(disk)} of disk" if disk else ""
    rough = sum(part.bytes * len(part.members) for part in parts) / ROUGH_RATE
    if times * rough * max(spec.train.steps for spec in specs) > WORTH_TIMING:
        side_by_side = max(1, min(workers, times * len(parts)))
        seconds = times * estimate_seconds(specs, device) / side_by_side
        text += f", about {in_words(seconds)} for the steps alone on idle cores"
    return text


def bytes_in_words(size: int) -> str:
    """Bytes in the unit that suits them.

    >>> bytes_in_words(20_000), bytes_in_words(35_400_000), bytes_in_words(12 * 10**9)
    ('0.02 MB', '35 MB', '12 GB')
    """
    unit, name = (10**9, "GB") if size >= 10**9 else (10**6, "MB")
    number = size / unit
    return f"{number:,.0f} {name}" if number >= 10 else f"{number:.2g} {name}"
