"""Training through the task registry: one model, a range of seeds, or any list of runs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from mechint.config import ModelConfig, Settings, TrainConfig, assign
from mechint.errors import MechintError, NonFiniteError, ParameterError
from mechint.models import config_class, find_device, parameter_shapes
from mechint.registry import TASKS
from mechint.system.files import digest_of
from mechint.system.jsonable import to_jsonable
from mechint.system.parallel import interruptible, run_jobs, tell, usable_cores
from mechint.task import Task
from mechint.training.part import as_planned, train_part
from mechint.training.plan import EnsemblePart, check_memory, part_of, partition
from mechint.training.run import DONE, SUCCEEDED, Run, Spec, Start
from mechint.training.schedule import Progress, ProgressShares

OnProgress = Callable[[Progress], None]

LARGE = 1 << 26
"""Bytes of an ensemble from which a second thread halves the time of a step, about."""


def spec(
    task: Task,
    model: Settings | Mapping[str, Any] | None = None,
    train: TrainConfig | Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
    out: Path | str | None = None,
    start: Start | None = None,
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
    return Spec(task, model, train, None if out is None else Path(out), start)


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
        for name in ("d_vocab", "d_vocab_out", "n_ctx", "output_sizes"):
            if name in overrides:
                raise ParameterError(
                    f"model: {name} follows from the task {task.name}; set the task's "
                    "parameters instead"
                )
    return cls.for_task(task, **{**task.model_defaults, **overrides})


def read_start(
    path: Path | str, task: Task, model: Settings | Mapping[str, Any] | None = None
) -> tuple[Start, Settings]:
    """The weights of a transformer's checkpoint, to train `task` from, and its architecture; a
    directory stands for its last weights.

    Raises:
        CheckpointError: no checkpoint. ParameterError: no transformer, one that does not read the
            task's tokens and answers, or a setting of `model` that the file has otherwise.
    """
    from mechint.checkpoints import load_checkpoint

    source = load_checkpoint(path)
    if not isinstance(source.config, ModelConfig) or task.model_kind != "transformer":
        raise ParameterError(f"{path}: to start from a file takes a transformer and its task")
    there, wanted = source.config.to_dict(), _model(task, {}).to_dict()
    asked = model.to_dict() if isinstance(model, Settings) else to_jsonable(dict(model or {}))
    asked |= {name: wanted[name] for name in ("d_vocab", "d_vocab_out", "n_ctx", "output_sizes")}
    for name, value in asked.items():
        if there.get(name) != value:
            raise ParameterError(
                f"{path}: {name} is {there.get(name)!r}, and {task.name} is to be trained with "
                f"{value!r}; weights keep their architecture"
            )
    state = source.model.state_dict()
    weights = {name: state[name].detach().cpu() for name in parameter_shapes(source.config)}
    return Start(digest_of(source.path), weights), source.config


def _over(known: Mapping[str, Any], given: Any) -> Any:
    """A whole configuration as it is; overrides on top of `known`."""
    return given if isinstance(given, Settings) else {**known, **(given or {})}


def train(
    task: Task | str,
    model: Settings | Mapping[str, Any] | None = None,
    train: TrainConfig | Mapping[str, Any] | None = None,
    *,
    preset: str | None = None,
    seeds: Iterable[int] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    device: str = "cpu",
    progress: OnProgress | None = None,
    workers: int = 1,
    start: Path | str | None = None,
) -> list[Run]:
    """Train a task's model, one run per seed, together.

    Args:
        task: what to learn; the name of a task, with the settings of the preset.
        model, train: whole configurations, or overrides on the task's defaults.
        preset: of the task, as `mechint tasks TASK` prints them; `model` and `train` then override
            its settings.
        seeds: of weights, data and dropout; the configuration's own when None.
        out: run directory; with several seeds it holds ``seed-0000`` and so on. None keeps runs in
            memory.
        resume: go on with what `out` holds; bit for bit on a CPU.
        device: "cpu" or "cuda"; progress: called with `Progress`.
        workers: as `train_many` takes them; `workers_on` says how many suit this machine.
        start: a checkpoint whose weights, and whose architecture, every run starts from at step 0,
            with a fresh optimizer.

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
    if isinstance(task, str):
        kind = TASKS[task]
        task = kind.from_dict({} if preset is None else kind.preset(preset)["task"])
    if preset is not None:
        settings = type(task).preset(preset)
        model, train = _over(settings["model"], model), _over(settings["train"], train)
    specs = seed_specs(task, model, train, seeds=seeds, out=out, start=start)
    return train_many(specs, resume=resume, device=device, progress=progress, workers=workers)


def workers_on(device: str) -> int:
    """Processes side by side on `device`: one per core that may be used; one for a GPU."""
    return usable_cores() if device == "cpu" else 1


def seed_specs(
    task: Task,
    model: Settings | Mapping[str, Any] | None = None,
    train: TrainConfig | Mapping[str, Any] | None = None,
    *,
    seeds: Iterable[int] | None = None,
    out: Path | str | None = None,
    start: Path | str | None = None,
) -> list[Spec]:
    """The runs that `train` trains."""
    begun, model = (None, model) if start is None else read_start(start, task, model)
    chosen: Sequence[int | None] = [None] if seeds is None else list(seeds)
    folders = [""] if len(chosen) == 1 else [f"seed-{seed:04d}" for seed in chosen]
    return [
        spec(
            task,
            model,
            train,
            seed=seed,
            out=None if out is None else Path(out, folder),
            start=begun,
        )
        for seed, folder in zip(chosen, folders, strict=True)
    ]


