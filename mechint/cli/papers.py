"""``mechint reproduce``, ``calibrate`` and ``gallery``: papers run again, the quality of probes as
instruments, and pages of both.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import click

from mechint.cli.common import (
    CliGroup,
    complete,
    device_option,
    example_commands,
    force_option,
    json_option,
    path_option,
    plugin_option,
    print_error,
    print_json,
)
from mechint.errors import ParameterError, RunError, UnknownNameError, counted
from mechint.registry import PROBES, STUDIES
from mechint.system.progress import counting

SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}
ASKED_FROM = 1.0
"""Core-hours from which a study is trained only after a question."""


def seconds_of(text: str) -> float:
    """Seconds of a time such as 90s, 30m or 2h.

    Raises:
        ParameterError: a number that is not positive, or no unit.

    >>> seconds_of("90s"), seconds_of("1.5h")
    (90.0, 5400.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *(s|m|min|h)", text)
    if not found or float(found[1]) == 0:
        raise ParameterError(f"--budget: got {text!r}, expected a time such as 90s, 30m or 2h")
    return float(found[1]) * SECONDS[found[2]]


@click.command(
    short_help="Run a paper again and judge its claims.",
    epilog=example_commands(
        "mechint reproduce capacity --size smoke",
        "mechint reproduce emergence --size overnight --budget 8h",
    ),
)
@click.argument("study", shell_complete=complete(STUDIES))
@click.option(
    "--size",
    type=click.Choice(["smoke", "laptop", "fresh", "overnight"]),
    default="laptop",
    show_default=True,
    help=(
        "smoke: seconds, judges nothing; laptop: within about two core-hours; fresh: seeds of "
        "their own for criteria changed after the laptop's runs; overnight: as many as the "
        "command says before it asks."
    ),
)
@path_option(
    "--out",
    help="Where the runs go; a stopped study goes on there.  [default: runs/STUDY-SIZE]",
    metavar="DIR",
)
@click.option(
    "--budget",
    metavar="TIME",
    help=(
        "Stop after this long (90s, 30m, 2h) with every state saved and the claims judged on "
        "what is finished; the same command goes on."
    ),
)
@click.option("--yes", is_flag=True, help="Do not ask before what takes hours.")
@device_option
@json_option
def reproduce(
    study: str,
    size: str,
    out: Path | None,
    budget: str | None,
    yes: bool,
    device: str,
    as_json: bool,
) -> int:
    """Run the paper STUDY again and hold its claims against what came out; status 1 when a claim
    is refuted.
    """
    if study not in STUDIES:
        raise UnknownNameError.of("study", study, STUDIES)
    seconds = None if budget is None else seconds_of(budget)
    from mechint.studies import left_to_train
    from mechint.studies import reproduce as run

    left = left_to_train(study, size, out)
    if left:
        cost = STUDIES[study].costs.get(size, 0.0)
        if cost > ASKED_FROM and device == "cpu":
            print_error(f"{study} at size {size} takes about {cost:,.3g} core-hours")
            if seconds is None and not yes:
                click.confirm(
                    "Train it on this CPU? (--budget stops in time)", abort=True, err=True
                )
    with counting(f"{study} at size {size}") as update:
        done = run(study, size, out, partial(update, 0, 0), device=device, budget=seconds)
    if as_json:
        claims = [claim.to_dict() for claim in done.claims]
        where = {"report": str(done.report), "waiting": done.waiting, "failed": dict(done.failed)}
        print_json({"study": study, "size": size, **where, "claims": claims})
    else:
        click.echo(str(done))
    for name, error in done.failed.items():
        print_error(f"{name}: {error}")
    if done.waiting:
        waiting, are = counted(done.waiting, "run"), "is" if done.waiting == 1 else "are"
        print_error(f"{waiting} {are} still to be trained; the same command goes on")
    print_error(f"report written to {done.report}")
    return int(any(claim.verdict == "refuted" for claim in done.claims))


# --- calibration ----------------------------------------------------------------------------------
SHOWN = ("probe", "subject", "noise", "runs", "detected", "wrong")
"""Columns that fit a terminal of 80."""


@click.command(
    short_help="Measure the probes' power and false positives.",
    epilog=example_commands("mechint calibrate lens --size smoke"),
)
@click.argument("names", metavar="[PROBE]...", nargs=-1, shell_complete=complete(PROBES))
@click.option(
    "--size",
    type=click.Choice(["smoke", "laptop", "full"]),
    default="smoke",
    show_default=True,
    help="How many plants and controls.",
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

        table = run(names or None, size, out, update)
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


# --- pages ----------------------------------------------------------------------------------------
@click.group(cls=CliGroup, short_help="Make one folder of pages of all studies.")
def gallery() -> None:
    """Make one folder of pages out of the rows of studies."""


@gallery.command(short_help="Draw the pages of studies as one gallery.")
@click.argument("places", nargs=-1, type=click.Path(path_type=Path))
@path_option(
    "--out",
    help="Where the gallery goes.",
    metavar="DIR",
    default=Path("gallery"),
    show_default=True,
)
@force_option
@plugin_option
def build(places: tuple[Path, ...], out: Path, force: bool) -> None:
    """Draw a page of every study whose rows lie under PLACES (results and runs, when none is given)
    as one gallery that opens from the disk.
    """
    from mechint.report import build_gallery
    from mechint.studies.record import pages_under

    places = (
        places
        or tuple(place for place in (Path("results"), Path("runs")) if place.is_dir())
        or (Path("runs"),)
    )
    pages = pages_under(places)
    if not pages:
        raise RunError(
            f"{', '.join(map(str, places))}: expected rows of a study there, found none; run "
            "mechint reproduce first"
        )
    with counting("drawing pages") as update:
        index = build_gallery(pages, out, force=force, progress=update)
    click.echo(f"{index} ({counted(len(pages), 'page')})")
