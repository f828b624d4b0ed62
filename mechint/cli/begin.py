"""``mechint demo``, ``examples``, ``help`` and ``skill``: what one begins with."""

from __future__ import annotations

from pathlib import Path

import click

from mechint.cli.common import example_commands, force_option, path_option
from mechint.system.progress import console, counting, hanging, training_bar


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


@click.command(
    short_help="Copy the scripts and models that come with mechint.",
    epilog=example_commands(
        "mechint examples examples", "mechint analyze examples/models/clock.pt"
    ),
)
@click.argument("out", type=click.Path(path_type=Path))
@force_option
def examples(out: Path, force: bool) -> None:
    """Copy the example scripts and five trained models into the folder OUT."""
    from mechint.shipped import copy_examples

    written = copy_examples(out, force)
    counts = {kind: sum(path.suffix == f".{kind}" for path in written) for kind in ("py", "pt")}
    click.echo(f"{counts['py']} scripts and {counts['pt']} models in {out}")


@click.command(
    "help",
    short_help="Say what a word means.",
    epilog=example_commands("mechint help", "mechint help superfluous"),
)
@click.argument("word", nargs=-1)
def look_up(word: tuple[str, ...]) -> None:
    """Say what a WORD of a verdict, a standing or a measure means; without one, list them."""
    from mechint.errors import UnknownNameError
    from mechint.shipped import glossary

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
