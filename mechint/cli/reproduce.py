"""``mechint reproduce``: a paper re-run, and its claims held against what came out."""

from __future__ import annotations

from pathlib import Path

import click

from mechint.cli.common import device_option, print_error, spinner
from mechint.errors import UnknownNameError
from mechint.registry import STUDIES

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
    with spinner(f"{study} at size {size}") as update:
        done = run(study, size, out or Path("runs") / f"{study}-{size}", update, device=device)
    for claim in done.claims:
        click.echo(f"{claim.letter}  {claim.verdict:<14}  {claim.statement}")
        click.echo(f"   {'':<14}  {claim.ours}")
    print_error(f"report written to {done.report}")
    return int(any(claim.verdict == "not reproduced" for claim in done.claims))


def _ask(study: str) -> None:
    """Say how long the paper's own sizes take on a CPU, and whether to go on."""
    from mechint.studies import duration, find_study, in_words

    with spinner(f"timing a few steps of {study}"):
        seconds = duration(find_study(study), "full")
    click.confirm(
        (
            f"{study} at size full takes about {in_words(seconds)} on this CPU (--device cuda is "
            "for a GPU). Go on?"
        ),
        abort=True,
        err=True,
    )
