"""``mechint sweep``: many runs as one table that can stop and go on."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from mechint.cli.common import device_option, json_option, print_error, print_json, set_option
from mechint.cli.train import headlines, progress_bar
from mechint.errors import ParameterError
from mechint.registry import TASKS


@click.command()
@click.argument("what", metavar="TASK|FILE|DIR")
@click.option(
    "--over",
    multiple=True,
    metavar="NAME=VALUES",
    help="What to sweep: seed=0:8, d_model=8,16,32. May be repeated; all combinations run.",
)
@set_option
@click.option(
    "--executor",
    type=click.Choice(["local", "ray", "slurm"]),
    default="local",
    show_default=True,
    help="Where the runs run.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The sweep's directory; a stopped sweep goes on there.  [default: runs/sweep-TASK]",
)
@click.option(
    "--only", type=click.IntRange(min=0), metavar="I", help="Run only the I-th group of runs."
)
@device_option
@json_option
def sweep(
    what: str,
    over: tuple[str, ...],
    settings: tuple[str, ...],
    executor: str,
    out: Path | None,
    only: int | None,
    device: str,
    as_json: bool,
) -> int:
    """Train TASK over all combinations of values; or the sweep that a FILE (JSON or TOML: task,
    set, over) describes.

    The directory DIR of a sweep that was stopped goes on with it.
    """
    from mechint.sweeps import plan as sweeps

    if Path(what).is_dir():
        out = Path(what)
        groups = sweeps.read_plan(out)
    else:
        described: Mapping[str, Any] = (
            read_file(Path(what)) if what.endswith((".json", ".toml")) else {"task": what}
        )
        TASKS[described["task"]]  # an unknown task is said so first
        swept = dict(sweeps.parse_values(text) for text in over)
        texts = [
            f"{name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, value in described.get("set", {}).items()
        ]
        groups = sweeps.plan(
            described["task"], [*texts, *settings], {**described.get("over", {}), **swept}
        )
        out = out or Path("runs") / f"sweep-{described['task']}"
    if only is not None:
        if only >= len(groups):
            raise ParameterError(f"--only {only}: expected at most {len(groups) - 1}")
        done = [sweeps.run_group(groups[only], out, device)]
    else:
        with progress_bar(f"{len(groups)} groups") as report:
            done = []
            for rows in sweeps.run_sweep(groups, out, executor, device, report):
                done.append(rows)
                if not as_json:
                    _print(rows)
    rows = [row for group in done for row in group]
    if as_json:
        print_json(rows)
    failed = [row for row in rows if row["status"] == "failed"]
    for row in failed:
        print_error(f"run {row['id']} failed: {row.get('error', 'see its directory')}")
    return 2 if failed else 0


def _print(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        parameters = " ".join(f"{name}={value}" for name, value in row["parameters"].items())
        click.echo(
            f"{row['id']}  {row['status']}  {parameters}  {headlines(row['metrics'])}".rstrip()
        )


def read_file(path: Path) -> Mapping[str, Any]:
    """The description of a sweep: {"task": …, "set": {name: value}, "over": {name: [values]}}."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ParameterError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        described = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
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
