"""``--plugin file.py:Class``: a task or a probe in a file of one's own, for this command."""

from __future__ import annotations

from typing import Any

import click

from mechint.plugins import load_plugin

PLUGINS = "mechint.plugins"
"""Where a command finds the plug-ins that it was given, in click's context."""


def _load(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
    if not ctx.resilient_parsing:  # completion runs nobody's file
        ctx.meta[PLUGINS] = values
        for value in values:
            load_plugin(value)


def plugin_option(command: Any) -> Any:
    """The option ``--plugin``; it is read before names of tasks and probes are."""
    return click.option(
        "--plugin",
        multiple=True,
        metavar="FILE.py:CLASS",
        callback=_load,
        expose_value=False,
        is_eager=True,
        help="A task or probe of your own; the file is run. May be repeated.",
    )(command)
