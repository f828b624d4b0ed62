"""``mechint checkpoint``: what a checkpoint is, and the same checkpoint in another format."""

from __future__ import annotations

from pathlib import Path

import click

from mechint.cli.common import (
    CliGroup,
    json_option,
    mapping_option,
    plugin_option,
    print_error,
    print_json,
    set_option,
    task_option,
)
from mechint.cli.opening import Opening
from mechint.errors import one_line
from mechint.system.progress import console, counting, hanging

QUALITY = ("accuracy", "loss", "chance", "splits")
MAX_VALUE = 60
"""Characters of a setting that are printed; ``--json`` has all."""


@click.group(cls=CliGroup)
def checkpoint() -> None:
    """Inspect a checkpoint, or write it in another format."""


@checkpoint.command(short_help="Print format, architecture, task, step and accuracy.")
@click.argument("path", type=click.Path(path_type=Path))
@task_option
@set_option
@mapping_option
@plugin_option
@json_option
def info(
    path: Path, task: str | None, settings: tuple[str, ...], mapping: Path | None, as_json: bool
) -> None:
    """Say what PATH was taken for: format, architecture, task, step, metrics, what was assumed, and
    how well it answers.
    """
    with counting(f"opening {path}"):
        given = {"task": task, "settings": settings, "mapping": mapping}
        opened = Opening(path, given).checkpoint
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
        performance = opened.performance
        if performance is not None:
            known |= performance.to_dict()
    if as_json:
        from mechint.system.jsonable import to_jsonable

        print_json(to_jsonable(known))
        return
    from mechint.account import quality_of
    from mechint.account.terminal import quality_text
    from mechint.figures.theme import shorten_label
    from mechint.report._render import flat

    out, fields = console(), known["model"] if isinstance(known["model"], dict) else ()
    settable = {name: f"; --set model.{name}=… sets it" for name in fields}
    head = [
        f"{one_line(str(opened.path), 200)} ({known['format']})",
        *([] if opened.task is None else [f"task {opened.task.name}"]),
        *quality_text(quality_of(opened.subject())),
        *(
            f"assumed {name} = {'none' if one.value is None else one.value}: {one.why}"
            f"{settable.get(name, '')}"
            for name, one in opened.assumed.items()
        ),
    ]
    for line in head:
        out.print("\n".join(hanging(line, out.width, 2)), markup=False, soft_wrap=True)
    told = ("path", "format", "assumed", *QUALITY)
    rows = flat({name: value for name, value in known.items() if name not in told})
    rows = [(name, value) for name, value in rows if value not in ("–", "none")]
    width = max(len(name) for name, _ in rows)
    out.print()
    for name, value in rows:
        line = f"{name:<{width}}  {shorten_label(value, MAX_VALUE)}"
        out.print("\n".join(hanging(line, out.width, width + 2)), markup=False, soft_wrap=True)
    for line in opened.warnings():
        print_error(f"warning: {line}")
