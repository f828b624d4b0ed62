"""Training through the task registry: one model, a range of seeds, or any list of runs.

    from mechint.training import train
    (run,) = train(tasks.make("modular-arithmetic", p=29), train={"steps": 600})
    subject = run.subject()

Runs of one shape train as one ensemble (see `mechint.training.trainer`); `train_many` sorts them by
itself.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mechint.config import ModelConfig, Settings, TrainConfig
from mechint.errors import MechintError, NonFiniteError, ParameterError
from mechint.models import config_class, find_device
from mechint.task import Task
from mechint.training.optimizer import PER_MODEL_FIELDS
from mechint.training.run_directory import Run, Spec
from mechint.training.trainer import Ensemble, Progress

INIT_FIELDS = ("init_mode", "initializer_range", "embed_std", "width")
"""Fields of a model's configuration that change its initial weights and not its shape."""

MEMORY = 0.5
"""Share of the free memory that one ensemble may take."""

MAX_SHARE_DENOMINATOR = 8
"""Several workers get ensembles of at most this part of the work each, however many they are: the
same ensembles give the same bits.
"""

__all__ = ["Progress", "Run", "Spec", "spec", "train", "train_many"]


def spec(
    task: Task,
    model: Settings | Mapping[str, Any] | None = None,
    train: TrainConfig | Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
    out: Path | str | None = None,
) -> Spec:
    """A run as `train_many` takes it: overrides on the task's defaults made whole and checked.

    Raises:
        UnknownNameError, ParameterError: an override that there is not, or that does not fit.
    """
    if not isinstance(model, Settings):
        model = _model(task, dict(model or {}))
    if not isinstance(train, TrainConfig):
        train = TrainConfig.from_dict({**task.train_defaults, **dict(train or {})})
    if seed is not None:
        train = dataclasses.replace(train, seed=seed)
    return Spec(task, model, train, None if out is None else Path(out))


def _model(task: Task, overrides: dict[str, Any]) -> Settings:
    cls: Any = config_class(task.model_kind)
    if cls is ModelConfig:
        shape = {
            "d_vocab": task.d_vocab,
            "d_vocab_out": task.d_vocab_out,
            "n_ctx": task.n_ctx,
            "output_sizes": [output.n_classes for output in task.outputs],
        }
        for name in shape:
            if name in overrides:
                raise ParameterError(
                    f"model: {name} follows from the task {task.name}; set the task's "
                    "parameters instead"
                )
        return ModelConfig.from_dict({**task.model_defaults, **overrides, **shape})
    return cls.for_task(task, **{**task.model_defaults, **overrides})


def train(
    task: Task,
    model: Settings | Mapping[str, Any] | None = None,
    train: TrainConfig | Mapping[str, Any] | None = None,
    *,
    seeds: Iterable[int] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    device: str = "cpu",
    progress: Callable[[Progress], None] | None = None,
) -> list[Run]:
    """Train a task's model, one run a seed, as one ensemble.

    Args:
        task: what to learn.
        model, train: whole configurations, or overrides on the task's defaults.
        seeds: of weights, data and dropout; the configuration's own when None.
        out: run directory; with several seeds it holds ``seed-0000`` and so on. None keeps runs in
            memory.
        resume: go on with what `out` holds, bit for bit.
        device: "cpu" or "cuda"; progress: called with `Progress`.

    Returns:
        A Run a seed, in order.

    Raises:
        ParameterError, RunError; NonFiniteError when a lone run's loss is not finite.
    """
    chosen: Sequence[int | None] = [None] if seeds is None else list(seeds)
    places = [
        None if out is None else Path(out) if len(chosen) == 1 else Path(out) / f"seed-{seed:04d}"
        for seed in chosen
    ]
    specs = [
        spec(task, model, train, seed=seed, out=place)
        for seed, place in zip(chosen, places, strict=True)
    ]
    return train_many(specs, resume=resume, device=device, progress=progress)


