"""``mechint sweep TASK --search ...``: look for the settings that do best."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mechint.cli.common import print_error, print_json
from mechint.cli.progress import progress_bar
from mechint.cli.resources import check_and_announce
from mechint.errors import ParameterError, counted
from mechint.registry import PROBES

if TYPE_CHECKING:
    from mechint.cli.sweep_run import SweepRequest
    from mechint.sweeps.search import Search

FILE = "search.json"
TRIALS, OBJECTIVE, SAMPLER = 20, "test.accuracy", "tpe"
"""What is taken where the option is not given."""


def search_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a search."""
    for option in (
        click.option(
            "--maximize",
            is_flag=True,
            help="The largest objective is the best one.",
        ),
        click.option(
            "--minimize",
            is_flag=True,
            help="The least objective is the best one.",
        ),
        click.option(
            "--sampler",
            type=click.Choice(["tpe", "random"]),
            help="Draw from what earlier trials gave (Bayesian), or at random.  "
            f"[default: {SAMPLER}]",
        ),
        click.option(
            "--trials",
            type=click.IntRange(1, 100_000),
            metavar="N",
            help=f"How many settings are tried.  [default: {TRIALS}]",
        ),
        click.option(
            "--objective",
            metavar="NAME",
            help="What to optimize: a metric, or PROBE.METRIC. Losses of the training and test "
            "splits are minimized, everything else is maximized.  "
            f"[default: {OBJECTIVE}]",
        ),
        click.option(
            "--search",
            "spaces",
            multiple=True,
            metavar="NAME=LOW..HIGH[:log]",
            help="A setting to search in, by Optuna; or NAME=A,B,C. May be repeated.",
        ),
    ):
        command = option(command)
    return command


def is_search(what: str) -> bool:
    """Whether `what` is the directory of a search."""
    return (Path(what) / FILE).is_file()


def described_search(
    task: str, settings: Sequence[str], over: Sequence[str], options: Mapping[str, Any]
) -> Search:
    """The search of a command line, every end of its spaces checked."""
    from mechint.sweeps.plan import swept_values
    from mechint.sweeps.search import Search, Space

    spaces = tuple(Space.parse(text) for text in options["spaces"])
    names = [space.name for space in spaces]
    values = swept_values(over)
    twice = next((name for name in names if names.count(name) > 1 or name in values), None)
    if twice is not None:
        raise ParameterError(f"--search {twice}: is given twice; expected once, and not in --over")
    objective = options["objective"] or OBJECTIVE
    if options["minimize"] and options["maximize"]:
        raise ParameterError("--minimize and --maximize: expected one of them")
    minimize = options["minimize"] or (not options["maximize"] and _minimized(objective))
    sampler = options["sampler"] or SAMPLER
    return Search(task, tuple(settings), spaces, values, objective, minimize, sampler)


def _minimized(objective: str) -> bool:
    """Whether the least of a metric is the best one, where its name says it.

    Raises:
        ParameterError: a loss that a probe gives, which one may want either way.
    """
    if objective.partition(".")[0] not in PROBES:
        return "loss" in objective.split(".")
    if "loss" in objective.replace("_", ".").split("."):
        raise ParameterError(
            f"--objective {objective}: is a loss after an intervention or on a part of the data; "
            "say --minimize or --maximize"
        )
    return False


def run_search_command(
    search: Search | None,
    out: Path,
    trials: int | None,
    request: SweepRequest,
) -> int:
    """Search, or go on where `search` is None; print every trial and the best one; the exit
    status.
    """
    from mechint.sweeps.measuring import keep_probes
    from mechint.sweeps.search import check_objective, keep_search, read_search, run_search
    from mechint.sweeps.search import trials as trials_of
    from mechint.training.loggers import forwarding

    if search is not None:
        first = {one.name: (one.choices or (one.high,))[0] for one in search.spaces}
        whole = {one.name: int(first[one.name]) for one in search.spaces if one.whole}
        specs = search.specs(0, first | whole, out)
        check_and_announce(specs, request.device, request.workers)
        check_objective(search.objective, specs[0])
        keep_search(search, out)
    else:
        search = read_search(out)
    keep_probes(out, request.probes, wait=False)
    wanted = trials or max(TRIALS, len(trials_of(out)))
    with (
        progress_bar(f"search of {counted(wanted, 'trial')}") as bar,
        forwarding(lambda: run_places(out), request.loggers, bar) as report,
    ):
        for rows in run_search(out, wanted, request.device, report, request.workers):
            if not request.as_json:
                print_trials(rows, search.objective)
    return show_search(out, request.as_json, printed=True)


def show_search(out: Path, as_json: bool, printed: bool = False) -> int:
    """The trials of the search in `out`, and the best one as settings to train with."""
    from mechint.sweeps.plan import setting_text
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
    return 0 if done or not rows else 2


def run_places(out: Path) -> list[Path]:
    """The run directories of the trials so far."""
    return sorted(file.parent for file in out.glob("trial=*/**/config.json"))


def print_trials(rows: Sequence[Mapping[str, Any]], objective: str) -> None:
    """A line per trial: its settings, and what it gave."""
    for row in rows:
        values = "  ".join(
            f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in row["parameters"].items()
        )
        gave = row["status"] if row["value"] is None else f"{objective} {row['value']:.6g}"
        click.echo(f"{row['id']}  {values}  {gave}")