def train_many(
    specs: Sequence[Spec],
    *,
    resume: bool = False,
    device: str = "cpu",
    progress: OnProgress | None = None,
    workers: int = 1,
    parts: Sequence[Sequence[int]] | None = None,
    threads: int | None = None,
    on_interrupt: Literal["raise", "return"] = "raise",
) -> list[Run]:
    """Train any list of runs; those of one shape advance together.

    Which runs form an ensemble, and with how many threads it computes, follows from `specs` and the
    kind of device alone, so the same call gives the same bits however many cores and
    workers there are and however often it was stopped.

    Args:
        specs: from `spec`. Runs share an ensemble when they differ in nothing but the training's
            `PER_MODEL_FIELDS`, initial weights, and parameters of the task that leave its
            shapes alone.
        resume: runs that are done are returned as they are, others go on where they stopped.
        workers: processes that train ensembles side by side, one thread each, on a CPU and for runs
            that have directories; with 1 everything happens in this process.
        parts: places in `specs` that train together, in place of the plan's own choice.
        threads: of each ensemble; when None two for a plan of one ensemble that needs `LARGE` bytes
            or more, else one.
        on_interrupt: "return" gives the runs back after Ctrl-C or SIGTERM, too, those that were
            stopped with status "interrupted".

    Returns:
        One Run per spec, in order; status "failed" with `error` for a run of several that turned
        non-finite.

    Raises:
        ParameterError; RunError; MechintError when one model does not fit into memory;
        NonFiniteError when a lone run's loss is not finite; KeyboardInterrupt after Ctrl-C or
        SIGTERM, once what has a directory can be resumed.
    """
    target = find_device(device)
    runs = [Run(spec) for spec in specs]
    places = [os.path.realpath(run.path) for run in runs if run.path is not None]
    if len(set(places)) < len(places):
        raise ParameterError("train: two runs have the same directory; expected one each")
    if workers > 1 and (target.type != "cpu" or len(places) < len(runs)):
        raise ParameterError("train: several workers are for runs with directories, on the CPU")
    for run in runs:
        if run.directory is not None and run.directory.check(run.spec, resume):
            run.load()
            lacks_weights = run.status in SUCCEEDED and run.directory.lacks_weights()
            if lacks_weights or os.path.lexists(run.directory.state_file):
                run.status = "waiting"  # it is trained again, or its ensemble goes on
    waiting = [run.spec for run in runs if run.status not in DONE]
    if waiting:
        # sizing draws from the tasks, which must not depend on the caller's settings of torch
        with as_planned(target):
            check_memory(waiting, target)
            if parts is None:
                planned = partition(specs, target.type)
            else:
                planned = [part_of(specs, members) for members in parts]
            if threads is None:
                threads = threads_of(planned)
        left = [part for part in planned if any(runs[i].status not in DONE for i in part.members)]
        _train_parts(left, runs, target, resume, workers, progress, threads)
    if len(runs) == 1 and runs[0].status == "failed":
        raise NonFiniteError(runs[0].error)
    if on_interrupt == "raise":
        raise_interrupted(runs)
    return runs


def threads_of(parts: Sequence[EnsemblePart]) -> int:
    """Threads of each ensemble on a CPU: two where the plan is one large ensemble. Two that share a
    small one's operations gain little, and wait for each other where the machine is busy.
    """
    (first, *others) = parts
    return 2 if not others and first.bytes * len(first.members) >= LARGE else 1


def raise_interrupted(runs: Sequence[Run]) -> None:
    """KeyboardInterrupt where a run was stopped, which nobody should take for a trained one."""
    for run in runs:
        if run.status == "interrupted":
            goes_on = "" if run.path is None else "; the same call with resume=True goes on"
            raise KeyboardInterrupt(
                f"training stopped at step {run.step} of {run.spec.train.steps}{goes_on}"
            )


def _train_parts(
    parts: Sequence[EnsemblePart],
    runs: Sequence[Run],
    device: torch.device,
    resume: bool,
    workers: int,
    progress: OnProgress | None,
    threads: int,
) -> None:
    work = [part.work(runs[part.members[0]].spec.train.steps) for part in parts]
    report = ProgressShares(work, progress)
    with interruptible() as interrupted:
        if workers > 1 and len(parts) > 1:
            jobs = [
                ([runs[i].spec for i in part.members], part.ensemble, resume, threads)
                for part in parts
            ]
            for place, outcome in run_jobs(
                train_in_worker, jobs, workers, report=report.of, stop=interrupted
            ):
                if isinstance(outcome, MechintError):
                    goes_on = "the same command" if resume else "--resume"
                    raise MechintError(f"train: {outcome}; {goes_on} goes on from the last commit")
                for i, (status, error, step) in zip(parts[place].members, outcome, strict=True):
                    runs[i].load()
                    runs[i].status, runs[i].error, runs[i].step = status, error, step
        else:
            for number, part in enumerate(parts):
                if interrupted.is_set():
                    break
                members = [runs[i] for i in part.members]
                numbered = None if progress is None else partial(report.of, number)
                train_part(members, part.ensemble, device, numbered, resume, threads)
    for run in runs:
        if run.status in ("waiting", "running"):
            run.status = "interrupted"


def train_in_worker(
    specs: Sequence[Spec], ensemble: str, resume: bool, threads: int
) -> list[tuple[str, str, int]]:
    """Train one part in a worker process; status, error and step of every run."""
    runs = [Run(spec) for spec in specs]
    train_part(runs, ensemble, torch.device("cpu"), tell, resume, threads)
    return [(run.status, run.error, run.step) for run in runs]
