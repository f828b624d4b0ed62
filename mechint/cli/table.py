"""``mechint table``: many models as a table, as text, JSON, CSV or a page."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mechint.cli.common import (
    GroupedCommand,
    answer_option,
    count_option,
    data_option,
    device_option,
    example_commands,
    force_option,
    json_option,
    light_option,
    named_probes,
    out_option,
    path_option,
    plugin_option,
    print_error,
    print_json,
    seed_option,
    set_option,
    task_option,
)
from mechint.cli.opening import Opening, check_exist, check_options
from mechint.cli.verify import digest
from mechint.errors import ParameterError, counted, one_line
from mechint.system.progress import console, counting, echo

if TYPE_CHECKING:
    from mechint.run_table import Runs
    from mechint.run_table.entries import Entry


@click.command(
    cls=GroupedCommand,
    short_help="Tabulate runs, sweeps, steps and files: a row per model.",
    epilog=example_commands(
        "mechint table runs/sweep --probe fourier --csv sweep.csv --out sweep.html",
        "mechint table runs/add --over-steps --probe llc --csv llc.csv",
        "mechint table runs/add --over-steps --explain",
        "mechint table a.pt b.pt --task modular-arithmetic --set p=113 --probe fourier",
        "mechint table pythia/step1 pythia/step2 --over-steps --data p.jsonl --probe heads",
        "mechint table runs/sweep --transition d_model",
    ),
)
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@named_probes("Comma-separated probes, whose numbers are columns.")
@click.option("--over-steps", is_flag=True, help="One row per kept checkpoint of every run.")
@click.option("--explain", "explained", is_flag=True, help="Columns of the best program of each.")
@path_option("--csv", help="Write the table to this CSV file.")
@out_option
@click.option(
    "--transition",
    metavar="NAME",
    help="Where along this setting (d_model, say) test accuracy passes one half.",
)
@click.option(
    "--by",
    metavar="NAME",
    help="Factor along --transition by which models must be larger for one value of this setting "
    "than for another: exact shift test and profile likelihood.",
)
@click.option(
    "--ratio",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Factor that --by asks to be exceeded.",
)
@task_option
@set_option
@data_option
@answer_option
@seed_option
@count_option("--workers", help="Processes that measure.", high=256, default=1)
@device_option
@plugin_option
@light_option
@force_option
@json_option
def table(paths: tuple[Path, ...], **given: Any) -> int:
    """Tabulate models: runs, folders of runs, sweeps, the steps of a run, checkpoint files. A row
    has what differs, accuracy, and every named probe's numbers; no other probe runs.
    """
    from mechint.report.outputs import refuse_foreign
    from mechint.run_table import compare_transitions, transition
    from mechint.run_table.programs import programs_of, programs_text
    from mechint.system.files import csv_text, write_text

    check_options(given)
    check_exist(paths)
    csv, out, names, over = (given[name] for name in ("csv", "out", "names", "transition"))
    opening = Opening(paths[0], given, names)
    if given["explained"] and opening.answer == "all":
        raise ParameterError("--answer all: an explanation is of one answer; expected a number")
    if given["by"] is not None and over is None:
        raise ParameterError("--by: takes --transition NAME, the setting along which sizes differ")
    if csv is not None:
        refuse_foreign(csv, force=given["force"], mark=b"name,path", kind="a table of mechint's")
    asked = _asked(paths, opening, given)
    one_run = len({entry.path for entry in asked.entries}) == 1 < len(asked)
    if one_run and out is not None:
        asked = asked.with_figures()
    with counting("measuring") as report:
        rows = asked.rows(report)
    if given["over_steps"]:
        _print_equal(asked.entries, rows)
    measured = [measurement.probe.name for measurement in asked.measurements]
    if csv is not None:
        write_text(csv, csv_text(rows))
        print_error(f"table written to {csv}")
    by_seed = given["explained"] and not given["over_steps"] and len(rows) > 1
    seeds = programs_of(rows) if by_seed else {}
    if out is not None:
        figures = {name: asked.figures_of(name) for name in measured} if one_run else {}
        _write_page(paths, opening, rows, figures, seeds)
    # what is said below the table, and the same as JSON
    said, found = list[str](), dict[str, Any]()
    if one_run and given["explained"]:
        from mechint.explanation.table import last_over_steps, last_program

        with counting("explaining"):
            found["last_program"] = last_over_steps(
                asked.entries, seed=given["seed"], answer=opening.answer
            )
        said += filter(None, [last_program(found["last_program"])])
    if seeds:
        found["programs"] = seeds
        said += programs_text(seeds).splitlines()
    if over is not None:
        learned = transition(rows, over)
        found["transition"] = {"over": over, **learned.to_dict()}
        said += [f"Test accuracy {learned.said(over)}."] * (given["by"] is None)
    if over is not None and given["by"] is not None:  # never one without the other
        found["factors"] = compare_transitions(rows, over, given["by"], given["ratio"])
        said += [_factor_text(factor, over, given["ratio"]) for factor in found["factors"]]
    if given["as_json"]:
        from mechint.probe.results import SCHEMA, to_jsonable

        print_json(to_jsonable({"schema": SCHEMA, "rows": rows, **found}))
    else:
        _print(rows, measured)
        for line in ["", *said] if said else []:
            echo(line, 2)
    return 2 if _report_refusals(rows, [*names, *["explain"] * given["explained"]]) else 0


def _factor_text(factor: Mapping[str, Any], over: str, ratio: float) -> str:
    """The factor by which models of one setting must be larger than of another, and its test."""
    value = "any number of" if math.isnan(factor["value"]) else f"{factor['value']:.3g}"
    why = f" ({factor['reason']})" if factor["reason"] else ""
    return (
        f"{factor['first']} against {factor['second']}: {value} times the {over} "
        f"[{factor['low']:.3g}, {factor['high']:.3g}], exact p {factor['p_value']:.2g}; "
        f"more than {ratio:g} times: {factor['verdict']}{why}."
    )


def _write_page(
    paths: Sequence[Path],
    opening: Opening,
    rows: Sequence[Mapping[str, Any]],
    figures: Mapping[str, Any],
    seeds: Mapping[str, Any],
) -> None:
    """The page of a table at ``--out``, with the programs of many seeds first."""
    from mechint.report import write_page
    from mechint.run_table.page import over_steps, page_of_table
    from mechint.run_table.programs import section_of

    given = opening.given
    more = [f"--{name}" for name, key in KEYS.items() if given[key]]
    command = opening.command(
        *more,
        f"--out {shlex.quote(str(given['out']))}",
        probes=given["names"],
        places=shlex.join(map(str, paths)),
        verb="table",
    )
    title = counted(len(rows), "checkpoint" if over_steps(rows) else "model")
    title += f": {paths[0].resolve().name}" if len(paths) == 1 else ""
    page = page_of_table(rows, title, figures=figures, command=command)
    first = [section_of(seeds)] if seeds else []
    page = dataclasses.replace(page, sections=[*first, *page.sections])
    write_page(page, given["out"], light=given["light"])
    print_error(f"report written to {given['out']}")


KEYS = {"over-steps": "over_steps", "explain": "explained"}
"""Option → its name among those of the command."""


def _asked(paths: Sequence[Path], opening: Opening, given: Mapping[str, Any]) -> Runs:
    """The table that was asked for, of which nothing is measured yet."""
    from mechint.run_table import runs

    parameters, model, options = opening.owners_settings
    if model:
        raise ParameterError(
            "--set model.NAME: is for one model; a table reads every model as its file states it"
        )
    made = runs(
        list(paths),
        workers=given["workers"],
        task=given["task"],
        data=given["data"],
        device=given["device"],
        **parameters,
    )
    made = made.over_steps() if given["over_steps"] else made
    asked = {"seed": given["seed"], "answer": opening.answer}
    for name in opening.probes:
        made = made.probe(name, **asked, **options.get(name, {}))
    return made.explain(**asked) if given["explained"] else made


def _print_equal(entries: Sequence[Entry], rows: Sequence[Mapping[str, Any]]) -> None:
    """Name the checkpoints whose files are the same; only those with the same numbers are read."""
    alike, places = dict[str, list[str]](), ("name", "path", "step")
    numbers = [str([value for name, value in row.items() if name not in places]) for row in rows]
    for one, own in zip(entries, numbers, strict=True):
        if numbers.count(own) > 1:
            alike.setdefault(digest(one.weights), []).append(one.weights.name)
    for first, *others in alike.values():
        if others:
            print_error(f"{first}: the same files as {', '.join(others[:8])}")


def _report_refusals(rows: Sequence[Mapping[str, Any]], probes: Sequence[str]) -> bool:
    """Say of which models a probe that was asked for by name gave nothing, and why; whether one
    gave numbers of none.
    """
    nowhere = False
    for name in probes:
        errors = [row[f"{name}.error"] for row in rows if isinstance(row.get(f"{name}.error"), str)]
        if errors:
            nowhere |= len(errors) == len(rows)
            of = f" of {len(errors)} of {counted(len(rows), 'model')}" if len(rows) > 1 else ""
            print_error(f"{name}: no numbers{of}: {errors[0]}")
    return nowhere


def _print(rows: Sequence[Mapping[str, Any]], probes: Sequence[str]) -> None:
    """The table on the terminal: a row of each model with name, what differs, accuracy, and each
    probe's main numbers.
    """
    from rich.table import Table

    from mechint.report._render import show
    from mechint.run_table.page import (
        MAX_SETTINGS,
        notes_of,
        over_steps,
        settings_of,
        shown_columns,
    )

    settings, columns = settings_of(rows), shown_columns(rows, probes, limit=3)
    if over_steps(rows):  # what is the same at every step says nothing
        columns = [
            name
            for name in columns
            if name not in ("name", "status") or len({row.get(name) for row in rows}) > 1
        ]
    cells = {name: [one_line(show(row.get(name))) for row in rows] for name in columns}
    out = console()
    if note := notes_of(rows):
        out.print(f"{note}\n", markup=False, highlight=False)
    # on a terminal a name breaks at its dots, and what does not fit is left to --csv
    heads = {name: name.split(".") if out.is_terminal else [name] for name in columns}
    widths = {name: max(map(len, [*cells[name], *heads[name]])) for name in columns}
    kept, room = list[str](), out.width if out.is_terminal else math.inf
    for name in columns:
        if (room := room - widths[name] - 2) >= -2 or not kept:
            kept.append(name)
    shown = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in kept:
        shown.add_column("\n".join(heads[name]), no_wrap=True, width=widths[name])
    for row in zip(*(cells[name] for name in kept), strict=True):
        shown.add_row(*row)
    if not out.is_terminal:
        out.width = sum(widths.values()) + 2 * len(kept)
    out.print(shown, markup=False)
    if len(kept) < len(columns):
        print_error(f"{counted(len(columns) - len(kept), 'more column')}: --csv FILE has them all")
    if (more := len(settings) - MAX_SETTINGS) > 0:
        print_error(f"{counted(more, 'more setting')} differ; --csv FILE writes them all")
