"""``mechint sweep``: many runs as one table that can stop and go on."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mechint.cli.common import device_option, json_option, print_error, print_json, set_option
from mechint.cli.progress import announce, headlines, progress_bar
from mechint.cli.train import preset_option, preset_settings
from mechint.errors import ParameterError
from mechint.registry import PROBES, TASKS

if TYPE_CHECKING:
    from mechint.sweeps import Group

Rows = list[dict[str, Any]]


@click.command()
@click.argument("what", metavar="TASK|FILE|DIR")
@click.option(
    "--over",
    multiple=True,
    metavar="NAME=VALUES",
    help="What to sweep: seed=0:8, d_model=8,16,32. May be repeated; all combinations run.",
)
@set_option
@preset_option
@click.option(
    "--executor",
    type=click.Choice(["local", "ray", "slurm"]),
    default="local",
    show_default=True,
    help="Where the runs run.",
)
@click.option(
    "--slurm",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of sbatch (time, mem, partition, account, signal); also concurrent, "
    "groups_per_task, setup. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Say what would run (Slurm: the script), and stop.")
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Local processes side by side; the numbers do not depend on it.  [default: the cores]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The sweep's directory; a stopped sweep goes on there.  [default: runs/sweep-TASK]",
)
@click.option("--resume", is_flag=True, help="Go on with the sweep in DIR.")
@click.option("--only", metavar="I|A:B", help="Run only these groups of runs, here.")
@click.option("--probe", "probes", multiple=True, help="Measure the finished runs; repeatable.")
@device_option
@json_option
def sweep(
    what: str,
    over: tuple[str, ...],
    settings: tuple[str, ...],
    preset: str | None,
    executor: str,
    slurm: tuple[str, ...],
    dry_run: bool,
    workers: int | None,
    out: Path | None,
    resume: bool,
    only: str | None,
    probes: tuple[str, ...],
    device: str,
    as_json: bool,
) -> int:
    """Train TASK over all combinations of values; or the sweep that a FILE (JSON or TOML: task,
    set, over) describes. For the directory DIR of a sweep: how it stands; with --resume it goes on.
    """
    from mechint.sweeps import read_plan, run_sweep, status
    from mechint.sweeps.executors.slurm import parse_options
    from mechint.sweeps.table import PLAN, keep_plan

    options = parse_options(slurm)
    for name in probes:
        PROBES[name]  # an unknown one is said so first
    if Path(what).is_dir():
        out = Path(what)
        groups = read_plan(out)
        if not resume and only is None and not dry_run and executor == "local":
            return _finish(status(groups, out), out, probes, as_json, stands=True)
    else:
        groups, out = _planned(what, over, settings, preset, out, device)
    count = sum(len(group.runs) for group in groups)
    if dry_run:
        _say(groups, out, executor, device, options)
        return 0
    if only is not None:
        return _finish(_run_some(groups, only, out, device), out, probes, as_json)
    if (out / PLAN).exists():
        keep_plan(groups, out)
    if executor == "local":
        announce([spec for group in groups for spec in group.specs(out)], device)
    rows: Rows = []
    with progress_bar(f"sweep of {count} runs") as report:
        at_once = workers or (os.cpu_count() or 1 if device == "cpu" else 1)
        for done in run_sweep(
            groups, out, executor, device, report, workers=at_once, options=options
        ):
            rows += done
            if not as_json:
                _print(done)
    return _finish(rows, out, probes, as_json, printed=True)


def _planned(
    what: str,
    over: tuple[str, ...],
    settings: tuple[str, ...],
    preset: str | None,
    out: Path | None,
    device: str,
) -> tuple[list[Group], Path]:
    """The groups of a task's or a file's sweep, and its directory."""
    from mechint.sweeps import parse_values, plan

    described: Mapping[str, Any] = (
        read_file(Path(what)) if what.endswith((".json", ".toml")) else {"task": what}
    )
    task = described["task"]
    TASKS[task]  # an unknown task is said so first
    values = {**described.get("over", {}), **dict(parse_values(text) for text in over)}
    if not values:
        raise ParameterError(
            f"sweep {what}: nothing is swept; give --over, such as --over seed=0:8, or train one "
            "model with mechint train"
        )
    texts = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in described.get("set", {}).items()
    ]
    groups = plan(task, [*preset_settings(task, preset), *texts, *settings], values, device)
    return groups, out or Path("runs") / f"sweep-{task}"


def _run_some(groups: list[Group], only: str, out: Path, device: str) -> Rows:
    """Run the groups ``I`` or ``A:B``, as a task of a batch system does."""
    from mechint.sweeps import run_group
    from mechint.training.interrupt import interruptible

    if not re.fullmatch(r"\d{1,9}(:\d{1,9})?", only):
        raise ParameterError(f"--only {only[:40]}: expected a group, such as 3, or several, 0:4")
    first, colon, last = only.partition(":")
    chosen = range(int(first), int(last) if colon else int(first) + 1)
    if not chosen or chosen.start >= len(groups):
        raise ParameterError(f"--only {only}: expected groups from 0 to {len(groups) - 1}")
    rows: Rows = []
    with progress_bar(f"groups {only}") as report, interruptible() as interrupted:
        for group in groups[chosen.start : chosen.stop]:
            rows += run_group(group, out, device, report)
            if interrupted.is_set():
                raise KeyboardInterrupt
    return rows


def _say(
    groups: list[Group], out: Path, executor: str, device: str, options: Mapping[str, str]
) -> None:
    """What would run, on stdout."""
    if executor == "slurm":
        from mechint.sweeps.executors.slurm import script

        click.echo(script(len(groups), out, device, options), nl=False)
        return
    for group in groups:
        click.echo(f"group {group.id}: {', '.join(group.run_ids)}")


def _finish(
    rows: Rows,
    out: Path,
    probes: tuple[str, ...],
    as_json: bool,
    printed: bool = False,
    stands: bool = False,
) -> int:
    """Print the table, measure what was asked for; the exit status."""
    if as_json:
        print_json(rows)
    elif not printed:
        _print(rows)
    failed = [row for row in rows if row["status"] == "failed"]
    for row in failed:
        print_error(f"run {row['id']} failed: {row.get('error', 'see its directory')}")
    counts = {row["status"]: 0 for row in rows}
    for row in rows:
        counts[row["status"]] += 1
    left = sum(counts.get(name, 0) for name in ("waiting", "interrupted", "submitted"))
    if stands:
        text = ", ".join(f"{count} {name}" for name, count in counts.items())
        print_error(f"{out}: {text}" + ("; --resume goes on" if left else ""))
    elif counts.get("running"):
        print_error(f"{counts['running']} runs are trained by another process")
    if probes and not left:
        _measure(out, probes)
    if not stands and counts.get("interrupted"):
        raise KeyboardInterrupt
    return 2 if failed and not stands else 0


def _measure(out: Path, probes: tuple[str, ...]) -> None:
    """Run probes over the finished runs; the table goes to DIR/sweep.csv."""
    import mechint

    table = mechint.runs(out)
    for name in probes:
        table = table.probe(name)
    place = table.csv(out / "sweep.csv")
    print_error(f"{', '.join(probes)} of {len(table)} runs: {place}")


def _print(rows: Rows) -> None:
    width = max((len(row["id"]) for row in rows), default=0)
    for row in rows:
        click.echo(
            f"{row['id']:<{width}}  {row['status']:<11}  {headlines(row['metrics'])}".rstrip()
        )


def read_file(path: Path) -> Mapping[str, Any]:
    """The description of a sweep: {"task": …, "set": {name: value}, "over": {name: [values]}}."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ParameterError(f"{path}: cannot be read: {error}") from error
    try:
        described = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"{path}: {error}") from error
    known = {"task": str, "set": dict, "over": dict}
    if (
        not isinstance(described, dict)
        or "task" not in described
        or not all(isinstance(value, known.get(name, ())) for name, value in described.items())
    ):
        raise ParameterError(
            f"{path}: expected the names task, set (name = value) and over (name = list of values)"
        )
    if not all(
        isinstance(values, list) and values for values in described.get("over", {}).values()
    ):
        raise ParameterError(f"{path}: over: expected a list of values for every name")
    return described
