"""``mechint sweep``: many runs as one table that can stop and go on, or a search for settings."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mechint.cli.common import (
    complete,
    count_option,
    device_option,
    example_commands,
    json_option,
    log_option,
    path_option,
    plugin_option,
    print_error,
    print_json,
    propose,
    set_option,
    split_commas,
    workers_option,
)
from mechint.cli.train import preset_option, preset_settings
from mechint.config import assign
from mechint.errors import ParameterError, UnknownNameError, counted, in_words
from mechint.registry import PROBES, TASKS
from mechint.system.progress import counting, echo, summary, training_bar

if TYPE_CHECKING:
    from mechint.sweeps import RunGroup

Rows = list[dict[str, Any]]
Request = Mapping[str, Any]
"""The options of the command by name, "slurm" and "probes" as mappings."""
SEARCH_FILE, PLAN_FILE, TABLE = "search.json", "sweep.json", "sweep.csv"
TRIALS = 20
"""Trials of a search where ``--trials`` is not given."""


@click.command(
    short_help="Train every combination of values; resumable.",
    epilog=example_commands(
        "mechint sweep modular-arithmetic --over seed=0:8 --over d_model=8,16,32",
        "mechint sweep modular-arithmetic --preset fast --over seed=0:16 --probe fourier --out S",
        "mechint sweep modular-arithmetic --search lr=1e-4..1e-2:log --trials 50",
        "mechint sweep runs/sweep-modular-arithmetic            # its status",
        "mechint sweep runs/sweep-modular-arithmetic --resume",
        "mechint sweep plan.toml --executor slurm --slurm time=2:00:00",
    ),
)
@click.argument("what", metavar="TASK|FILE|DIR", shell_complete=complete(TASKS, paths=True))
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
    help="An option of sbatch (time, mem, partition, account); also concurrent, groups_per_task, "
    "setup. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Say what would run, and about how long, and stop.")
@workers_option
@count_option(
    "--group-size",
    help="Runs that train as one ensemble, at most: smaller groups keep more cores or nodes at "
    "work. A part of the plan.  [default: 16]",
    high=128,
)
@path_option(
    "--out",
    help="The sweep's directory; a stopped sweep goes on there.  [default: runs/sweep-TASK]",
    metavar="DIR",
)
@click.option("--resume", is_flag=True, help="Go on with the sweep in DIR; begin it where none is.")
@click.option(
    "--other-sources",
    is_flag=True,
    help="Go on though the file of the task, or one that it imports, has changed since.",
)
@click.option(
    "--probe",
    "probes",
    multiple=True,
    callback=split_commas,
    metavar="NAME,…",
    help="Comma-separated probes whose numbers on the runs stand in DIR/sweep.csv in the end.",
    shell_complete=complete(PROBES, several=True),
)
@click.option(
    "--search",
    "spaces",
    multiple=True,
    metavar="NAME=LOW..HIGH[:log]",
    help="A setting to search in, by Optuna; or NAME=A,B,C. May be repeated.",
)
@click.option(
    "--objective",
    metavar="NAME",
    default="test.accuracy",
    show_default=True,
    help="What a search optimizes: a metric, or PROBE.METRIC. Losses of the training and test "
    "splits are minimized, everything else is maximized.",
)
@count_option("--trials", help=f"How many settings are tried.  [default: {TRIALS}]", high=100_000)
@click.option(
    "--sampler",
    type=click.Choice(["tpe", "random"]),
    default="tpe",
    show_default=True,
    help="Draw from what earlier trials gave (Bayesian), or at random.",
)
@click.option(
    "--minimize/--maximize", default=None, help="Which end of the objective is the best one."
)
@log_option
@device_option
@json_option
def sweep(what: str, **given: Any) -> int:
    """Train TASK over all combinations of values; or the sweep that a FILE (JSON or TOML: task,
    set, over) describes; or, with --search, look for the settings that do best. For the directory
    DIR of a sweep or a search: print its status, or continue it with --resume.
    """
    from mechint.sweeps.on_slurm import parse_options
    from mechint.training import workers_on

    settings, probes = probe_settings(given["settings"], given["probes"])
    workers = given["workers"] or workers_on(given["device"])
    request = {**given, "slurm": parse_options(given["slurm"]), "workers": workers}
    request["probes"] = probes
    place = Path(what)
    planned_here, searched = (place / PLAN_FILE).is_file(), (place / SEARCH_FILE).is_file()
    _check_options(what, planned_here or searched, given)
    if searched:
        if not given["resume"] and given["trials"] is None:
            return show_search(place, request["as_json"])
        return run_search_command(place, given["trials"], request)
    if given["spaces"]:
        search = described_search(what, settings, given)
        out = given["out"] or Path("runs") / f"search-{what}"
        return run_search_command(out, given["trials"], request, search)
    if planned_here:
        from mechint.sweeps import read_plan
        from mechint.sweeps.directory import probes_of

        groups, out = read_plan(place), place
        probes_of(out)  # a damaged file is said before anything else
        if not given["resume"] and not given["dry_run"]:
            return show_sweep(groups, out, request)
    else:
        groups, out = planned(what, settings, given)
    if given["dry_run"]:
        for group in groups:
            click.echo(f"group {group.name}: {', '.join(group.run_ids)}")
        if groups:
            with counting("timing ten steps"):
                seconds = seconds_of(groups[0], out) * sum(len(one.runs) for one in groups)
            many = counted(min(workers, len(groups)), "core")
            told = in_words(seconds / min(workers, len(groups)))
            print_error(f"about {told} on {many}, by ten steps of group {groups[0].name}")
        return 0
    return run_sweep_command(groups, out, request)


def seconds_of(group: RunGroup, out: Path) -> float:
    """Seconds that a run of a group takes on one core, by what ten of its steps take."""
    from mechint.training import train_many

    specs, took = group.specs(out), list[float]()
    for steps in (2, 12):
        some = [
            dataclasses.replace(
                one, out=None, train=dataclasses.replace(one.train, steps=steps, checkpoints=None)
            )
            for one in specs
        ]
        start = time.perf_counter()
        train_many(some, parts=[range(len(some))], threads=1)
        took.append(time.perf_counter() - start)
    return max(took[1] - took[0], 0.0) / 10 * specs[0].train.steps / len(specs)


OF_A_PLAN = {"over", "settings", "preset", "out", "group_size", "spaces"}
OF_A_SEARCH = {"objective", "minimize", "sampler"}
OF_A_SWEEP = {"executor", "dry_run", "slurm", "group_size"}
"""Options of what is planned once, of a search alone, and of a sweep alone."""


def _check_options(what: str, there: bool, given: Mapping[str, Any]) -> None:
    """ParameterError where options cannot be followed together; there: whether `what` is the
    directory of a sweep or a search.
    """
    context = click.get_current_context()

    def refuse(names: set[str], why: str) -> None:
        for one in context.command.params:
            typed = context.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE
            if typed and one.name in names:
                raise ParameterError(f"sweep {what}: {one.opts[0]}: {why}")

    if there:
        mine = {"settings"} if given["probes"] else set[str]()
        why = "what a directory holds is planned already; expected a task or a file, with another"
        refuse((OF_A_PLAN | OF_A_SEARCH) - mine, f"{why} --out")
    elif what not in TASKS and not what.endswith((".json", ".toml")):
        error = UnknownNameError.of("task", what, TASKS)
        raise ParameterError(f"sweep {what}: there is no such directory of a sweep, and {error}")
    if given["spaces"]:
        refuse(OF_A_SWEEP, "a search trains its trials here; leave it out")
    elif given["executor"] != "slurm":
        refuse({"slurm"}, "is for --executor slurm")
    elif given["loggers"]:
        refuse({"loggers"}, "is for mechint sweep DIR; this command does not wait for Slurm")


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


# --- a sweep --------------------------------------------------------------------------------------
def planned(
    what: str, settings: Sequence[str], given: Mapping[str, Any]
) -> tuple[list[RunGroup], Path]:
    """The groups of a task's or a file's sweep, and its directory."""
    from mechint.sweeps.planning import GROUP, plan, read_file, swept_values

    task, texts, over = what, list[str](), dict[str, list[Any]]()
    if what.endswith((".json", ".toml")):
        task, texts, over = read_file(Path(what))
    TASKS[task]  # an unknown task is said so first
    values = {**over, **swept_values(given["over"])}
    if not values:
        raise ParameterError(
            f"sweep {what}: nothing is swept; give --over, such as --over seed=0:8, or train one "
            "model with mechint train"
        )
    texts = [*preset_settings(task, given["preset"]), *texts, *settings]
    groups = plan(task, texts, values, given["device"], given["group_size"] or GROUP)
    return groups, given["out"] or Path("runs") / f"sweep-{task}"


def run_sweep_command(groups: list[RunGroup], out: Path, request: Request) -> int:
    """Run what is not finished; the exit status."""
    from mechint.models import find_device
    from mechint.sweeps import keep_plan, keep_probes, run_sweep
    from mechint.sweeps.executors import check_executor
    from mechint.training.loggers import forwarding
    from mechint.training.plan import check_memory

    check_executor(request["executor"], request["slurm"])
    if out.exists():
        keep_plan(groups, out)  # what stands there is refused first
    specs = [spec for group in groups for spec in group.specs(out)]
    if request["executor"] == "local":
        check_memory(specs, find_device(request["device"]))
    keep_plan(groups, out)
    keep_probes(out, request["probes"])
    rows: Rows = []
    with (
        training_bar(f"sweep of {counted(len(specs), 'run')}") as bar,
        forwarding(_places(groups, out), request["loggers"], bar) as report,
    ):
        for done in run_sweep(
            groups,
            out,
            request["executor"],
            request["device"],
            report,
            workers=request["workers"],
            options=request["slurm"],
            other_sources=request["other_sources"],
        ):
            rows += done
            if not request["as_json"]:
                print_rows(done)
    if request["as_json"]:
        print_json(rows)
    counts = _conclude(rows)
    if _is_whole(counts):
        measure(out, request)
        if not request["as_json"]:
            propose("table", out)
    if counts["interrupted"]:
        raise KeyboardInterrupt
    return 2 if counts["failed"] else 0


def show_sweep(groups: list[RunGroup], out: Path, request: Request) -> int:
    """Print how a sweep stands; what has come since is measured and sent where that was asked for.
    The exit status is 0 whatever has failed.
    """
    from mechint.sweeps import keep_probes, status
    from mechint.training.loggers import Forwarder

    keep_probes(out, request["probes"])
    Forwarder(_places(groups, out), request["loggers"]).close()
    rows = status(groups, out)
    (print_json if request["as_json"] else print_rows)(rows)
    counts = _conclude(rows)
    text = ", ".join(f"{count} {name}" for name, count in counts.items())
    left = counts["waiting"] + counts["interrupted"] + counts["failed"]
    print_error(f"{out}: {text}" + ("; --resume goes on" if left else ""))
    if _is_whole(counts) and (request["probes"] or not (out / TABLE).exists()):
        measure(out, request)
    return 0


def measure(out: Path, request: Request) -> None:
    """Write the runs and the numbers of the sweep's probes to DIR/sweep.csv."""
    from mechint.run_table import runs
    from mechint.sweeps.directory import probes_of

    chosen = probes_of(out)
    if not chosen:
        return
    table = runs(out, workers=request["workers"], device=request["device"])
    table = dataclasses.replace(table, measurements=tuple(chosen))
    with counting("measuring") as report:
        place = table.csv(out / TABLE, report)
    names = ", ".join(measurement.probe.name for measurement in chosen)
    print_error(f"{names} of {counted(len(table), 'run')}: {place}")


