"""``mechint calibrate``: power, false positives and error of the probes."""

from __future__ import annotations

from pathlib import Path

import click

from mechint.cli.common import (
    complete,
    examples,
    json_option,
    path_option,
    plugin_option,
    print_error,
    print_json,
)
from mechint.errors import UnknownNameError
from mechint.registry import PROBES
from mechint.system.progress import counting

SIZES = click.Choice(["smoke", "laptop", "full"])
SHOWN = ("probe", "subject", "noise", "runs", "detected", "wrong")
"""Columns that fit a terminal of 80."""


@click.command(
    short_help="Measure the probes' power and false positives.",
    epilog=examples("mechint calibrate lens --size smoke"),
)
@click.argument("names", metavar="[PROBE]...", nargs=-1, shell_complete=complete(PROBES))
@click.option(
    "--size", type=SIZES, default="smoke", show_default=True, help="How many plants and controls."
)
@path_option("--out", help="Write the calibration table there.", metavar="DIR")
@plugin_option
@json_option
def calibrate(names: tuple[str, ...], size: str, out: Path | None, as_json: bool) -> int:
    """Measure power, false positives and error of the probes on planted mechanisms and controls."""
    for name in names:
        if name not in PROBES:
            raise UnknownNameError.of("probe", name, PROBES)
    with counting("calibrating") as update:
        from mechint.calibration import calibrate as run
        from mechint.calibration.engine import n_models

        done, of = -1, n_models(names or tuple(PROBES), size)

        def count(row: str) -> None:
            nonlocal done
            done += 1
            update(done, of, row)

        table = run(names or None, size, out, count)
    if as_json:
        from mechint.system.jsonable import to_jsonable

        rows = zip(*table.columns.values(), strict=True)
        print_json(to_jsonable([dict(zip(table.columns, row, strict=True)) for row in rows]))
        return 0
    from mechint.calibration.table import detected, markdown_table

    columns = {**table.columns, "detected": detected(table)}
    click.echo(markdown_table({name: columns[name] for name in SHOWN}))
    where = "with --json, or --out DIR" if out is None else f"in {out / 'calibration.md'}"
    print_error(f"refused, abstained, errors of the estimates and seconds: {where}")
    return 0
