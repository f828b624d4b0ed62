"""``mechint gallery``: one folder of pages out of the rows of studies."""

from __future__ import annotations

from pathlib import Path

import click

from mechint.cli.common import CliGroup, force_option, path_option, plugin_option
from mechint.system.progress import counting


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
    from mechint.errors import RunError, counted
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
