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
    examples,
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
from mechint.config import ModelConfig, assignment, parse_assignment
from mechint.errors import ParameterError, RunError
from mechint.registry import TASKS
from mechint.system.files import make_directory
from mechint.system.progress import echo, summary, training_bar

if TYPE_CHECKING:
    from mechint.training import Run


preset_option = click.option(
    "--preset", metavar="NAME", help="Settings that suit a purpose: fast, grokking or paper."
)


@click.command(
    short_help="Train a task's model, one seed or many.",
    epilog=examples(
        "mechint train modular-arithmetic --preset grokking --out runs/add",
        "mechint train listops --seeds 0:8 --set steps=2000 --set lr=1e-3",
        "mechint train listops --out runs/stopped --resume",
        "mechint train modular-arithmetic --set p=7 "
        """--set siit='{"x": "L0H1 @ 2", "y": "L0H0 @ 2"}'""",
    ),
)
@click.argument("task", shell_complete=complete(TASKS))
@set_option
@plugin_option
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
    comes after it. --set siit='{"x": "L0H1 @ 1", "y": "L0H0 @ 2"}' trains the model to hold
    variables of the task at sites, and verifies it (see docs/trained-truth.md).
    """
    kind = TASKS[task]
    chosen = seeds_of(seeds) if seeds is not None else None
    siit = [text for text in settings if text.partition("=")[0].strip() == "siit"]
    settings = tuple(text for text in settings if text not in siit)

    from mechint.training import seed_specs, train_many, workers_on
    from mechint.training.api import assign_run
    from mechint.training.loggers import forwarding

    values = assign_run(task, [*preset_settings(task, preset), *settings])
    if siit:
        if resume or loggers:
            raise ParameterError("--set siit: trains in one go, without --resume and --log")
        values["train"]["siit"] = parse_assignment(siit[-1])[1]
        return _enforce(task, values, chosen, out or default_place(task, values, chosen), as_json)
    specs = seed_specs(
        kind.from_dict(values["task"]),
        values["model"],
        values["train"],
        seeds=chosen,
        out=out or default_place(task, values, chosen),
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


def _enforce(
    task: str, values: dict[str, Any], seeds: Sequence[int] | None, out: Path, as_json: bool
) -> int:
    """Train models that hold an alignment; exit status 2 where it does not hold in one of them."""
    from mechint.planted import save_enforced
    from mechint.training import spec
    from mechint.training.enforced import enforce_each

    train = values["train"]
    alignment, seeds = train.pop("siit"), seeds or [train.pop("seed", 0)]
    if not isinstance(alignment, dict) or not all(isinstance(v, str) for v in alignment.values()):
        raise ParameterError('--set siit: expected variables and sites, as {"x": "L0H1 @ 1"}')
    for name in train:
        if name not in ("steps", "batch_size", "lr"):
            raise ParameterError(f"--set {name}: with siit steps, batch_size and lr can be set")
    whole = spec(TASKS[task].from_dict(values["task"]), values["model"])
    if not isinstance(whole.model, ModelConfig):
        raise ParameterError(f"--set siit: {task} trains no transformer")
    paths = [out / f"seed-{seed:04d}.pt" for seed in seeds]
    for path in paths:
        if path.exists():
            raise RunError(f"{path}: is there already; choose another --out")
    alignments = [alignment] * len(seeds)
    plants = enforce_each(whole.task, alignments, whole.model, seeds, **train)
    rows = list[dict[str, Any]]()
    for path, plant in zip(paths, plants, strict=True):
        make_directory(out)
        save_enforced(plant, path)
        status = "verified" if plant.truth["verified"] else "not verified"
        rows.append({"path": str(path), "status": status, "metrics": dict(plant.truth)})
        if not as_json:
            least, steps = plant.truth["least"], plant.truth["steps"]
            click.echo(f"{path}  {status}  least share {least:.4f} after {steps} steps")
    if as_json:
        print_json(rows)
    return 0 if all(row["status"] == "verified" for row in rows) else 2


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