def train_many(
    specs: Sequence[Spec],
    *,
    resume: bool = False,
    device: str = "cpu",
    progress: Callable[[Progress], None] | None = None,
    memory: int | None = None,
    workers: int = 1,
) -> list[Run]:
    """Train any list of runs; those of one shape advance together.

    Args:
        specs: from `spec`. Runs share an ensemble when they differ in nothing but the training's
            `PER_MODEL_FIELDS`, initial weights, and parameters of the task that leave its
            shapes alone.
        resume: runs that are finished are returned as they are, others go on where they stopped.
        memory: bytes all ensembles at work may take; half of what is free when None. More runs than
            fit are trained in turns.
        workers: processes that train ensembles side by side, a thread each, on a CPU and for runs
            that have directories; with 1 everything happens in this process.

    Returns:
        A Run a spec, in order; status "interrupted" after Ctrl-C, "failed" with `error` for a run
        of several that turned non-finite.

    Raises:
        ParameterError, RunError; NonFiniteError when a lone run's loss is not finite.
    """
    target = find_device(device)
    runs = [Run(one) for one in specs]
    places = [run.path.resolve() for run in runs if run.path is not None]
    if len(set(places)) < len(places):
        raise ParameterError("train: two runs have the same directory; expected one each")
    states = [run.open(resume) for run in runs]
    if workers > 1 and (target.type != "cpu" or len(places) < len(runs)):
        raise ParameterError("train: several workers are for runs with directories, on the CPU")
    parts = _parts(runs, target, memory, workers)
    if workers > 1 and len(parts) > 1:
        from mechint.training.workers import train_in_processes

        train_in_processes([[runs[i] for i in part] for part in parts], workers, progress)
        return runs
    for number, part in enumerate(parts):
        Ensemble(
            [runs[i] for i in part], [states[i] for i in part], target, _numbered(progress, number)
        ).train()
        if any(runs[i].status == "interrupted" for i in part):
            return runs
    if len(runs) == 1 and runs[0].status == "failed":
        raise NonFiniteError(runs[0].error)
    return runs


def _numbered(
    progress: Callable[[Progress], None] | None, part: int
) -> Callable[[Progress], None] | None:
    return None if progress is None else lambda now: progress(dataclasses.replace(now, part=part))


def _parts(
    runs: Sequence[Run], device: torch.device, memory: int | None, workers: int
) -> list[list[int]]:
    """The runs that wait, as ensembles: of one shape, within the memory, for several workers none
    above its share of the work.
    """
    groups: dict[str, list[int]] = {}
    for i, run in enumerate(runs):
        if run.status not in ("finished", "stopped"):
            groups.setdefault(_shape(run.spec) + f" from {run.step}", []).append(i)
    limit = (_free(device) if memory is None else memory) // workers
    each = (
        {name: _footprint(runs[members[0]].spec, limit) for name, members in groups.items()}
        if workers > 1 or len(runs) > 1
        else dict.fromkeys(groups, 1)
    )
    work = {
        name: each[name] * (runs[members[0]].spec.train.steps - runs[members[0]].step)
        for name, members in groups.items()
    }
    share = (
        sum(work[name] * len(members) for name, members in groups.items()) / MAX_SHARE_DENOMINATOR
    )
    parts = []
    for name, members in groups.items():
        most = max(1, limit // each[name])
        if workers > 1:
            most = max(1, min(most, int(share // max(1, work[name]))))
        portions = -(-len(members) // most)
        size = -(-len(members) // portions)
        parts += [
            (work[name] * size, members[start : start + size])
            for start in range(0, len(members), size)
        ]
    return [
        part for _, part in (sorted(parts, key=lambda part: -part[0]) if workers > 1 else parts)
    ]


def _shape(one: Spec) -> str:
    """What runs of one ensemble have in common, as text."""
    task, alone = one.task, one.task.model_kind != "transformer"
    outputs = [output.n_classes for output in task.outputs]
    parameters = task.to_dict() if alone else [task.n_ctx, task.d_vocab, outputs]
    model = {name: value for name, value in one.model.to_dict().items() if name not in INIT_FIELDS}
    training = {
        name: value for name, value in one.train.to_dict().items() if name not in PER_MODEL_FIELDS
    }
    return json.dumps([task.name, parameters, model, training, _examples(one)])


def _examples(one: Spec) -> list[int]:
    """Sizes of a finite task's training and test set: an ensemble stacks them to evaluate, and to
    train on all at once.
    """
    from mechint.task import FiniteTask

    split = one.task.split(one.data_seed) if isinstance(one.task, FiniteTask) else {}
    return [len(split[name]) for name in ("train", "test") if name in split]


def _footprint(one: Spec, limit: int) -> int:
    """Bytes that training one model of this kind takes; MechintError when that is above `limit`."""
    from mechint.training.learners import learner_of

    learner = learner_of([one.model], [one.task], one.train.output_weights, torch.device("cpu"))
    stream = one.train.batch_size is not None or one.task.model_kind == "transformer"
    batches = (
        [next(one.task.stream("train", one.data_seed, one.train.batch_size))] if stream else []
    )
    numbers = sum(value.numel() for value in learner.initial(0, 0).values())
    each = learner.footprint(batches) + 4 * numbers * (
        6 + (one.train.grokfast_window if one.train.grokfast == "ma" else 0)
    )
    if each > limit:
        raise MechintError(
            f"train: one model of {one.task.name} needs about {each / 2**30:.1f} GiB and "
            f"{limit / 2**30:.1f} GiB are free; make it or its batch smaller"
        )
    return each


def _free(device: torch.device) -> int:
    """Bytes an ensemble may take on the device."""
    if device.type == "cuda":
        return int(MEMORY * torch.cuda.mem_get_info(device)[0])
    import os

    return int(MEMORY * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
