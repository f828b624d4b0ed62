"""Training through the task registry: one model, a range of seeds, or any list of runs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from mechint.config import ModelConfig, Settings, TrainConfig, assign
from mechint.errors import NonFiniteError, ParameterError
from mechint.models import config_class, find_device
from mechint.registry import TASKS
from mechint.task import Task
from mechint.training.estimate import check_disk, check_fits, does_not_fit, free_memory
from mechint.training.interrupt import interruptible, raise_interrupted
from mechint.training.part import as_planned, train_part
from mechint.training.plan import Part, part_of, partition
from mechint.training.resume import repair
from mechint.training.run import DONE, Run, Spec
from mechint.training.schedule import Progress

OnProgress = Callable[[Progress], None]

THREADS = 2
"""Threads of a plan that is one ensemble; the ensembles of larger plans have one each."""


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
        UnknownNameError, ParameterError: an unknown or invalid override.
    """
    if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance]  # from users
        hint = f": tasks.make({task!r}) makes it" if isinstance(task, str) else ""
        raise ParameterError(f"train: got {type(task).__name__} {task!r}; expected a task{hint}")
    if not isinstance(model, Settings):
        model = _model(task, dict(model or {}))
    if not isinstance(train, TrainConfig):
        train = TrainConfig.from_dict({**task.train_defaults, **dict(train or {})})
    if seed is not None:
        train = dataclasses.replace(train, seed=seed)
    return Spec(task, model, train, None if out is None else Path(out))


def assign_run(task: str, texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """``--set`` texts of a run as settings of its "task", "model" and "train".

    Raises:
        UnknownNameError, ParameterError: no such task or setting.

    >>> assign_run("modular-arithmetic", ["p=5", "d_model=8", "train.seed=3"])
    {'task': {'p': 5}, 'model': {'d_model': 8}, 'train': {'seed': 3}}
    """
    kind = TASKS[task]
    targets = {"task": kind, "model": config_class(kind.model_kind), "train": TrainConfig}
    return assign(texts, targets)


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
    progress: OnProgress | None = None,
    workers: int = 1,
) -> list[Run]:
    """Train a task's model, one run per seed, together.

    Args:
        task: what to learn.
        model, train: whole configurations, or overrides on the task's defaults.
        seeds: of weights, data and dropout; the configuration's own when None.
        out: run directory; with several seeds it holds ``seed-0000`` and so on. None keeps runs in
            memory.
        resume: go on with what `out` holds; bit for bit on a CPU.
        device: "cpu" or "cuda"; progress: called with `Progress`.
        workers: as `train_many` takes them; `workers_on` says how many suit this machine.

    Returns:
        One Run per seed, in order.

    Raises:
        ParameterError, RunError; NonFiniteError when a lone run's loss is not finite;
        KeyboardInterrupt after Ctrl-C or SIGTERM, once what `out` holds can be resumed.

    Example:
        >>> import tasks
        >>> task = tasks.make("modular-arithmetic", p=5)
        >>> (run,) = train(task, {"d_model": 8, "n_heads": 1}, {"steps": 2})
        >>> run.status, run.step
        ('finished', 2)
    """
    specs = seed_specs(task, model, train, seeds=seeds, out=out)
    return train_many(specs, resume=resume, device=device, progress=progress, workers=workers)


def workers_on(device: str) -> int:
    """Processes that train side by side on `device`: one for each core that this process may use,
    where Slurm, a container or taskset leave it fewer than the machine has; one for a GPU.
    """
    if device != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def seed_specs(
    task: Task,
    model: Settings | Mapping[str, Any] | None = None,
    train: TrainConfig | Mapping[str, Any] | None = None,
    *,
    seeds: Iterable[int] | None = None,
    out: Path | str | None = None,
) -> list[Spec]:
    """The runs that `train` trains."""
    chosen: Sequence[int | None] = [None] if seeds is None else list(seeds)
    return [
        spec(
            task,
            model,
            train,
            seed=seed,
            out=None if out is None else Path(out) if len(chosen) == 1 else seed_place(out, seed),
        )
        for seed in chosen
    ]


def seed_place(out: Path | str, seed: int | None) -> Path:
    """Where the run of one of several seeds lies."""
    return Path(out) / f"seed-{seed:04d}"


