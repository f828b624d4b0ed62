"""``mechint analyze``: open a checkpoint, point probes at it, and show what they found."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mechint.cli.common import (
    GroupedCommand,
    data_option,
    examples,
    model_options,
    out_option,
    print_error,
    print_json,
    probe_option,
    set_option,
    task_option,
)
from mechint.cli.opening import Opening, check_names, check_page, one_model, warnings_of
from mechint.errors import RunError
from mechint.system.progress import console, counting, spinner

if TYPE_CHECKING:
    from mechint.account import Account
    from mechint.checkpoints import Checkpoint
    from mechint.report import Page
    from mechint.subject import Subject


@click.command(
    cls=GroupedCommand,
    short_help="Run probes on a checkpoint or a run of any known format.",
    epilog=examples(
        "mechint analyze runs/add --out report.html",
        "mechint analyze model.pt --task modular-arithmetic --set p=113 --probe fourier",
        "mechint analyze runs/add --probe das --set das.dimensions=1,2",
        "mechint analyze models/gpt2 --data prompts.jsonl --probe patching --out report.html",
    ),
)
@click.argument("paths", metavar="PATH", nargs=-1, required=True, type=click.Path(path_type=Path))
@probe_option
@task_option
@set_option
@data_option
@out_option
@click.option("--full", is_flag=True, help="Print every finding and every number.")
@model_options
def analyze(paths: tuple[Path, ...], **given: Any) -> int:
    """Run probes on a checkpoint of any known format, or on a run directory; all quick ones that
    apply when none is named, and the model's program where none of them says what it computes.

    Settings of a probe are reached as --set PROBE.NAME=VALUE, the task's as --set NAME=VALUE, and
    what the file does not state of the model as --set model.NAME=VALUE.
    """
    check_names(given)
    path, out = one_model(paths, "analyze"), given["out"]
    check_page(given)
    found = measure(Opening.of(path, given), written=out is not None)
    # the file first: whoever reads our output may close it early
    page = report_of(found, out) if out is not None and found.account.results else None
    problems = [*found.problems, *(write(page, given) if page is not None else ())]
    if given["as_json"]:
        from mechint.account import accounts_json

        print_json(accounts_json([found.account]))
    else:
        from mechint.account.terminal import account_text
        from mechint.probe.text import full_text

        screen = console()
        screen.print(account_text(found.account, screen.width), soft_wrap=True)
        if given["full"]:
            screen.print(full_text(found.account.results, screen.width), soft_wrap=True)
    return report_problems(problems)


class Analysis(NamedTuple):
    """One model with what its probes found, and a line for each probe that could not run."""

    opening: Opening
    opened: Checkpoint
    subject: Subject
    account: Account
    problems: list[str]


def measure(opening: Opening, *, written: bool = False) -> Analysis:
    """Open one model and run its probes, all quick ones that apply when none is named; a report is
    `written` or not, which decides what is proposed next.
    """
    from mechint.account.analysis import probe_model

    named = bool(opening.probes)
    with spinner(f"opening {opening.path}"):
        from mechint.probe import quick_probes

        if not named:
            opening = dataclasses.replace(opening, probes=tuple(quick_probes()))
        opened = opening.load()
        subject = opening.subject(opened)
        if not named:
            opening = dataclasses.replace(opening, probes=tuple(quick_probes(subject)))
    with counting("probing") as update:
        account, errors = probe_model(
            subject,
            opening.probes if named else (),
            opening.sorted[2],
            seed=opening.seed,
            warnings=warnings_of(opened),
            told=update,
        )
    if not named:
        more = next_commands(opening, opened, written, bool(account.audits))
        account = dataclasses.replace(account, next=tuple(more))
    problems = [str(error) for error in errors] if named or not account.results else []
    return Analysis(opening, opened, subject, account, problems)


def next_commands(
    opening: Opening, opened: Checkpoint, written: bool, explained: bool
) -> list[str]:
    """Commands that tell more about a model whose quick probes were run, and whose report was
    `written` or not, and programs of it audited or not.
    """
    place = shlex.quote(str(opening.path))
    fitting = opened.proposals if opened.task is None else ()
    commands = [opening.command(places=f"{place} {named}") for named in fitting]
    if not written:
        commands.append(opening.command("--out report.html"))
    if opened.task is not None and opened.task.own_program is not None and not explained:
        commands.append(opening.command(verb="explain"))
    elif len(opened.series) > 1:
        commands.append(f"mechint table {place} --over-steps")
    elif opened.task is not None and opening.data is None:
        commands.append(opening.command("--probe ablation,circuits"))
    return commands


def report_of(found: Analysis, out: Path, verb: str = "analyze") -> Page:
    """The report of what was found, made again by the command that wrote it to `out`."""
    from mechint.report import page_of, training_section

    opening, account = found.opening, found.account
    place, names = shlex.quote(str(found.opened.path)), list(account.results)
    page = page_of(
        account,
        command=opening.command(
            f"--out {shlex.quote(str(out))}", probes=names, places=place, verb=verb
        ),
        commands={name: opening.command(probes=[name], places=place) for name in names},
    )
    return dataclasses.replace(page, sections=[*page.sections, *training_section(found.opened)])


def write(page: Page, given: Any) -> list[str]:
    """Write a report to ``--out``; a line for what went wrong, so that the findings are still
    shown.
    """
    from mechint.report import write_page

    try:
        write_page(page, given["out"], light=given["light"])
    except RunError as error:
        return [str(error)]
    print_error(f"report written to {given['out']}")
    return []


def report_problems(problems: Sequence[str]) -> int:
    """Print what could not be done; the exit status."""
    for problem in problems:
        print_error(problem)
    return 2 if problems else 0
