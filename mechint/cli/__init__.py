"""The command ``mechint``: thin commands over the public names, results to stdout, progress and
warnings to stderr.

Exit status: 0; 1 when a study ran and one of its claims failed; 2 for what the user can mend, in
one line; 130 after Ctrl-C. Heavy libraries are imported inside the commands, so that
``mechint --help`` answers at once.
"""

from __future__ import annotations

import click

import mechint
from mechint.cli import (
    analyze,
    calibrate,
    checkpoint,
    demo,
    gallery,
    list,
    reproduce,
    sweep,
    train,
)
from mechint.cli.common import CliGroup


@click.group(
    "mechint",
    cls=CliGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(mechint.__version__, prog_name="mechint", message="%(prog)s %(version)s")
def main() -> None:
    """Train small transformers on tasks whose algorithm is known, and open them up."""


for command in (
    train.train,
    analyze.analyze,
    list.tasks,
    list.probes,
    checkpoint.checkpoint,
    sweep.sweep,
    reproduce.reproduce,
    gallery.gallery,
    calibrate.calibrate,
    demo.demo,
):
    main.add_command(command)

__all__ = ["main"]
