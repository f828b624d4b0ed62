"""``mechint tasks`` and ``mechint probes``: what there is, and all about one of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from mechint.cli.common import (
    complete,
    count_option,
    example_commands,
    json_option,
    plugin_option,
    print_json,
    set_option,
)
from mechint.cli.train import preset_settings
from mechint.registry import PROBES, TASKS, Registry
from mechint.system.progress import console, hanging

if TYPE_CHECKING:
    from rich.console import Console

    from mechint.task import Task


@click.command(
    short_help="List the tasks, or show one.",
    epilog=example_commands("mechint tasks", "mechint tasks listops --set n=5 --examples 8"),
)
@click.argument("name", required=False, shell_complete=complete(TASKS))
@count_option("--examples", help="How many examples to show.", low=0, default=3)
@count_option("--seed", help="Seed of the examples.", low=0, default=0)
@click.option(
    "--split",
    default="train",
    show_default=True,
    type=click.Choice(["train", "validation", "test"]),
    help="Where the examples come from; of a finite task, the partition that --seed draws.",
)
@set_option
@plugin_option
@json_option
def tasks(
    name: str | None, examples: int, seed: int, split: str, settings: tuple[str, ...], as_json: bool
) -> None:
    """List the tasks, or show one: parameters, examples, variables, controls, source."""
    if name is None:
        _list(TASKS, as_json)
        return
    from mechint.config import assign

    kind = TASKS[name]
    task = kind.from_dict(assign(settings, {"task": kind})["task"])
    shown = _examples(task, examples, seed, split)
    if as_json:
        print_json(
            {"task": name, "parameters": task.to_dict(), "tables": task.tables(), "examples": shown}
        )
    else:
        _show_task(name, task, shown)


@click.command(
    short_help="List the probes, or show one.",
    epilog=example_commands("mechint probes", "mechint probes das"),
)
@click.argument("name", required=False, shell_complete=complete(PROBES))
@plugin_option
@json_option
def probes(name: str | None, as_json: bool) -> None:
    """List the probes with their questions, or show one: its settings, what it needs, its
    source.
    """
    if name is None:
        _list(PROBES, as_json)
        return
    probe = PROBES[name]
    if as_json:
        print_json(
            {
                "probe": name,
                "question": probe.question,
                "needs": probe.needs,
                "source": probe.source,
                "settings": probe.describe(),
            }
        )
        return
    out = console()
    out.print(f"[bold]{name}[/bold]", soft_wrap=True)
    out.print(f"try: mechint analyze PATH --probe {name}\n", markup=False, soft_wrap=True)
    _print_prose(out, probe)
    _show_settings(out, probe.describe(), "settings")
    if probe.needs:
        out.print(f"\nneeds   {', '.join(probe.needs)}", markup=False)
    out.print(f"source  {probe.source}", markup=False)


def _list(registry: Registry, as_json: bool) -> None:
    """Names and summaries under their topics."""
    described = {name: registry.describe(name) for name in registry}
    if as_json:
        print_json(described)
        return
    width, out = max(map(len, described), default=0), console()
    for place, (topic, names) in enumerate(registry.topics().items()):
        out.print("\n" * bool(place) + topic.upper(), style="bold", markup=False)
        for name in names:
            text = f"  {name:<{width}}  {described[name].replace('`', '')}".rstrip()
            for part in hanging(text, out.width, width + 4):
                click.echo(part)


def _examples(task: Task, n: int, seed: int, split: str) -> list[dict[str, Any]]:
    from mechint.system.jsonable import to_jsonable

    if n == 0:
        return []
    batch = task.sample(n, seed, split)
    return [
        {"text": task.text(tokens), "tokens": to_jsonable(tokens), "targets": to_jsonable(targets)}
        for tokens, targets in zip(batch.tokens, batch.targets, strict=True)
    ]


def _show_task(name: str, task: Task, examples: Iterable[Mapping[str, Any]]) -> None:
    out = console()
    out.print(f"[bold]{name}[/bold]")
    _print_prose(out, type(task))
    given = task.to_dict()
    rows = [row | {"value": _shown(given[row["name"]])} for row in type(task).describe()]
    _show_settings(out, rows, "parameters")
    if examples:
        out.print("\n[bold]examples[/bold]")
    for example in examples:
        line = f"  {example['text']}  →  {task.answer_text(example['targets'])}"
        for part in hanging(line, out.width, 6):
            click.echo(part)
    groups = {
        "variables": {
            key: variable.description for key, variable in list(task.variables.items())[:8]
        },
        "programs": {key: one.description for key, one in task.programs.items()},
        "controls": {control.name: control.description for control in task.controls},
        "chance": {
            key: f"accuracy {chance.accuracy:.4g}, loss {chance.loss:.4g}"
            for key, chance in list(task.chance.items())[:8]
        },
    }
    for title, entries in groups.items():
        if entries:
            out.print(f"\n[bold]{title}[/bold]")
        for key, line in entries.items():
            out.print(f"  {key}: {line}" if line else f"  {key}", markup=False)
    defaults = {"model": task.model_defaults, "training": task.train_defaults}
    for title, values in defaults.items():
        if values:
            out.print(
                f"\n{title} defaults  "
                + ", ".join(f"{key}={value}" for key, value in values.items()),
                markup=False,
            )
    if task.presets:
        out.print("\n[bold]presets[/bold], for mechint train --preset")
    for preset in task.presets:
        out.print(f"  {preset}: {', '.join(preset_settings(name, preset))}", markup=False)
        if preset in task.preset_results:
            out.print(f"    reached {task.preset_results[preset]}", markup=False)
    out.print(f"\nsource  {task.source}", markup=False)


def _print_prose(out: Console, kind: type) -> None:
    """The docstring of a class without its example and its markup; lines that are indented, or
    begin a list, stay lines.
    """
    text = (inspect.getdoc(kind) or "").partition(">>>")[0].replace("`", "").strip()
    for line in re.sub(r"(?<!\n)\n(?![\n -])", " ", text).splitlines():
        for part in hanging(line, out.width, 4 if line.startswith((" ", "-")) else 0) or [""]:
            click.echo(part)


def _shown(value: Any) -> str:
    from mechint.system.jsonable import short

    return "none" if value is None else short(value, 40)


def _show_settings(out: Console, rows: Sequence[Mapping[str, str]], title: str) -> None:
    """Settings, each with its value, its type or range, and its meaning on lines of their own."""
    if rows:
        out.print(f"\n[bold]{title}[/bold]")
    for row in rows:
        value = row.get("value") or _shown(row["default"].strip('"').replace("null", "none"))
        expected = f"{row['name']} = {value}  ({row['range'] or row['type']})"
        for text, indent in ((expected, 4), (f"    {row['help']}", 4)):
            for line in hanging(text, out.width, indent):
                click.echo(line)
