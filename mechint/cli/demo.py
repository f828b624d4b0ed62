"""``mechint demo``: the two-minute tour."""

from __future__ import annotations

from pathlib import Path

import click

from mechint.cli.common import path_option
from mechint.system.progress import console, counting, training_bar


@click.command(short_help="Train addition mod 59 and write its report, in two minutes.")
@path_option(
    "--out", help="The run directory.  [default: runs/demo, or runs/demo-quick]", metavar="DIR"
)
@path_option("--report", help="The report.", default=Path("report.html"), show_default=True)
@click.option("--quick", is_flag=True, help="Addition mod 29, in seconds; nothing groks there.")
def demo(out: Path | None, report: Path, quick: bool) -> None:
    """The two-minute tour: train addition mod 59 until it generalizes, analyze it, write the
    report.
    """
    from mechint.account.terminal import account_text
    from mechint.demo import report_demo, train_demo
    from mechint.report import check_writable

    check_writable(report)
    out = out or Path("runs/demo-quick" if quick else "runs/demo")
    with training_bar(f"addition mod {29 if quick else 59}") as bar:
        train_demo(out, bar, quick=quick)
    with counting("probing") as update:
        account = report_demo(out, report, update, quick=quick)
    screen = console()
    screen.print(account_text(account, screen.width), soft_wrap=True)
    click.echo(f"report: {report.resolve()}")
