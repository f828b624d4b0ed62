"""``mechint analyze``: open a checkpoint, point probes at it, and show what they found."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mechint.cli.common import (
    PLUGINS,
    answer_of,
    complete,
    count_option,
    examples,
    force_option,
    foreign_options,
    json_option,
    mapping_option,
    path_option,
    plugin_option,
    print_error,
    print_json,
    split_commas,
)
from mechint.cli.opening import Opening, warnings_of
from mechint.cli.table import show_table, wants_table
from mechint.errors import CheckpointError, ParameterError, RunError, UnknownNameError
from mechint.registry import PROBES, TASKS
from mechint.system.progress import console, counting, spinner

if TYPE_CHECKING:
    from mechint.account import Account
    from mechint.checkpoints import Checkpoint
    from mechint.explanation import Audit
    from mechint.explanation.comparison import Comparison
    from mechint.report import Page
    from mechint.subject import Subject


@click.command(
    short_help="Run probes on checkpoints and runs of any known format.",
    epilog=examples(
        "mechint analyze runs/add --out report.html",
        "mechint analyze runs/add --explain --out report.html",
        "mechint analyze model.pt --task modular-arithmetic --set p=113 --probe fourier",
        "mechint analyze runs/add --probe das --set das.dimensions=1,2",
        "mechint analyze runs/add --probe llc --over-steps --csv llc.csv",
        "mechint analyze runs/seed-0 runs/seed-1 --probe norms,lens",
        "mechint analyze models/gpt2 --data prompts.jsonl --probe patching --out report.html",
        "mechint analyze runs/add --ablate L0H2 --ablate 'L0 MLP'",
    ),
)
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--probe",
    "names",
    multiple=True,
    callback=split_commas,
    metavar="NAME,…",
    shell_complete=complete(PROBES, several=True),
    help="Comma-separated probes; all quick ones that apply when none is named.",
)
@foreign_options
@path_option(
    "--data", help="Prompts for a language model without a task: .txt, a text per line, or .jsonl."
)
@mapping_option
@click.option(
    "--ablate",
    "ablated",
    multiple=True,
    metavar="COMPONENT",
    help="Print accuracy and loss without it: L0H2, 'L1 MLP', 'L0 attention'. May be repeated.",
)
@plugin_option
@count_option("--seed", help="Seed of the probes.", low=0, default=0)
@click.option(
    "--answer",
    metavar="N|all",
    help="Which answer of an example: from 0, negative from the last one. Default: the last one.",
)
@path_option("--out", help="Write the report to this HTML file.")
@click.option("--light", is_flag=True, help="Write the report without plotly.js: static figures.")
@click.option(
    "--explain",
    "explained",
    is_flag=True,
    help="Audit programs of the model too, as `mechint explain` does; the report begins with it.",
)
@click.option("--full", is_flag=True, help="Print every finding and every number.")
@click.option("--over-steps", is_flag=True, help="One row per kept checkpoint of every run.")
@click.option(
    "--transition",
    metavar="NAME",
    help="Of a table: where along this setting (d_model, say) test accuracy passes one half.",
)
@path_option("--csv", help="Write the table of models to this CSV file.")
@count_option(
    "--workers", help="Processes that measure, where there are several models.", high=256, default=1
)
@force_option
@json_option
def analyze(paths: tuple[Path, ...], **given: Any) -> int:
    """Run probes on a checkpoint of any known format, or on a run directory.

    Several paths, a folder of runs, a sweep, --over-steps or --csv give a table instead: one row
    per model, with every probe's numbers as columns.

    With --explain the verdict says how much of the logits a program accounts for.

    Settings of a probe are reached as --set PROBE.NAME=VALUE, the task's as --set NAME=VALUE, and
    what the file does not state of the model as --set model.NAME=VALUE.
    """
    task, names, out, csv = given["task"], given["names"], given["out"], given["csv"]
    which, explained = answer_of(given["answer"]), given["explained"]
    if explained and which == "all":
        raise ParameterError("--answer all: an explanation is of one answer; expected a number")
    for registry, wanted in ((PROBES, names), (TASKS, (task,) if task else ())):
        for name in wanted:
            if name not in registry:
                raise UnknownNameError.of(registry.kind, name, registry)
    for path in paths:
        if not path.exists():
            from mechint.checkpoints.hub import from_the_hub

            raise CheckpointError(f"{path}: there is no such file{from_the_hub(path)}")
    if out is not None:
        if out.suffix in (".pdf", ".png", ".svg", ".json", ".csv"):
            raise ParameterError(
                f"--out {out}: a report is a page; expected NAME.html (a figure alone: "
                "result.figures[NAME].save(FILE) in Python)"
            )
        from mechint.report import check_writable

        check_writable(out, force=given["force"])
        if csv is not None and out.resolve() == csv.resolve():
            raise ParameterError(f"--out {out}: is the file of --csv too; expected two files")
    opening = Opening(
        paths[0],
        task,
        given["settings"],
        given["device"],
        given["data"],
        given["mapping"],
        given["seed"],
        which,
        click.get_current_context().meta.get(PLUGINS, ()),
        names,
    )
    if given["ablated"]:
        return show_ablation(opening, given["ablated"], given["as_json"])
    table_asked = given["over_steps"] or csv is not None or given["transition"] is not None
    single = all(path.is_file() or (path / "config.json").is_file() for path in paths)
    two = len(paths) == 2 and single and not table_asked
    if not two and (table_asked or wants_table(paths)):
        if explained:
            raise ParameterError(
                "--explain: is for one model or two; of a table: mechint.runs(…).explain()"
            )
        return show_table(paths, opening, given)
    found = [
        measure(
            dataclasses.replace(opening, path=path), written=out is not None, explained=explained
        )
        for path in paths
    ]
    # files first: whoever reads our output may close it early
    problems = [problem for one in found for problem in one.problems]
    programs = compared(found) if two else None
    if out is not None and (two or found[0].account.results):
        problems += write(found, out, given["light"], programs)
    show_models([one.account for one in found], given["as_json"], given["full"], programs)
    for problem in problems:
        print_error(problem)
    return 2 if problems else 0


def compared(found: Sequence[Analysis]) -> Comparison | None:
    """The programs of two models held against each other; None where one has no audit."""
    if not all(one.audits for one in found):
        return None
    with spinner("comparing programs"):
        from mechint.explanation import compare

        (first, second), seed = found, found[0].opening.seed
        best = first.audits[0], second.audits[0]
        return compare(first.subject, second.subject, seed=seed, found=best)


def show_models(
    accounts: Sequence[Account], as_json: bool, full: bool, programs: Comparison | None = None
) -> None:
    """Print one model, or two side by side: verdicts first, then what differs."""
    from mechint.account import accounts_json
    from mechint.account.terminal import account_text, comparison_text, full_text

    if as_json:
        shown = {} if programs is None else {"programs": programs.to_dict()}
        print_json({**accounts_json(accounts), **shown})
        return
    screen = console()
    width = screen.width
    if len(accounts) > 1:
        said = "" if programs is None else str(programs)
        screen.print(comparison_text(accounts, width, said), soft_wrap=True)
        return
    screen.print(account_text(accounts[0], width), soft_wrap=True)
    if full:
        screen.print(full_text(accounts[0].results, width), soft_wrap=True)


def show_ablation(opening: Opening, components: Sequence[str], as_json: bool) -> int:
    """Print accuracy and loss of one model without `components`; the exit status."""
    if opening.probes:
        raise ParameterError("--ablate: is a run of its own; leave out --probe")
    with spinner(f"opening {opening.path}"):
        from mechint.interventions import ablate

        opened = opening.load()
        found = ablate(opening.subject(opened), *components)
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        console().print(str(found), markup=False, soft_wrap=True)
    for line in warnings_of(opened):
        print_error(f"warning: {line}")
    return 0


@dataclasses.dataclass(frozen=True)
class Analysis:
    """One model with what its probes found, a line for each probe that could not run, and the
    audits that were made of it.
    """

    opening: Opening
    opened: Checkpoint
    subject: Subject
    account: Account
    problems: list[str]
    audits: Sequence[Audit] = ()


def measure(opening: Opening, *, written: bool = False, explained: bool = False) -> Analysis:
    """Open one model and run its probes, all quick ones that apply when none is named; with audits
    of programs where `explained`, and where no quick probe leads.
    """
    from mechint.account import account_of

    named = bool(opening.probes)
    with spinner(f"opening {opening.path}"):
        from mechint.probe import quick_probes, run_all

        if not named:
            opening = dataclasses.replace(opening, probes=tuple(quick_probes()))
        opened = opening.load()
        subject = opening.subject(opened)
        if not named:
            opening = dataclasses.replace(opening, probes=tuple(quick_probes(subject)))
    with counting("probing") as update:
        options = opening.sorted[2]
        results, errors = run_all(subject, opening.probes, options, seed=opening.seed, told=update)
    account = account_of(subject, results, warnings=warnings_of(opened))
    unasked = None if named else account
    audits = audits_of(opening, subject, explained=explained, unasked=unasked)
    commands = () if named else tuple(next_commands(opening, opened, written, bool(audits)))
    account = dataclasses.replace(account, next=commands)
    account = account.explained(audits) if audits else account
    problems = [str(error) for error in errors] if named or not results else []
    return Analysis(opening, opened, subject, account, problems, audits)


def audits_of(
    opening: Opening, subject: Subject, *, explained: bool, unasked: Account | None = None
) -> Sequence[Audit]:
    """Audits of programs of one model, best first: where `explained`, and else those of the account
    `unasked`, in which nothing may lead.
    """
    with spinner(f"explaining {opening.path}"):
        if explained:
            from mechint.explanation import explain

            return explain(subject, seed=opening.seed)
        if unasked is not None:
            from mechint.account.analysis import audits_where_nothing_leads

            return audits_where_nothing_leads(unasked, subject, opening.seed)
        return ()


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
        commands.append(f"mechint analyze {place} --over-steps")
    elif opened.task is not None and opening.data is None:
        commands.append(opening.command("--probe ablation,circuits"))
    return commands


def report_page(found: Analysis, out: Path) -> Page:
    """The report of what was found, made again by the command that wrote it to `out`."""
    from mechint.report import page_of, training_section

    opening, account = found.opening, found.account
    place, names = shlex.quote(str(found.opened.path)), list(account.results)
    commands = {name: opening.command(probes=[name], places=place) for name in names}
    end = [*["--explain"] * bool(account.audits), f"--out {shlex.quote(str(out))}"]
    page = page_of(
        account, command=opening.command(*end, probes=names, places=place), commands=commands
    )
    return dataclasses.replace(page, sections=[*page.sections, *training_section(found.opened)])


def write(
    found: Sequence[Analysis], out: Path, light: bool, programs: Comparison | None = None
) -> list[str]:
    """Write the report of one model or of two; a line for what went wrong, so that the findings are
    still shown.
    """
    from mechint.report import write_comparison, write_page

    try:
        if len(found) == 1:
            write_page(report_page(found[0], out), out, light=light)
        else:
            opening, places = found[0].opening, shlex.join(str(one.opening.path) for one in found)
            end = ["--explain"] if found[0].account.audits else []
            end.append(f"--out {shlex.quote(str(out))}")
            command = opening.command(*end, probes=opening.probes, places=places)
            accounts = [one.account for one in found]
            said = "" if programs is None else str(programs)
            write_comparison(accounts, out, command=command, said=said, light=light)
    except RunError as error:
        return [str(error)]
    print_error(f"report written to {out}")
    return []
