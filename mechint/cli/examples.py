"""``mechint examples``: the scripts and models that come with mechint."""

from __future__ import annotations

from pathlib import Path

import click

from mechint.cli.common import examples as shown
from mechint.cli.common import force_option


@click.command(
    short_help="Copy the scripts and models that come with mechint.",
    epilog=shown("mechint examples examples", "mechint analyze examples/models/clock.pt"),
)
@click.argument("out", type=click.Path(path_type=Path))
@force_option
def examples(out: Path, force: bool) -> None:
    """Copy the example scripts and five trained models into the folder OUT."""
    from mechint.shipped import copy_examples

    written = copy_examples(out, force)
    counts = {kind: sum(path.suffix == f".{kind}" for path in written) for kind in ("py", "pt")}
    click.echo(f"{counts['py']} scripts and {counts['pt']} models in {out}")
