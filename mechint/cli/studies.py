"""``mechint reproduce``, ``gallery``, ``calibrate`` and ``demo``: the papers, the pages, the
instruments, the tour.
"""

from __future__ import annotations

from pathlib import Path

import click

from mechint.cli.common import Commands, complain, console, device_option, working
from mechint.errors import UnknownNameError
from mechint.registry import PROBES, STUDIES

SIZES = click.Choice(["smoke", "laptop", "full"])


@click.command()
@click.argument("study")
@click.option(
    "--size",
    type=SIZES,
    default="laptop",
    show_default=True,
    help="smoke: seconds, judges nothing; laptop: minutes; full: the paper's own.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the runs go; a stopped study goes on there.  [default: runs/STUDY-SIZE]",
)
@click.option("--yes", is_flag=True, help="Do not ask before what takes hours.")
@device_option
def reproduce(study: str, size: str, out: Path | None, yes: bool, device: str) -> int:
    """Re-run the paper STUDY and hold its claims against what came out; status 1 when a claim
    fails.
    """
    if study not in STUDIES:
        raise UnknownNameError.of("study", study, STUDIES)
    from mechint.studies import reproduce as run

    if size == "full" and device == "cpu" and not yes:
        _ask(study)
    with working(f"{study} at size {size}") as update:
        done = run(study, size, out or Path("runs") / f"{study}-{size}", update, device=device)
    for claim in done.claims:
        click.echo(f"{claim.letter}  {claim.verdict:<14}  {claim.statement}")
        click.echo(f"   {'':<14}  {claim.ours}")
    complain(f"report written to {done.report}")
    return int(any(claim.verdict == "not reproduced" for claim in done.claims))


def _ask(study: str) -> None:
    """Say how long the paper's own sizes take on a CPU, and whether to go on."""
    from mechint.studies import duration, find_study, in_words

    with working(f"timing a few steps of {study}"):
        seconds = duration(find_study(study), "full")
    click.confirm(
        (
            f"{study} at size full takes about {in_words(seconds)} on this CPU (--device cuda is "
            "for a GPU). Go on?"
        ),
        abort=True,
        err=True,
    )


@click.group(cls=Commands)
def gallery() -> None:
    """Make one folder of pages out of what studies and runs left."""


@gallery.command()
@click.argument("places", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("gallery"),
    show_default=True,
    metavar="DIR",
    help="Where the gallery goes.",
)
def build(places: tuple[Path, ...], out: Path) -> None:
    """Draw every page.json found under PLACES (runs and results, when none is given) as one gallery
    that opens from the disk.
    """
    from mechint.errors import RunError
    from mechint.report import PAGE, build_gallery, find_pages

    places = (
        places
        or tuple(place for place in (Path("results"), Path("runs")) if place.is_dir())
        or (Path("runs"),)
    )
    with working("drawing the gallery"):
        pages = find_pages(places)
        if not pages:
            raise RunError(
                f"{', '.join(map(str, places))}: holds no {PAGE}; run mechint demo or mechint "
                "reproduce first"
            )
        index = build_gallery(pages, out)
    click.echo(f"{index} ({len(pages)} pages)")


@click.command()
@click.argument("names", metavar="[PROBE]...", nargs=-1)
@click.option(
    "--size", type=SIZES, default="smoke", show_default=True, help="How many plants and controls."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the calibration table there.",
)
def calibrate(names: tuple[str, ...], size: str, out: Path | None) -> int:
    """Measure power, false positives and error of the probes on planted mechanisms and controls."""
    for name in names:
        if name not in PROBES:
            raise UnknownNameError.of("probe", name, PROBES)
    with working("calibrating") as update:
        from mechint.calibration import calibrate as run

        table = run(names or tuple(PROBES), size, out, update)
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="dim")
    for column in table.columns:
        shown.add_column(column)
    from mechint.report.render import show

    for row in zip(*table.columns.values(), strict=True):
        shown.add_row(*(show(cell) for cell in row))
    console().print(shown)
    return 0


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/demo"),
    show_default=True,
    metavar="DIR",
    help="The run directory.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE",
    help="The report.",
)
def demo(out: Path, report: Path) -> None:
    """The two-minute tour: train addition mod 113 until it generalises, analyse it, write the
    report.
    """
    from mechint.cli.train import progress_bar
    from mechint.demo import run_demo
    from mechint.report import check_writable

    check_writable(report)
    with progress_bar("addition mod 113") as bar:
        findings = run_demo(out, report, bar)
    for name, finding in findings.items():
        click.echo(f"{name}: {finding}")
    click.echo(f"report: {report.resolve()}")
