"""Progress of commands: a bar with rate and time left on a terminal, a line every ten seconds
elsewhere.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

import click

from mechint.errors import in_words, one_line, per_time, percent, spell

if TYPE_CHECKING:
    from rich.console import Console

EVERY = 10.0
"""Seconds between two lines of progress where stderr is not a terminal."""

_inside: ContextVar[Callable[[str], None] | None] = ContextVar("inside", default=None)
"""Shows a text beside the name of the thing that a command has come to."""

Count = Callable[[int, int, str], None]
"""Takes how many are done, how many there are, and the name of the one that comes now."""


def print_line(message: str) -> None:
    """One printable line on stderr, as `echo` wraps it."""
    echo(f"mechint: {one_line(message)}", err=True)


def echo(line: str, indent: int = 2, *, err: bool = False) -> None:
    """Print one line; on a terminal it is broken between words, the later parts indented. What
    cannot be written on stderr, as on a full disk, is lost, and no reason to stop.
    """
    stream, line = sys.stderr if err else sys.stdout, spell(line)
    # without a stream (`2>&-`) Python has None
    terminal = stream is not None and stream.isatty()  # pyright: ignore[reportUnnecessaryComparison]
    parts = hanging(line, shutil.get_terminal_size().columns, indent) if terminal else [line]
    try:
        for part in parts:
            click.echo(part, err=err)
    except OSError:
        if not err:
            raise
        leave_unread(sys.stderr)


def leave_unread(stream: TextIO) -> None:
    """Let all that is still written to a stream that nobody reads any more go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def hanging(text: str, width: int, indent: int) -> list[str]:
    """`text` in lines of at most `width`, broken between words alone, the later ones indented.

    >>> hanging("mechint train", -5, 2)
    ['mechint', '  train']
    """
    return textwrap.wrap(
        text,
        max(width, indent + 1),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def command_lines(command: str, width: int, start: str = "next:") -> list[str]:
    """A command behind `start`, broken between words so that it runs as it stands.

    >>> print(*command_lines("mechint explain m.pt --claim 'L0H0 attends self'", 40), sep="\\n")
    next: mechint explain m.pt --claim \\
          'L0H0 attends self'
    """
    lines, indent = [start], " " * 5
    for word in re.findall(r"'[^']*'|\S+", command):
        if len(lines[-1]) + len(word) + 3 > width and lines[-1].strip() not in ("", start.strip()):
            lines[-1] += " \\"
            lines.append(indent)
        lines[-1] += f" {word}"
    return lines


def console(*, err: bool = False) -> Console:
    """A rich console on stdout or stderr. A stdout that nobody reads any more is left to the
    command (rich's own ends with the status 1, which stands for a claim that failed), and a stderr
    goes nowhere: it is progress alone.
    """
    from rich.console import Console

    class PipedConsole(Console):
        def on_broken_pipe(self) -> None:
            if not err:
                raise  # the BrokenPipeError that rich is handling
            leave_unread(sys.stderr)

    made = PipedConsole(stderr=err, highlight=False)
    if made.width < 1:  # COLUMNS=0
        made.width = shutil.get_terminal_size().columns
    return made


@contextlib.contextmanager
def counting(title: str) -> Iterator[Count]:
    """Progress over things that are counted, with rate and time left, on stderr.

    Yields the function that is told how far it is, of 0 where that is not known. A bar on a
    terminal; elsewhere a line every `EVERY` seconds and at the end. What takes long inside one of
    them says how far it is by `counting_within`.
    """
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn

    out, start = console(err=True), time.monotonic()
    last, now = start, (0, 1, "")
    columns = (BarColumn(20), TextColumn("{task.description}"))
    shown = {"disable": not out.is_terminal, "redirect_stdout": sys.stdout.isatty()}
    with Progress(*columns, console=out, transient=True, **shown) as bar:
        entry = bar.add_task(title, total=None)

        def show(done: int, of: int, text: str) -> None:
            nonlocal last
            at = time.monotonic()
            said = f"{done} of {of} ({text}){_pace(done, of, at - start)}" if of else text
            if out.is_terminal:
                said = escape(f"{title}: {said}")
                bar.update(entry, completed=done, total=of or None, description=said)
            elif at - last >= EVERY or (done >= of > 0 and at - start >= EVERY):
                last = at
                print_line(f"{title}: {said}")

        def count(done: int, of: int, name: str) -> None:
            nonlocal now
            if (done, of, name) != now:
                now = (done, of, name)
                show(*now)

        token = _inside.set(lambda text: show(now[0], now[1], f"{now[2]}, {text}"))
        try:
            yield count
        finally:
            _inside.reset(token)


def counting_if(shown: bool, title: str) -> AbstractContextManager[Count]:
    """`counting` where it is `shown`; a function that says nothing elsewhere."""
    return counting(title) if shown else contextlib.nullcontext(lambda done, of, name: None)


@contextlib.contextmanager
def counting_within(what: str) -> Iterator[Callable[[int, int], None]]:
    """Progress over parts, "forwards" say, of the thing that a command counts; shown beside its
    name, with the time left. Nothing is shown where no command counts.

    Yields the function that is told how many are done, and how many there are.
    """
    show, start, said = _inside.get(), time.monotonic(), ""
    if show is None:
        yield lambda done, of: None
        return

    def count(done: int, of: int) -> None:
        nonlocal said
        if done:
            seconds = time.monotonic() - start
            said = f"{what} {done:,} of {of:,}{_pace(done, of, seconds)}"
            show(said)

    token = _inside.set(lambda text: show(f"{said}, {text}" if said else text))
    try:
        yield count
    finally:
        _inside.reset(token)


def _pace(done: int, of: int, seconds: float) -> str:
    """Rate and time left, once there is a rate.

    >>> _pace(0, 9, 5.0), _pace(3, 9, 6.0)
    ('', ', 30 per minute, 12 s left')
    """
    if not done:
        return ""
    rate = done / max(seconds, 1e-9)
    return f", {per_time(rate)}, {in_words((of - done) / rate)} left"


# --- training -------------------------------------------------------------------------------------
@contextlib.contextmanager
def training_bar(title: str) -> Iterator[Callable[[Any], None]]:
    """Progress over the steps that are left to train, with the latest accuracies.

    Yields the function that is told each `mechint.training.Progress`; of several ensembles the
    steps are those of the share of all work that is done.
    """
    with counting(title) as count:
        begun, latest = math.nan, ""

        def show(now: Any) -> None:
            nonlocal begun, latest
            begun = now.done if math.isnan(begun) else begun  # a run that is resumed begins late
            latest = summary(now.metrics) or latest
            models = f"  {now.models} models" if now.models > 1 else ""
            if latest:
                done, of = (round((share - begun) * now.steps) for share in (now.done, 1))
                count(done, of, f"{latest}{models}")

        yield show


def summary(metrics: Mapping[str, Any]) -> str:
    """The accuracies (or losses, where a task has none) in a few words.

    >>> summary({"train.accuracy": 1.0, "test.accuracy": 0.5, "train.loss": 0.1})
    'train 100%  test 50.0%'
    """
    accuracies, losses = [], []
    for split in ("train", "test"):
        if f"{split}.accuracy" in metrics:
            accuracies.append(f"{split} {percent(float(metrics[f'{split}.accuracy']))}")
        if f"{split}.loss" in metrics:
            losses.append(f"{split} loss {float(metrics[f'{split}.loss']):.3g}")
    return "  ".join(accuracies or losses)