def _places(groups: Sequence[RunGroup], out: Path) -> list[Path]:
    return [out / run for group in groups for run in group.run_ids]


def _is_whole(counts: Mapping[str, int]) -> bool:
    """Return whether no run is still to be trained, or being trained."""
    return not any(counts[name] for name in ("waiting", "interrupted", "submitted", "running"))


def _conclude(rows: Rows) -> Counter[str]:
    """Say on stderr which runs failed, and how many another process trains; how many have each
    status.
    """
    for row in rows:
        if row["status"] == "failed":
            print_error(f"run {row['id']} failed: {row.get('error', 'see its directory')}")
    counts = Counter(row["status"] for row in rows)
    if counts["running"]:
        print_error(f"another process trains {counted(counts['running'], 'run')}")
    return counts


def print_rows(rows: Rows) -> None:
    """A line per run on stdout: its id, its status and its main numbers."""
    width = max((len(row["id"]) for row in rows), default=0)
    for row in rows:
        line = f"{row['id']:<{width}}  {row['status']:<11}  {summary(row['metrics'])}"
        echo(line.rstrip())


# --- a search -------------------------------------------------------------------------------------
def described_search(task: str, settings: Sequence[str], given: Mapping[str, Any]) -> Any:
    """The search of a command line, every end of its spaces checked."""
    from mechint.sweeps.planning import swept_values
    from mechint.sweeps.search import Space, SweepSearch

    spaces = tuple(Space.parse(text) for text in given["spaces"])
    names = [space.name for space in spaces]
    over = swept_values(given["over"])
    twice = next((name for name in names if names.count(name) > 1 or name in over), None)
    if twice is not None:
        raise ParameterError(f"--search {twice}: is given twice; expected once, and not in --over")
    objective, minimize = given["objective"], given["minimize"]
    if minimize is None:
        minimize = "loss" in objective
        if minimize and objective.partition(".")[0] in PROBES:
            raise ParameterError(
                f"--objective {objective}: is a loss after an intervention or on a part of the "
                "data; say --minimize or --maximize"
            )
    texts = (*preset_settings(task, given["preset"]), *settings)
    return SweepSearch(task, texts, spaces, over, objective, minimize, given["sampler"])


