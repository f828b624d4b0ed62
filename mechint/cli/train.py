"""``mechint train``: train a task's model, one seed or many, with a bar that shows what it has
learnt.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mechint.cli.common import (
    console,
    device_option,
    json_option,
    print_error,
    print_json,
    seeds_of,
    set_option,
)
from mechint.config import TrainConfig, assign
from mechint.registry import TASKS

if TYPE_CHECKING:
    from mechint.training import Progress, Run


@click.command()
@click.argument("task")
@set_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The run directory.  [default: runs/TASK-… ]",
)
@click.option("--seeds", metavar="A:B", help="Train one model a seed, together: 0:8, or 0,3,5.")
@click.option("--resume", is_flag=True, help="Go on where a run in --out stopped.")
@device_option
@json_option
def train(
    task: str,
    settings: tuple[str, ...],
    out: Path | None,
    seeds: str | None,
    resume: bool,
    device: str,
    as_json: bool,
) -> int:
    """Train a model on TASK.

    --set reaches any field of the task, the model and the training: --set p=29 --set steps=600
    --set lr=2e-3.
    """
    kind = TASKS[task]
    chosen = seeds_of(seeds) if seeds is not None else None

    from mechint.models import config_class
    from mechint.training import train as run_training

    values = assign(
        settings, {"task": kind, "model": config_class(kind.model_kind), "train": TrainConfig}
    )
    made = kind.from_dict(values["task"])
    out = (
        out
        or Path("runs")
        / f"{task}-{hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]}"
    )
    with progress_bar(f"training {task}") as report:
        runs = run_training(
            made,
            values["model"],
            values["train"],
            seeds=chosen,
            out=out,
            resume=resume,
            device=device,
            progress=report,
        )
    if as_json:
        print_json([_row(run) for run in runs])
    else:
        for row in map(_row, runs):
            click.echo(f"{row['path']}  {row['status']}  {headlines(row['metrics'])}")
    for run in runs:
        if run.status == "failed":
            print_error(f"{run.path}: {run.error}")
    if any(run.status == "interrupted" for run in runs):
        raise KeyboardInterrupt
    return 2 if any(run.status == "failed" for run in runs) else 0


def _row(run: Run) -> dict[str, Any]:
    from mechint.results import to_jsonable

    return {"path": str(run.path), "status": run.status, "metrics": to_jsonable(run.final)}


def headlines(metrics: Mapping[str, Any]) -> str:
    """The step, and accuracy and loss over all outputs, in one line.

    >>> headlines({"step": 100, "test.accuracy": 0.25, "test.accuracy.q=3": 0.5})
    'step 100  test.accuracy 0.25'
    """
    wanted = ("step", "train.loss", "test.loss", "train.accuracy", "test.accuracy")
    return "  ".join(
        f"{name} {metrics[name]:.6g}"
        for name in wanted
        if isinstance(metrics.get(name), int | float)
    )


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on stderr with the latest accuracies; on a stderr that is no terminal, about
    ten lines.
    """
    out = console(err=True)
    if not out.is_terminal:
        yield _lines(title)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    seen = TextColumn("{task.fields[seen]}")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        seen,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=out) as bar:
        entry = bar.add_task(title, total=None, seen="")
        yield lambda now: bar.update(
            entry, completed=now.step, total=now.steps, seen=summary(now.metrics)
        )


def _lines(title: str) -> Callable[[Progress], None]:
    shown = -1

    def report(now: Progress) -> None:
        nonlocal shown
        tenth = 10 * now.step // max(now.steps, 1)
        if tenth > shown and now.metrics:
            shown = tenth
            print_error(f"{title}: step {now.step} of {now.steps} {summary(now.metrics)}")

    return report


def summary(metrics: Mapping[str, Any]) -> str:
    """The accuracies (or losses, where a task has none) in a few words.

    >>> summary({"train.accuracy": 1.0, "test.accuracy": 0.5, "train.loss": 0.1})
    'train 100.0%  test 50.0%'
    """
    accuracies = [
        f"{split} {100 * float(metrics[f'{split}.accuracy']):.1f}%"
        for split in ("train", "test")
        if f"{split}.accuracy" in metrics
    ]
    losses = [
        f"{split} loss {float(metrics[f'{split}.loss']):.3g}"
        for split in ("train", "test")
        if f"{split}.loss" in metrics
    ]
    return "  ".join(accuracies or losses)


__all__ = ["headlines", "progress_bar", "summary", "train"]
