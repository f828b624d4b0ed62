"""Completion of half-typed names of tasks, probes and studies; imports none of them."""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from mechint.registry import PROBES, STUDIES, TASKS

Items = list[CompletionItem]
LOGGERS = ("tensorboard", "wandb")


def tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Names of tasks."""
    return _starting(TASKS, incomplete)


def probes(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Names of probes."""
    return _starting(PROBES, incomplete)


def probe_lists(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Names of probes, the last of a list with commas."""
    before, comma, last = incomplete.rpartition(",")
    named = before.split(",")
    return _starting(
        [f"{before}{comma}{name}" for name in PROBES if name not in named],
        f"{before}{comma}{last}",
    )


def loggers(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Names of services that metrics can be sent to."""
    return _starting(LOGGERS, incomplete)


def studies(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Names of studies."""
    return _starting(STUDIES, incomplete)


def tasks_or_paths(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Names of tasks; paths where no name begins like that."""
    return _starting(TASKS, incomplete) or [CompletionItem(incomplete, type="file")]


def _starting(names: Iterable[str], incomplete: str) -> Items:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