def run_search_command(
    out: Path, n_trials: int | None, request: Request, search: Any = None
) -> int:
    """Search, or go on where `search` is None; print every trial and the best one; the exit
    status.
    """
    from mechint.models import find_device
    from mechint.sweeps import keep_probes
    from mechint.sweeps.search import keep_search, read_search, run_search, trials
    from mechint.training.loggers import forwarding
    from mechint.training.plan import check_memory

    if search is not None:
        search = dataclasses.replace(search, trials=n_trials or TRIALS)
        ends = {space.name: space.ends[-1] for space in search.spaces}
        check_memory(search.specs(0, ends, out), find_device(request["device"]))
        keep_search(search, out)
    else:
        search = read_search(out)
        if n_trials is not None:
            search = dataclasses.replace(search, trials=n_trials)
            keep_search(search, out)
    keep_probes(out, request["probes"], wait=False)
    wanted = max(search.trials, len(trials(out)))

    def trial_places() -> list[Path]:
        return sorted(file.parent for file in out.glob("trial=*/**/config.json"))

    with (
        training_bar(f"search of {counted(wanted, 'trial')}") as bar,
        forwarding(trial_places, request["loggers"], bar) as report,
    ):
        for rows in run_search(
            *(out, wanted, request["device"], report, request["workers"], request["other_sources"])
        ):
            if not request["as_json"]:
                print_trials(rows, search.objective)
    measure(out, request)
    return show_search(out, request["as_json"], printed=True)


