"""The command ``mechint``: thin commands over the public names, results to stdout, progress and
warnings to stderr.

Exit status: 0; 1 when a study ran and one of its claims failed; 2 for what the user can mend, in
one line; 130 after Ctrl-C and 143 after SIGTERM. Heavy libraries are imported inside the commands,
so that ``mechint --help`` answers at once.
"""

from __future__ import annotations

import click

import mechint
from mechint.cli import (
    analyze,
    begin,
    checkpoint,
    explain,
    list,
    papers,
    sweep,
    table,
    train,
    verify,
)
from mechint.cli.common import CliGroup, example_commands

SECTIONS = {
    "Begin": (begin.demo, begin.examples, list.tasks, list.probes, begin.look_up, begin.skill),
    "Train": (train.train, sweep.sweep),
    "Analyze": (
        analyze.analyze,
        explain.explain,
        analyze.compare,
        table.table,
        verify.verify,
        checkpoint.checkpoint,
    ),
    "Papers, calibration, pages": (papers.reproduce, papers.calibrate, papers.gallery),
}
"""The commands, as a newcomer looks for them."""


@click.group(
    "mechint",
    cls=CliGroup,
    epilog=example_commands(
        "mechint train modular-arithmetic --preset fast --out runs/add",
        "mechint analyze runs/add --probe fourier --out report.html",
        "mechint table runs/add --over-steps --probe fourier --csv steps.csv",
        "mechint probes fourier",
    ),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(mechint.__version__, prog_name="mechint", message="%(prog)s %(version)s")
def main() -> None:
    """Train small transformers on tasks whose algorithm is known, and open them up."""


for heading, commands in SECTIONS.items():
    for command in commands:
        main.add_command(command)
        main.headings[command.name] = heading

__all__ = ["main"]