def train_many(
    specs: Sequence[Spec],
    *,
    resume: bool = False,
    device: str = "cpu",
    progress: OnProgress | None = None,
    memory: int | None = None,
    workers: int = 1,
    parts: Sequence[Sequence[int]] | None = None,
    threads: int | None = None,
    on_interrupt: Literal["raise", "return"] = "raise",
) -> list[Run]:
    """Train any list of runs; those of one shape advance together.

    Which runs form an ensemble, and with how many threads it computes, follows from `specs`, the
    kind of device and `memory` alone, so the same call gives the same bits however many cores and
    workers there are and however often it was stopped.

    Args:
        specs: from `spec`. Runs share an ensemble when they differ in nothing but the training's
            `PER_MODEL_FIELDS`, initial weights, and parameters of the task that leave its
            shapes alone.
        resume: runs that are done are returned as they are, others go on where they stopped.
        memory: bytes that one ensemble may need; `TILE` of the plan when None.
        workers: processes that train ensembles side by side, one thread each, on a CPU and for runs
            that have directories; with 1 everything happens in this process.
        parts: places in `specs` that train together, in place of the plan's own choice.
        threads: of each ensemble; when None `THREADS` for a plan of one ensemble, else one.
        on_interrupt: "return" gives the runs back after Ctrl-C or SIGTERM, too, those that were
            stopped with status "interrupted".

    Returns:
        One Run per spec, in order; status "failed" with `error` for a run of several that turned
        non-finite.

    Raises:
        ParameterError; RunError, also when the disk has less room than the runs will need;
        MechintError when one model does not fit into memory; NonFiniteError when a lone run's
        loss is not finite; KeyboardInterrupt after Ctrl-C or SIGTERM, once what has a directory
        can be resumed.
    """
    target = find_device(device)
    runs = [Run(one) for one in specs]
    places = [os.path.realpath(run.path) for run in runs if run.path is not None]
    if len(set(places)) < len(places):
        raise ParameterError("train: two runs have the same directory; expected one each")
    if workers > 1 and (target.type != "cpu" or len(places) < len(runs)):
        raise ParameterError("train: several workers are for runs with directories, on the CPU")
    with as_planned(target):
        for run in runs:
            if run.directory is not None and run.directory.check(run.spec.to_dict(), resume):
                run.load()
                if run.status in DONE:
                    repair(run)
        waiting = [run for run in runs if run.status not in DONE]
        free = free_memory(target)
        for run in waiting:
            check_fits(run.spec, free)
        check_disk([run.spec for run in waiting])
        chosen: list[Part] = []
        if waiting and parts is None:
            chosen = partition(specs, target.type, memory)
        elif waiting and parts is not None:
            chosen = [part_of(specs, members) for members in parts]
        if threads is None:
            threads = THREADS if len(chosen) == 1 else 1
        chosen = [part for part in chosen if any(runs[i].status not in DONE for i in part.members)]
        for part in chosen:
            if part.bytes > free:
                raise does_not_fit(specs[part.members[0]], part.bytes, free)
        _train_parts(chosen, runs, target, resume, workers, progress, threads)
    if len(runs) == 1 and runs[0].status == "failed":
        raise NonFiniteError(runs[0].error)
    if on_interrupt == "raise":
        raise_interrupted(runs)
    return runs


def _train_parts(
    parts: Sequence[Part],
    runs: Sequence[Run],
    device: torch.device,
    resume: bool,
    workers: int,
    progress: OnProgress | None,
    threads: int,
) -> None:
    report = None if progress is None else _WholePlan(parts, runs, progress)
    if workers > 1 and len(parts) > 1:
        from mechint.training.workers import train_in_processes

        train_in_processes(parts, runs, resume, workers, report)
    else:
        with interruptible() as interrupted:
            for number, part in enumerate(parts):
                if interrupted.is_set():
                    break
                members = [runs[i] for i in part.members]
                numbered = None if report is None else report.of_part(number)
                train_part(members, part.ensemble, device, numbered, resume, threads)
    for run in runs:
        if run.status in ("waiting", "running"):
            run.status = "interrupted"


class _WholePlan:
    """Adds to what every ensemble reports which part of the plan it is, what a step costs, and how
    much of the whole is done.
    """

    def __init__(self, parts: Sequence[Part], runs: Sequence[Run], report: OnProgress) -> None:
        steps = [runs[part.members[0]].spec.train.steps for part in parts]
        self.costs = [part.bytes for part in parts]
        self.work = [max(1, part.work(n)) for part, n in zip(parts, steps, strict=True)]
        self.done = [0.0] * len(parts)
        self.report = report

    def __call__(self, now: Progress) -> None:
        self.done[now.part] = now.step / max(1, now.steps)
        share = sum(w * d for w, d in zip(self.work, self.done, strict=True)) / sum(self.work)
        self.report(dataclasses.replace(now, cost=self.costs[now.part], done=share))

    def of_part(self, number: int) -> OnProgress:
        return lambda now: self(dataclasses.replace(now, part=number))
