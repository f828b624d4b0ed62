"""``mechint analyze`` and ``compare``: open one checkpoint or two, point probes at them, and show
what they found.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mechint.cli.common import (
    GroupedCommand,
    data_option,
    example_commands,
    model_options,
    out_option,
    print_error,
    print_json,
    probe_option,
    set_option,
    task_option,
)
from mechint.cli.opening import Opening, check_exist, check_options, one_model
from mechint.cli.verify import call_of
from mechint.errors import NotApplicableError, ParameterError, RunError
from mechint.registry import EXPLANATIONS, PROBES
from mechint.system.progress import console, counting

if TYPE_CHECKING:
    from mechint.account import Account
    from mechint.report import Page


@click.command(
    cls=GroupedCommand,
    short_help="Run probes on a checkpoint or a run of any known format.",
    epilog=example_commands(
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
    check_options(given)
    opening, account, problems = open_and_probe(one_model(paths, "analyze"), given)
    # the file first: whoever reads our output may close it early
    if given["out"] is not None and account.results:
        problems += write(report_of(opening, account), given)
    if given["as_json"] or given["brief"]:
        from mechint.account import accounts_json

        print_account(account, given, [opening.path], accounts_json([account]))
    else:
        from mechint.account.terminal import account_text
        from mechint.probe.text import full_text

        screen = console()
        screen.print(account_text(account, screen.width), soft_wrap=True)
        if given["full"]:
            screen.print(full_text(account.results, screen.width), soft_wrap=True)
    return report_problems(problems)


def open_and_probe(path: Path, given: Mapping[str, Any]) -> tuple[Opening, Account, list[str]]:
    """Open one model and run its probes, all quick ones that apply when none is named; a line for
    each that could not run.
    """
    from mechint.account.account import probe_model

    with counting(f"opening {path}"):
        from mechint.probe import quick_probes

        named = given["names"]
        # the subject is not open yet: settings may be those of any quick probe
        opening = Opening(path, given, named or quick_probes())
        subject = opening.subject
        warnings = opening.checkpoint.warnings()
    with counting("probing") as update:
        *_, settings = opening.owners_settings
        account, errors = probe_model(
            subject, named, settings, seed=given["seed"], warnings=warnings, on_probe=update
        )
    if not named:
        more = next_commands(opening, account)
        account = dataclasses.replace(account, next=tuple(more))
    # a quick probe that does not apply is no error of one who did not name it
    problems = [
        str(error)
        for error in errors
        if named or not account.results or not isinstance(error, NotApplicableError)
    ]
    return opening, account, problems


def print_account(
    account: Account, given: Mapping[str, Any], paths: Sequence[Path], whole: Mapping[str, Any]
) -> None:
    """The account in brief or as a `whole`, with what `mechint verify` reads."""
    from mechint.account.brief import brief

    called = call_of(paths)
    print_json(brief(account, verify=called) if given["brief"] else {**whole, "verify": called})


def next_commands(opening: Opening, account: Account) -> list[str]:
    """Commands that tell more about a model whose quick probes were run, and programs of it audited
    or not.
    """
    place, opened, subject = shlex.quote(str(opening.path)), opening.checkpoint, opening.subject
    served = any(EXPLANATIONS[name]().applies(subject) for name in EXPLANATIONS)
    further = ("ablation", "circuits", "subspace")
    able = [name for name in further if PROBES[name].from_dict({}).applicable(subject) is None]
    commands = [opening.command(places=f"{place} {named}") for named in opened.proposals]
    asks = able and opened.task is not None and opening.given["data"] is None
    if asks and not account.results:  # no quick probe applies
        return [*commands, opening.command(f"--probe {','.join(able)}")]
    if opening.given["out"] is None:
        commands.append(opening.command("--out report.html"))
    if served and opened.task and opened.task.own_program is not None and not account.audits:
        commands.append(opening.command(verb="explain"))
    elif len(opened.series) > 1:
        commands.append(f"mechint table {place} --over-steps")
    elif asks:
        commands.append(opening.command(f"--probe {','.join(able)}"))
    return commands


def report_of(opening: Opening, account: Account, verb: str = "analyze") -> Page:
    """The report of what was found, made again by the command that wrote it."""
    from mechint.report import page_of, training_section

    place, names = shlex.quote(str(opening.checkpoint.path)), list(account.results)
    out = f"--out {shlex.quote(str(opening.given['out']))}"
    page = page_of(
        account,
        command=opening.command(out, probes=names, places=place, verb=verb),
        commands={name: opening.command(probes=[name], places=place) for name in names},
    )
    training = training_section(opening.checkpoint)
    return dataclasses.replace(page, sections=[*page.sections, *training])


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


# --- two models -----------------------------------------------------------------------------------
@click.command(
    cls=GroupedCommand,
    short_help="Put two models side by side, and run the program of each on the other.",
    epilog=example_commands(
        "mechint compare runs/seed-0 runs/seed-1",
        "mechint compare clock.pt pizza.pt --out both.html",
        "mechint compare first.pt second.pt --data prompts.jsonl",
    ),
)
@click.argument("paths", metavar="A B", nargs=-1, required=True, type=click.Path(path_type=Path))
@probe_option
@task_option
@set_option
@data_option
@out_option
@model_options
def compare(paths: tuple[Path, ...], **given: Any) -> int:
    """Run probes on two models and say in at most six rows what differs; of two models of one task,
    audit the best program of each on the other: do they run the same one, up to the heads that run
    it?
    """
    if len(paths) != 2:
        said = f"compare: is for two models, got {len(paths)}; mechint "
        more = "table PATH… is a row of each" if len(paths) > 2 else "analyze PATH is for one"
        raise ParameterError(said + more)
    check_options(given)
    check_exist(paths)
    found = [open_and_probe(path, given) for path in paths]
    with counting("comparing programs"):
        from mechint.account import accounts_json
        from mechint.account.account import compare_programs
        from mechint.account.brief import brief_of_two

        first, second = (opening.subject for opening, *_ in found)
        programs, said = compare_programs(first, second, seed=given["seed"])
    accounts = [dataclasses.replace(account, next=()) for _, account, _ in found]
    if programs is not None:
        best = programs.first, programs.second
        accounts = [one.explained([it]) for one, it in zip(accounts, best, strict=True)]
    problems = [problem for *_, some in found for problem in some]
    if out := given["out"]:
        from mechint.report import comparison_page

        more, places = f"--out {shlex.quote(str(out))}", shlex.join(map(str, paths))
        command = found[0][0].command(more, probes=given["names"], places=places, verb="compare")
        problems += write(comparison_page(accounts, command, said), given)
    if given["brief"]:
        print_json({**brief_of_two(accounts, said), "verify": call_of(paths)})
    elif given["as_json"]:
        crossed = {"sentence": said} if programs is None else programs.to_dict()
        whole = {**accounts_json(accounts), "programs": crossed}
        print_json({**whole, "verify": call_of(paths)})
    else:
        from mechint.account.terminal import comparison_text

        screen = console()
        screen.print(comparison_text(accounts, screen.width, said), soft_wrap=True)
    return report_problems(problems)
