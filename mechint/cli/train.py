"""``mechint train``: train a task's model, one seed or many."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mechint.cli.common import (
    complete,
    device_option,
    example_commands,
    json_option,
    log_option,
    path_option,
    plugin_option,
    print_error,
    print_json,
    propose,
    seeds_of,
    set_option,
    workers_option,
)
from mechint.config import assignment
from mechint.registry import TASKS
from mechint.system.progress import echo, summary, training_bar

if TYPE_CHECKING:
    from mechint.training import Run


preset_option = click.option(
    "--preset", metavar="NAME", help="Settings that suit a purpose: fast, grokking or paper."
)


@click.command(
    short_help="Train a task's model, one seed or many.",
    epilog=example_commands(
        "mechint train modular-arithmetic --preset grokking --out runs/add",
        "mechint train listops --seeds 0:8 --set steps=2000 --set lr=1e-3",
        "mechint train listops --out runs/stopped --resume",
    ),
)
@click.argument("task", shell_complete=complete(TASKS))
@set_option
@plugin_option
@path_option("--from", "start", help="Start from the weights of this checkpoint, at step 0.")
@path_option("--out", help="The run directory.  [default: runs/TASK-… ]", metavar="DIR")
@click.option("--seeds", metavar="A:B", help="Train one model per seed, together: 0:8, or 0,3,5.")
@preset_option
@click.option(
    "--resume", is_flag=True, help="Go on where a run in --out stopped; start it where none is."
)
@workers_option
@log_option
@device_option
@json_option
def train(
    task: str,
    settings: tuple[str, ...],
    start: Path | None,
    out: Path | None,
    seeds: str | None,
    preset: str | None,
    resume: bool,
    workers: int | None,
    loggers: tuple[str, ...],
    device: str,
    as_json: bool,
) -> int:
    """Train a model on TASK.

    --set reaches any field of the task, the model and the training: --set p=29 --set steps=600
    --set lr=2e-3. A preset, printed by `mechint tasks TASK`, is a list of such settings; --set
    comes after it.
    """
    kind = TASKS[task]
    chosen = seeds_of(seeds) if seeds is not None else None
    from mechint.training import seed_specs, train_many, workers_on
    from mechint.training.api import assign_run
    from mechint.training.loggers import forwarding

    values = assign_run(task, [*preset_settings(task, preset), *settings])
    begun = {} if start is None else {"start": {"file": str(start.absolute())}}
    specs = seed_specs(
        kind.from_dict(values["task"]),
        values["model"],
        values["train"],
        seeds=chosen,
        out=out or default_place(task, values | begun, chosen),
        start=start,
    )
    workers = workers or workers_on(device)
    paths = [one.out for one in specs if one.out is not None]
    with training_bar(f"training {task}") as bar, forwarding(paths, loggers, bar) as report:
        runs = train_many(
            specs,
            resume=resume,
            device=device,
            progress=report,
            workers=workers,
            on_interrupt="return",  # its lines are printed first
        )
    if as_json:
        print_json([_row(run) for run in runs])
    else:
        for row in map(_row, runs):
            echo(f"{row['path']}  {row['status']}  {summary(row['metrics'])}")
        if all(run.status in ("finished", "stopped") for run in runs) and paths:
            alone = len(paths) == 1
            propose("analyze" if alone else "table", paths[0] if alone else paths[0].parent)
    for run in runs:
        if run.status == "failed":
            print_error(f"{run.path}: {run.error}")
    if any(run.status == "interrupted" for run in runs):
        raise KeyboardInterrupt
    return 2 if any(run.status == "failed" for run in runs) else 0


def default_place(task: str, values: Mapping[str, Any], seeds: Sequence[int] | None) -> Path:
    """The directory of runs without ``--out``: named by their settings, and by the seed of a lone
    run.
    """
    values = {part: dict(some) for part, some in values.items()}
    seed = values["train"].pop("seed", 0)
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
    alone = seeds[0] if seeds is not None and len(seeds) == 1 else seed
    several = seeds is not None and len(seeds) > 1
    return Path("runs") / f"{task}-{digest}{'' if several else f'-seed-{alone}'}"


def _row(run: Run) -> dict[str, Any]:
    from mechint.system.jsonable import to_jsonable

    return {"path": str(run.path), "status": run.status, "metrics": to_jsonable(run.final)}


def preset_settings(task: str, preset: str | None) -> list[str]:
    """The ``--set`` texts of a preset of `task`; UnknownNameError says which there are."""
    if preset is None:
        return []
    TASKS[task].preset(preset)  # which refuses one that is not there
    return [assignment(name, value) for name, value in TASKS[task].presets[preset].items()]
