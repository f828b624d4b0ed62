"""``mechint analyze`` on several models: a table of them, as text, JSON, CSV or a page."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.cli.common import print_error, print_json
from mechint.cli.opening import Opening
from mechint.errors import ParameterError, counted, one_line
from mechint.system.progress import console, counting

if TYPE_CHECKING:
    from mechint.run_table import Runs


def wants_table(paths: Sequence[Path]) -> bool:
    """Return whether the command asks about several models: several paths, or a folder of runs at
    any depth.
    """
    if len(paths) > 1:
        return True
    (path,) = paths
    return (
        path.is_dir()
        and not (path / "config.json").is_file()
        and next(path.rglob("config.json"), None) is not None
    )


def _asked(paths: Sequence[Path], opening: Opening, over_steps: bool, workers: int) -> Runs:
    """The table that was asked for, of which nothing is measured yet."""
    from mechint.run_table import runs

    parameters, model, options = opening.sorted
    if opening.data is not None or model:
        raise ParameterError(
            "--data and --set model.NAME: are for one model; a table reads every model as its file "
            "states it, on its own task"
        )
    table = runs(
        list(paths), workers=workers, task=opening.task, device=opening.device, **parameters
    )
    if over_steps:
        table = table.over_steps()
    for name in opening.probes:
        given = options.get(name, {})
        table = table.probe(name, seed=opening.seed, answer=opening.answer, **given)
    return table


def show_table(paths: Sequence[Path], opening: Opening, given: Mapping[str, Any]) -> int:
    """Measure, write what was asked for, print the rest; the exit status: 2 where a probe that was
    asked for by name gave numbers of no model.

    given: the options of ``mechint analyze``.

    Raises:
        CheckpointError: a path without a model. RunError: a file cannot be written.
        ParameterError: something that a table does not carry out.
    """
    from mechint.report.outputs import refuse_foreign
    from mechint.system.files import csv_text, write_text

    csv, out, over_steps = given["csv"], given["out"], given["over_steps"]
    if csv is not None:
        refuse_foreign(csv, force=given["force"], mark=b"name,path", kind="a table of mechint's")
    table = _asked(paths, opening, over_steps, given["workers"])
    one_run = len({entry.path for entry in table.entries}) == 1 < len(table)
    if one_run and out is not None:
        table = table.with_figures()
    with counting("measuring") as report:
        rows = table.rows(report)
    measured = [measurement.probe.name for measurement in table.measurements]
    if csv is not None:
        write_text(csv, csv_text(rows))
        print_error(f"table written to {csv}")
    if out is not None:
        from mechint.report import write_page
        from mechint.run_table.page import page_of_table

        title = _title(rows, paths)
        figures = {name: table.figures_of(name) for name in measured} if one_run else {}
        end = ["--over-steps"] if over_steps else []
        command = opening.command(
            *end,
            f"--out {shlex.quote(str(out))}",
            probes=opening.probes,
            places=shlex.join(map(str, paths)),
        )
        page = page_of_table(rows, title, figures=figures, command=command)
        write_page(page, out, light=given["light"])
        print_error(f"report written to {out}")
    over = given["transition"]
    learned = None if over is None else _transition(rows, over)
    if given["as_json"]:
        from mechint.probe.results import SCHEMA, to_jsonable

        found = {} if learned is None else {"transition": learned}
        print_json(to_jsonable({"schema": SCHEMA, "rows": rows, **found}))
    else:
        _print(rows, measured)
        if learned is not None:
            console().print(f"\n{_transition_text(learned)}", markup=False)
    return 2 if _report_refusals(rows, opening.probes) else 0


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
    """The title of the rows: their number, their task, and the folder where there is one."""
    from mechint.checkpoints import load_checkpoint
    from mechint.run_table.page import over_steps

    tasks = {row.get("task") for row in rows}
    task = next(iter(tasks)) if len(tasks) == 1 else None
    if len(paths) == 1 and over_steps(rows) and len({row.get("path") for row in rows}) == 1:
        known = load_checkpoint(paths[0]).task
        task = task if known is None else known.title
    count = counted(len(rows), "checkpoint" if over_steps(rows) else "model")
    of = f" of {task}" if task else ""
    return f"{count}{of}" + (f": {paths[0].name}" if len(paths) == 1 else "")


def curves_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], width: int) -> list[str]:
    """A line for each number over the steps of one run: a row of blocks, its ends, the steps.

    >>> rows = [{"step": n, "test.accuracy": n / 4} for n in range(5)]
    >>> curves_text(rows, ["step", "test.accuracy"], 60)
    ['test.accuracy  ▁▂▄▆█  0 to 1', '               step 0 to 4']
    """
    from mechint.account.terminal import sparkline
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
