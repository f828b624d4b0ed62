"""``mechint demo``: the two-minute tour."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Train addition mod 113 and write its report, in two minutes.")
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
    """The two-minute tour: train addition mod 113 until it generalizes, analyze it, write the
    report.
    """
    from mechint.cli.progress import progress_bar
    from mechint.demo import run_demo
    from mechint.report import check_writable

    check_writable(report)
    with progress_bar("addition mod 113") as bar:
        findings = run_demo(out, report, bar)
    for name, finding in findings.items():
        click.echo(f"{name}: {finding}")
    click.echo(f"report: {report.resolve()}")
