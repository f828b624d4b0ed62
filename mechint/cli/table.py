"""``mechint analyze`` on several models: a table of them, as text, JSON, CSV or a page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.cli.common import print_error, print_json
from mechint.cli.opening import Opening
from mechint.cli.sorting import sort_settings
from mechint.errors import MechintError, ParameterError, counted
from mechint.progress import console, counting

if TYPE_CHECKING:
    from mechint.run_table import Comparison, Runs


@dataclass(frozen=True)
class TableRequest:
    """What was asked for: how models are opened and asked, by which of its probes, and where the
    table goes.
    """

    opening: Opening
    over_steps: bool = False
    workers: int = 1
    csv: Path | None = None
    out: Path | None = None
    as_json: bool = False


def wants_table(paths: Sequence[Path], over_steps: bool, csv: Path | None) -> bool:
    """Whether the command asks about several models: several paths, steps, a folder of runs
    at any depth."""
    if len(paths) > 1 or over_steps or csv is not None:
        return True
    (path,) = paths
    return (
        path.is_dir()
        and not (path / "config.json").is_file()
        and next(path.rglob("config.json"), None) is not None
    )


def refuse_foreign_table(path: Path | None, *, force: bool) -> None:
    """Raise RunError where `path` is a file that does not begin as a table of models does."""
    from mechint.report.outputs import refuse_foreign

    if path is not None:
        refuse_foreign(path, force=force, mark=b"name,path", kind="a table of mechint's")


def _asked(paths: Sequence[Path], request: TableRequest) -> Runs:
    """The table that was asked for, of which nothing is measured yet."""
    from mechint.run_table import runs

    opening = request.opening
    if opening.data is not None:
        raise ParameterError(
            f"--data {opening.data}: is for one model; a table measures every model on its own task"
        )
    idle = "--answer" if opening.answer is not None else "--seed" if opening.seed else None
    if idle is not None and not opening.probes:
        raise ParameterError(
            f"{idle}: is for probes that measure, and without --probe a table shows what runs keep"
        )
    parameters, options = sort_settings(opening.settings, opening.task, opening.probes)
    if options["model"]:
        raise ParameterError(
            f"--set model.{next(iter(options['model']))}: is for one checkpoint; a table reads "
            "every model as its file states it"
        )
    table = runs(
        list(paths),
        workers=request.workers,
        task=opening.task,
        device=opening.device,
        **parameters,
    )
    if request.over_steps:
        table = table.over_steps()
    for name in opening.probes:
        given = options.get(name, {})
        table = table.probe(name, seed=opening.seed, answer=opening.answer, **given)
    return table if opening.probes else table.kept()


def show_table(paths: Sequence[Path], request: TableRequest) -> int:
    """Measure, write what was asked for, print the rest; the exit status.

    Raises:
        CheckpointError: a path without a model. RunError: a file cannot be written.
        ParameterError: something that a table does not carry out.
    """
    from mechint.files import write_text

    table = _asked(paths, request)
    one_run = len({entry.path for entry in table.entries}) == 1 < len(table)
    if one_run and request.out is not None:
        table = table.with_figures()
    with counting("measuring") as report:
        rows = table.rows(report)
    comparison = _comparison(table) if len(table) == 2 and not request.over_steps else None
    if request.csv is not None:
        write_text(request.csv, _csv(rows))
        print_error(f"table written to {request.csv}")
    if request.out is not None:
        from mechint.report import write_page
        from mechint.run_table.page import page_of_table

        title = paths[0].name if len(paths) == 1 else counted(len(rows), "model")
        if len(rows) == 2:
            title = " and ".join(str(row["name"]) for row in rows)
        measured = [measurement.probe.name for measurement in table.measurements]
        figures = {name: table.figures_of(name) for name in measured} if one_run else {}
        command = _command(paths, request)
        page = page_of_table(rows, title, comparison=comparison, figures=figures, command=command)
        write_page(page, request.out)
        print_error(f"report written to {request.out}")
    if request.as_json:
        from mechint.results import to_jsonable

        compared = {"comparison": comparison.to_dict()} if comparison else {}
        print_json(to_jsonable({"rows": rows, **compared}))
    else:
        _print(rows, [measurement.probe.name for measurement in table.measurements])
        if comparison is not None:
            console().print(f"\n{comparison.sentence()}", markup=False)
    problems = [row.get(f"{name}.error") for row in rows for name in request.opening.probes]
    if problems and all(isinstance(problem, str) for problem in problems):
        print_error(str(problems[0]))
        return 2
    return 0


def _comparison(table: Runs) -> Comparison | None:
    """The two models side by side; None, and a line that says why, where they cannot be."""
    from mechint.run_table import compare

    try:
        first, second = (entry.subject() for entry in table.entries)
        return compare(first, second)
    except MechintError as error:
        print_error(str(error))
        return None


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    import pandas as pd

    return pd.DataFrame(rows).to_csv(index=False)


def _command(paths: Sequence[Path], request: TableRequest) -> str:
    """The command that makes the page again."""
    probes = request.opening.probes
    options = f" --probe {','.join(probes)}" if probes else ""
    options += request.opening.options(probes) + (" --over-steps" if request.over_steps else "")
    out = "" if request.out is None else f" --out {shlex.quote(str(request.out))}"
    return f"mechint analyze {shlex.join(map(str, paths))}{options}{out}"


def _print(rows: Sequence[Mapping[str, Any]], probes: Sequence[str]) -> None:
    """The table on the terminal: name, what differs, accuracy, and each probe's main numbers."""
    from rich.table import Table

    from mechint.report.render import show
    from mechint.run_table.page import MAX_SETTINGS, main_columns, settings_of

    settings = settings_of(rows)
    columns = ["name", "status", *settings[:MAX_SETTINGS], "test.accuracy"]
    for name in probes:
        columns += [f"{name}.verdict", *main_columns(rows, name, limit=3)]
    columns = [name for name in dict.fromkeys(columns) if any(name in row for row in rows)]
    shown = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        shown.add_column(name, no_wrap=name in ("name", "status"), overflow="fold")
    for row in rows:
        shown.add_row(*(show(row.get(name)) for name in columns))
    out = console()
    if not out.is_terminal:  # a file or a pipe has no width: no column is cut
        out.width = 24 * len(columns)
    out.print(shown, markup=False)
    if (more := len(settings) - MAX_SETTINGS) > 0:
        print_error(f"{counted(more, 'more setting')} differ; --csv FILE writes them all")
