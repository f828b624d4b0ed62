"""``mechint help`` and ``mechint skill``: the words of findings, and how to use mechint well."""

from __future__ import annotations

import click

from mechint.cli.common import examples


@click.command(
    "help",
    short_help="Say what a word means.",
    epilog=examples("mechint help", "mechint help superfluous"),
)
@click.argument("word", nargs=-1)
def look_up(word: tuple[str, ...]) -> None:
    """Say what a WORD of a verdict, a standing or a measure means; without one, list them."""
    from mechint.errors import UnknownNameError
    from mechint.shipped import glossary
    from mechint.system.progress import console, hanging

    out, known = console(), glossary()
    asked = " ".join(word).lower()
    names = {name.lower(): name for name in known}
    if asked and asked not in names:
        raise UnknownNameError.of("word", asked, known)
    text = f"{names[asked]}: {known[names[asked]]}" if asked else ", ".join(known)
    out.print("\n".join(hanging(text.replace("*", ""), out.width, 2)), markup=False)


@click.command("skill", short_help="Print a page by which an agent uses mechint well.")
def skill() -> None:
    """Print one page: the order of questions, what a verdict licenses, what to do on *unclear*."""
    from mechint.shipped import skill

    click.echo(skill(), nl=False)
