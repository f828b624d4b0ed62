"""``mechint checkpoint``: what a checkpoint is, and the same checkpoint in another format."""

from __future__ import annotations

from pathlib import Path

import click

from mechint.cli.common import (
    CliGroup,
    console,
    json_option,
    print_error,
    print_json,
    set_option,
    spinner,
    task_option,
)
from mechint.config import parse_assignment


@click.group(cls=CliGroup)
def checkpoint() -> None:
    """Look into a checkpoint, or write it in another format."""


@checkpoint.command()
@click.argument("path", type=click.Path(path_type=Path))
@task_option
@set_option
@json_option
def info(path: Path, task: str | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Say what PATH was taken for: format, architecture, task, step, metrics, and how well it
    answers.
    """
    with spinner(f"opening {path}"):
        from mechint.checkpoints import load_checkpoint

        opened = load_checkpoint(path, task=task, parameters=_parameters(settings))
        known = opened.provenance
        known["task"] = (
            None
            if opened.task is None
            else {"name": opened.task.name, "parameters": opened.task.to_dict()}
        )
        known["model"] = (
            opened.config.to_dict() if hasattr(opened.config, "to_dict") else str(opened.config)
        )
        known["weights"] = sum(parameter.numel() for parameter in opened.model.parameters())
        known["steps"] = list(opened.series)
    if as_json:
        from mechint.results import to_jsonable

        print_json(to_jsonable(known))
        return
    from mechint.report.render import flat

    rows = flat({name: value for name, value in known.items() if value not in (None, [], {})})
    width = max(len(name) for name, _ in rows)
    out = console()
    for name, value in rows:
        out.print(f"{name:<{width}}  {value}", markup=False, soft_wrap=True)
    if opened.task is None:
        print_error(
            "the file does not name its task; give it with --task and --set when you analyze it"
        )


@checkpoint.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "target",
    type=click.Choice(["mechint", "safetensors", "transformer-lens"]),
    help="When not given, the ending of OUT decides.",
)
@task_option
@set_option
def convert(
    path: Path, out: Path, target: str | None, task: str | None, settings: tuple[str, ...]
) -> None:
    """Write the checkpoint PATH to OUT in another format."""
    from mechint.report import check_writable

    check_writable(out)
    with spinner(f"converting {path}"):
        from mechint import checkpoints

        written = checkpoints.convert(
            path, out, format=target, task=task, parameters=_parameters(settings)
        )
    click.echo(f"{out} ({written})")


def _parameters(settings: tuple[str, ...]) -> dict[str, object]:
    return {name.removeprefix("task."): value for name, value in map(parse_assignment, settings)}
