"""``mechint sweep``: many runs as one table that can stop and go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mechint.cli import complete
from mechint.cli.common import (
    device_option,
    examples,
    json_option,
    log_option,
    set_option,
    split_commas,
    workers_option,
)
from mechint.cli.described import read_file
from mechint.cli.plugin import plugin_option
from mechint.cli.search import (
    described_search,
    is_search,
    run_search_command,
    search_options,
    show_search,
)
from mechint.cli.sweep_options import (
    OF_SEARCH,
    refuse_absent_logs,
    refuse_idle,
    refuse_missing,
    refuse_new_plan,
)
from mechint.cli.sweep_run import (
    SweepRequest,
    groups_in,
    run_only_command,
    run_sweep_command,
    show_sweep,
)
from mechint.cli.train import preset_option, preset_settings
from mechint.config import assign, assignment
from mechint.config.assign import parse_value
from mechint.errors import ParameterError
from mechint.registry import PROBES, TASKS

if TYPE_CHECKING:
    from mechint.sweeps import Group


@click.command(
    short_help="Train every combination of values; resumable.",
    epilog=examples(
        "mechint sweep modular-arithmetic --over seed=0:8 --over d_model=8,16,32",
        "mechint sweep modular-arithmetic --preset fast --over seed=0:16 --probe fourier --out S",
        "mechint sweep modular-arithmetic --search lr=1e-4..1e-2:log --trials 50",
        "mechint sweep runs/sweep-modular-arithmetic            # its status",
        "mechint sweep runs/sweep-modular-arithmetic --resume",
        "mechint sweep plan.toml --executor slurm --slurm time=2:00:00 --dry-run",
    ),
)
@click.argument("what", metavar="TASK|FILE|DIR", shell_complete=complete.tasks_or_paths)
@click.option(
    "--over",
    multiple=True,
    metavar="NAME=VALUES",
    help="What to sweep: seed=0:8, d_model=8,16,32. May be repeated; all combinations run.",
)
@set_option
@plugin_option
@preset_option
@click.option(
    "--executor",
    type=click.Choice(["local", "ray", "slurm"]),
    default="local",
    show_default=True,
    help="Where the runs are trained.",
)
@click.option(
    "--slurm",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of sbatch (time, mem, partition, account, signal); also concurrent, "
    "groups_per_task, setup. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Say what would run (Slurm: the script), and stop.")
@workers_option
@click.option(
    "--group-size",
    type=click.IntRange(1, 128),
    metavar="N",
    help="Runs that train as one ensemble, at most: smaller groups keep more cores or nodes at "
    "work. A part of the plan.  [default: 16]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The sweep's directory; a stopped sweep goes on there.  [default: runs/sweep-TASK]",
)
@click.option("--resume", is_flag=True, help="Go on with the sweep in DIR.")
@click.option("--only", metavar="I|A:B", help="Run only these groups of runs, here.")
@click.option(
    "--probe",
    "probes",
    multiple=True,
    callback=split_commas,
    metavar="NAME,…",
    help="Comma-separated probes that measure every run as it finishes.",
    shell_complete=complete.probe_lists,
)
@search_options
@log_option
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
    group_size: int | None,
    out: Path | None,
    resume: bool,
    only: str | None,
    probes: tuple[str, ...],
    loggers: tuple[str, ...],
    trials: int | None,
    device: str,
    as_json: bool,
    **search_given: Any,
) -> int:
    """Train TASK over all combinations of values; or the sweep that a FILE (JSON or TOML: task,
    set, over) describes; or, with --search, look for the settings that do best. For the directory
    DIR of a sweep or a search: print its status, or continue it with --resume.
    """
    from mechint.sweeps.executors.slurm import parse_options
    from mechint.training import workers_on

    options = parse_options(slurm)
    settings, probe_options = probe_settings(settings, probes)
    place = Path(what) if Path(what).is_dir() else None
    if place is not None:
        of_plan = {"over": over, "set": settings, "preset": preset, "out": out}
        of_plan |= {"group-size": group_size, "search": search_given["spaces"]}
        refuse_new_plan(what, of_plan | {name: search_given[name] for name in OF_SEARCH})
    elif what not in TASKS and (resume or not (over or search_given["spaces"])):
        refuse_missing(what)
    of_sweep = {"slurm": slurm, "only": only, "dry-run": dry_run, "group-size": group_size}
    refuse_idle(what, resume, executor, of_sweep, search_given | {"trials": trials})
    at_once = workers or workers_on(device)
    request = SweepRequest(executor, device, options, at_once, probe_options, loggers, as_json)
    if is_search(what):
        if not resume and trials is None:
            return show_search(Path(what), as_json)
        return run_search_command(None, Path(what), trials, request)
    if search_given["spaces"]:
        texts = [*preset_settings(what, preset), *settings]
        search = described_search(what, texts, over, search_given)
        return run_search_command(search, out or Path("runs") / f"search-{what}", trials, request)
    refuse_absent_logs(executor, loggers)
    if place is not None:
        groups, out = groups_in(place), place
        if not resume and only is None and not dry_run:
            return show_sweep(groups, out, request)
    else:
        groups, out = _planned(what, over, settings, preset, out, device, group_size)
    if dry_run:
        _say(groups, out, executor, device, options)
        return 0
    if only is not None:
        return run_only_command(groups, only, out, request)
    return run_sweep_command(groups, out, request)


def probe_settings(
    settings: Sequence[str], probes: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, dict[str, Any]]]:
    """The ``--set`` texts that are not of a named probe, and the settings of each probe.

    Raises:
        UnknownNameError, ParameterError: no such probe, or no such setting.
    """
    kinds = {name: PROBES[name] for name in dict.fromkeys(probes)}  # an unknown one is said first
    mine = [text for text in settings if text.partition("=")[0].partition(".")[0].strip() in kinds]
    return tuple(text for text in settings if text not in mine), assign(mine, kinds)


def _planned(
    what: str,
    over: tuple[str, ...],
    settings: tuple[str, ...],
    preset: str | None,
    out: Path | None,
    device: str,
    group_size: int | None,
) -> tuple[list[Group], Path]:
    """The groups of a task's or a file's sweep, and its directory."""
    from mechint.sweeps import plan
    from mechint.sweeps.plan import GROUP, swept_values

    described: Mapping[str, Any] = (
        read_file(Path(what)) if what.endswith((".json", ".toml")) else {"task": what}
    )
    task = described["task"]
    if "/" in task:
        raise ParameterError(
            f"sweep {task}: there is no such directory; expected a sweep's or a task"
        )
    TASKS[task]  # an unknown task is said so first
    # a text of the file is read as on the command line: TOML has no other way to say none
    in_file = {
        name: [parse_value(one, f"{what}: {name}") if isinstance(one, str) else one for one in some]
        for name, some in described.get("over", {}).items()
    }
    values = {**in_file, **swept_values(over)}
    if not values:
        raise ParameterError(
            f"sweep {what}: nothing is swept; give --over, such as --over seed=0:8, or train one "
            "model with mechint train"
        )
    texts = [
        f"{name}={value}" if isinstance(value, str) else assignment(name, value)
        for name, value in described.get("set", {}).items()
    ]
    groups = plan(
        task,
        [*preset_settings(task, preset), *texts, *settings],
        values,
        device,
        group_size or GROUP,
    )
    return groups, out or Path("runs") / f"sweep-{task}"


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
