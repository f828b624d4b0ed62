"""The command ``mechint``: thin commands over the public names, results to stdout, progress and
warnings to stderr.

Exit status: 0; 1 when a study ran and one of its claims failed; 2 for what the user can mend, in
one line; 130 after Ctrl-C. Heavy libraries are imported inside the commands, so that
``mechint --help`` answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import click

import mechint
from mechint.cli import (
    analyze,
    calibrate,
    checkpoint,
    demo,
    explain,
    gallery,
    list,
    reproduce,
    sweep,
    train,
)
from mechint.cli.common import CliGroup, examples


class Main(CliGroup):
    """The commands, as a newcomer looks for them."""

    sections: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "Begin": ("demo", "tasks", "probes"),
        "Train": ("train", "sweep"),
        "Analyze": ("analyze", "explain", "checkpoint"),
        "Papers, calibration, pages": ("reproduce", "calibrate", "gallery"),
    }


@click.group(
    "mechint",
    cls=Main,
    epilog=examples(
        "mechint train modular-arithmetic --preset fast --out runs/add",
        "mechint analyze runs/add --probe fourier --out report.html",
        "mechint analyze runs/add --probe fourier --over-steps --csv steps.csv",
        "mechint probes fourier",
    ),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(mechint.__version__, prog_name="mechint", message="%(prog)s %(version)s")
def main() -> None:
    """Train small transformers on tasks whose algorithm is known, and open them up."""


for command in (
    train.train,
    analyze.analyze,
    explain.explain,
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