def show_search(out: Path, as_json: bool, printed: bool = False) -> int:
    """Print the trials of the search in `out`, and the best one as settings to train with."""
    from mechint.sweeps.planning import setting_text
    from mechint.sweeps.search import read_search, trials

    search, rows = read_search(out), trials(out)
    if as_json:
        print_json(rows)
    elif not printed:
        print_trials(rows, search.objective)
    done = [row for row in rows if row["value"] is not None]
    if done:
        best = (min if search.minimize else max)(done, key=lambda row: row["value"])
        texts = [*search.settings, *(setting_text(*one) for one in best["parameters"].items())]
        settings = "".join(f" --set {shlex.quote(text)}" for text in texts)
        print_error(
            f"best of {len(rows)}: {best['id']}, {'least' if search.minimize else 'largest'} "
            f"{search.objective} {best['value']:.6g}; "
            f"mechint train {search.task}{settings}"
        )
    elif rows:
        print_error(f"{out}: no trial has ended with a value yet; --resume goes on")
    return 0 if done or not rows else 2


def print_trials(rows: Sequence[Mapping[str, Any]], objective: str) -> None:
    """A line per trial: its settings, and what it gave."""
    for row in rows:
        values = "  ".join(
            f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in row["parameters"].items()
        )
        gave = row["status"] if row["value"] is None else f"{objective} {row['value']:.6g}"
        echo(f"{row['id']}  {values}  {gave}")
