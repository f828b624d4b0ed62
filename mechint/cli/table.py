"""``mechint table``: many models as a table, as text, JSON, CSV or a page."""

from __future__ import annotations

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
    device_option,
    examples,
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
from mechint.errors import ParameterError, counted, one_line
from mechint.system.progress import console, counting, echo

if TYPE_CHECKING:
    from mechint.run_table import Runs


@click.command(
    cls=GroupedCommand,
    short_help="Tabulate runs, sweeps, steps and files: a row per model.",
    epilog=examples(
        "mechint table runs/sweep --probe fourier --csv sweep.csv --out sweep.html",
        "mechint table runs/add --over-steps --probe llc --csv llc.csv",
        "mechint table runs/add --over-steps --explain",
        "mechint table a.pt b.pt --task modular-arithmetic --set p=113 --probe fourier",
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
@task_option
@set_option
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
    from mechint.system.files import csv_text, write_text

    check_options(given)
    check_exist(paths)
    csv, out, names = given["csv"], given["out"], given["names"]
    opening = Opening(paths[0], given, names)
    if given["explained"] and opening.answer == "all":
        raise ParameterError("--answer all: an explanation is of one answer; expected a number")
    if csv is not None:
        refuse_foreign(csv, force=given["force"], mark=b"name,path", kind="a table of mechint's")
    asked = _asked(paths, opening, given)
    one_run = len({entry.path for entry in asked.entries}) == 1 < len(asked)
    if one_run and out is not None:
        asked = asked.with_figures()
    with counting("measuring") as report:
        rows = asked.rows(report)
    measured = [measurement.probe.name for measurement in asked.measurements]
    if csv is not None:
        write_text(csv, csv_text(rows))
        print_error(f"table written to {csv}")
    if out is not None:
        from mechint.report import write_page
        from mechint.run_table.page import page_of_table

        figures = {name: asked.figures_of(name) for name in measured} if one_run else {}
        more = [f"--{name}" for name in ("over-steps", "explain") if given[KEYS[name]]]
        command = opening.command(
            *more,
            f"--out {shlex.quote(str(out))}",
            probes=names,
            places=shlex.join(map(str, paths)),
            verb="table",
        )
        page = page_of_table(rows, _title(rows, paths), figures=figures, command=command)
        write_page(page, out, light=given["light"])
        print_error(f"report written to {out}")
    over = given["transition"]
    learned = None if over is None else _transition(rows, over)
    programs = list[dict[str, Any]]()
    if one_run and given["explained"]:
        from mechint.explanation.table import last_over_steps

        with counting("explaining"):
            programs = last_over_steps(asked.entries, seed=given["seed"], answer=opening.answer)
    if given["as_json"]:
        from mechint.probe.results import SCHEMA, to_jsonable

        found = {} if learned is None else {"transition": learned}
        found |= {"last_program": programs} if programs else {}
        print_json(to_jsonable({"schema": SCHEMA, "rows": rows, **found}))
    else:
        _print(rows, measured)
        if one_run and given["explained"]:
            from mechint.explanation.table import last_program

            if said := last_program(programs):
                echo(f"\n{said}", 2)
        if learned is not None:
            console().print(f"\n{_transition_text(learned)}", markup=False)
    return 2 if _report_refusals(rows, [*names, *["explain"] * given["explained"]]) else 0


KEYS = {"over-steps": "over_steps", "explain": "explained"}
"""Option → its name among those of the command."""


def _asked(paths: Sequence[Path], opening: Opening, given: Mapping[str, Any]) -> Runs:
    """The table that was asked for, of which nothing is measured yet."""
    from mechint.run_table import runs

    parameters, model, options = opening.sorted
    if model:
        raise ParameterError(
            "--set model.NAME: is for one model; a table reads every model as its file states it"
        )
    made = runs(
        list(paths),
        workers=given["workers"],
        task=given["task"],
        device=given["device"],
        **parameters,
    )
    made = made.over_steps() if given["over_steps"] else made
    asked = {"seed": given["seed"], "answer": opening.answer}
    for name in opening.probes:
        made = made.probe(name, **asked, **options.get(name, {}))
    return made.explain(**asked) if given["explained"] else made


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


def _transition(rows: Sequence[Mapping[str, Any]], size: str) -> dict[str, Any]:
    """The setting at which test accuracy passes one half, with its 95% interval."""
    from mechint.run_table import transition
    from mechint.run_table.entries import is_setting

    names = dict.fromkeys(name for row in rows for name in row)
    column = next(
        (name for name in names if is_setting(name) and name.partition(".")[2] == size), size
    )
    found = transition(rows, column)
    low, high = found.interval(0.5)
    return {
        "over": column,
        "at": found.at(0.5),
        "low": low,
        "high": high,
        "slope": found.slope,
        "smallest": float(found.parameters.min()),
        "largest": float(found.parameters.max()),
    }


def _transition_text(found: Mapping[str, Any]) -> str:
    over = found["over"].partition(".")[2] or found["over"]
    ends = [f"{found[name]:,.3g}" for name in ("low", "high")]
    interval = f"95% interval {ends[0]} to {ends[1]}".replace("to inf", "and beyond")
    if found["at"] == float("inf"):
        end = f"{found['largest']:,.3g}"
        return f"Test accuracy does not pass one half up to {over} {end} ({interval})."
    if not found["at"]:
        end = f"{found['smallest']:,.3g}"
        return f"Test accuracy passes one half below {over} {end}, the smallest ({interval})."
    return f"Test accuracy passes one half at {over} {found['at']:,.3g} ({interval})."


def _title(rows: Sequence[Mapping[str, Any]], paths: Sequence[Path]) -> str:
    """The title of the rows: their number, and the folder or run where there is one."""
    from mechint.run_table.page import over_steps

    count = counted(len(rows), "checkpoint" if over_steps(rows) else "model")
    return count + (f": {paths[0].resolve().name}" if len(paths) == 1 else "")


def curves_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], width: int) -> list[str]:
    """A line for each number over the steps of one run: a row of blocks, its ends, the steps.

    >>> rows = [{"step": n, "test.accuracy": n / 4} for n in range(5)]
    >>> curves_text(rows, ["step", "test.accuracy"], 60)
    ['test.accuracy  ▁▂▄▆█  0 to 1', '               step 0 to 4']
    """
    from mechint.probe.text import sparkline
    from mechint.report._render import show
    from mechint.run_table.entries import is_number

    held = {
        name: [row.get(name) for row in rows]
        for name in columns
        if name != "step"
        and all(row.get(name) is None or is_number(row.get(name)) for row in rows)
        and sum(is_number(row.get(name)) for row in rows) > 1
    }
    lines, first = list[str](), max(map(len, held), default=0)
    room = max(8, width - first - 26)
    at = [round(i * (len(rows) - 1) / max(1, room - 1)) for i in range(min(room, len(rows)))]
    at = list(range(len(rows))) if len(rows) <= room else at
    for name, values in held.items():
        seen = [value for value in values if value is not None]
        least = min(seen)
        drawn = sparkline(
            [0.0 if (value := values[i]) is None else value - min(0.0, least) for i in at]
        )
        shown = "".join(" " if values[i] is None else drawn[k] for k, i in enumerate(at))
        lines.append(f"{name:<{first}}  {shown}  {show(seen[0])} to {show(seen[-1])}")
    if lines:
        ends = f"step {rows[0].get('step')} to {rows[-1].get('step')}"
        lines.append(f"{'':<{first}}  {ends}")
    return lines


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
    if steps := over_steps(rows):  # what is the same at every step says nothing
        columns = [
            name
            for name in columns
            if name not in ("name", "status") or len({row.get(name) for row in rows}) > 1
        ]
    cells = {name: [one_line(show(row.get(name))) for row in rows] for name in columns}
    out = console()
    if note := notes_of(rows):
        out.print(f"{note}\n", markup=False, highlight=False)
    if steps and len({row.get("path") for row in rows}) == 1:
        for line in curves_text(rows, columns, out.width):
            out.print(line, markup=False, highlight=False)
        out.print()
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
