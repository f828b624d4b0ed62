"""The frame of every command: errors as one line with exit status 2, streams that may break, the
shared options, completion of half-typed names.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NoReturn

import click
from click.shell_completion import CompletionItem

from mechint.config.settings import listed_values
from mechint.errors import MechintError, ParameterError, UnknownNameError
from mechint.registry import PROBES, TASKS
from mechint.registry.plugins import load_plugins
from mechint.system.progress import command_lines, echo, leave_unread
from mechint.system.progress import print_line as print_error

INTERRUPTED, TERMINATED = 130, 143
STOPS_AT_A_SIGN = ("strict", "surrogateescape")
"""Error handlers of stdout with which Python raises at a character that its encoding lacks; the
second is that of the locale C.
"""
MOVED = {
    ("analyze", "--over-steps"): "mechint table PATH --over-steps",
    ("analyze", "--csv"): "mechint table PATH --csv FILE",
    ("analyze", "--transition"): "mechint table PATH --transition NAME",
    ("analyze", "--workers"): "mechint table PATH --workers N",
    ("analyze", "--explain"): "mechint explain PATH",
    ("analyze", "--ablate"): "mechint.ablate(mechint.load(PATH), COMPONENT) in Python",
    ("analyze", "--trust-kept"): "nothing: no result is kept in a run",
    ("explain", "--sample"): "--data FILE, or mechint.load(PATH, data=…) in Python",
    ("explain", "--over-steps"): "mechint table PATH --over-steps --explain",
}
"""Command and option of earlier versions → what stands in their place."""
GOES_ON = {
    "train": "; --resume goes on with it",
    "sweep": "; --resume goes on with it",
    "reproduce": "; the same command goes on with it",
    "calibrate": "; with --out, the probes that were done are in the table",
}
"""Command → what is said when it is stopped; the others keep nothing that would go on."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM, where no training takes it up (`mechint.system.parallel.interruptible`)."""


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Inside, SIGTERM stops the command as Ctrl-C does; in the main thread, which has signals."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class CliGroup(click.Group):
    """A group of commands that turns what goes wrong into one line on stderr and an exit status.

    headings: command → the heading that its help puts it under; one list where there are none.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.headings: dict[str | None, str] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their help, under their headings where there are any."""
        width = formatter.width - max(map(len, self.commands)) - 6
        for heading in dict.fromkeys(self.headings.get(name, "Commands") for name in self.commands):
            rows = [
                (name, command.get_short_help_str(width))
                for name, command in self.commands.items()
                if self.headings.get(name, "Commands") == heading
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands in the order in which they were added."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; UnknownNameError with the nearest name."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise UnknownNameError.of("command", args[0], self.commands)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and return its status; 0 where the reader of its output, such as head,
        has seen enough (click would exit with 1).
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            leave_unread(sys.stdout)
            return 0

    def main(self, args: Any = None, prog_name: str | None = "mechint", **extra: Any) -> Any:
        """Run the command and exit: 0 or the command's own status, 2 for an error of the user."""
        extra["standalone_mode"] = False
        atexit.register(gc.freeze)  # to collect all that torch made takes 0.4 s, for nothing
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in STOPS_AT_A_SIGN:
            sys.stdout.reconfigure(errors="replace")
        try:
            with warnings.catch_warnings(), _terminable():
                warnings.showwarning = lambda message, *_: print_error(f"warning: {message}")
                status = super().main(args=args, prog_name=prog_name, **extra)
            if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]  # >&-
                sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:  # a group without its command
            click.echo(error.format_message(), err=True)
            sys.exit(2)
        except click.NoSuchOption as error:
            asked = error.ctx.info_name if error.ctx else None
            if moved := MOVED.get((str(asked), error.option_name)):
                fail(f"{asked} {error.option_name}: expected {moved}")
            named = {one.name for one in error.ctx.command.params} if error.ctx else set()
            hint = " A setting is given as --set NAME=VALUE." if "settings" in named else ""
            fail(error.format_message() + hint)
        except click.ClickException as error:
            fail(error.format_message())
        except MechintError as error:
            fail(str(error))
        except (KeyboardInterrupt, click.Abort) as stopped:
            words = sys.argv[1:] if args is None else args
            print_error(f"stopped{GOES_ON.get(next(iter(words), ''), '')}")
            ended = any(isinstance(one, _Terminated) for one in (stopped, stopped.__cause__))
            sys.exit(TERMINATED if ended else INTERRUPTED)
        except BrokenPipeError:  # what was left to flush
            leave_unread(sys.stdout)
            sys.exit(0)
        except OSError as error:
            fail(f"{error.filename or 'output'}: {error.strerror or error}")
        sys.exit(status if isinstance(status, int) else 0)


def example_commands(*lines: str) -> str:
    """Command lines as the end of a help text."""
    broken = [part for line in lines for part in command_lines(line, 58, " ")]
    return "\b\nExamples:\n" + "\n".join(broken)


def fail(message: str) -> NoReturn:
    """One line on stderr, and exit status 2."""
    print_error(message)
    sys.exit(2)


def print_json(value: Any) -> None:
    """`value` on stdout as JSON that every reader takes."""
    click.echo(json.dumps(value, allow_nan=False, ensure_ascii=False))


def seeds_of(text: str) -> tuple[int, ...]:
    """Seeds from ``0:8`` (0 to 7) or ``0,1,5``.

    >>> seeds_of("0:4"), seeds_of("3"), seeds_of("0,2,5")
    ((0, 1, 2, 3), (3,), (0, 2, 5))
    """
    where = f"--seeds {text[:40]}"
    seeds = tuple(listed_values(text, where))
    if not all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds):
        raise ParameterError(f"{where}: expected numbers below {2**32:,}, as 0:8 or 0,1,5")
    return seeds


def answer_of(text: str | None) -> int | Literal["all"] | None:
    """The answer of an example that ``--answer`` means; None where it is not given.

    >>> answer_of("2"), answer_of("-1"), answer_of("all")
    (2, -1, 'all')
    """
    if text is None or text == "all":
        return text
    if not re.fullmatch(r"-?\d{1,9}", text):
        raise ParameterError(
            f"--answer {text[:40]}: expected a number counted from 0, from the last one when "
            "negative, or all"
        )
    return int(text)


def split_commas(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """The names of an option that may be repeated and takes a list with commas, each once."""
    names = [name.strip() for value in values for name in value.split(",")]
    if not all(names):
        raise click.BadParameter("expected names with a comma between them", ctx, param)
    return tuple(dict.fromkeys(names))


def complete(names: Iterable[str], *, several: bool = False, paths: bool = False) -> Any:
    """Completion of half-typed `names`, which are listed when it is asked for and not imported.

    several: the last one of a list with commas; paths: of paths where no name begins like that.
    """

    def items(ctx: click.Context, param: click.Parameter, text: str) -> list[CompletionItem]:
        before, comma, last = text.rpartition(",") if several else ("", "", text)
        found = [name for name in names if name.startswith(last) and name not in before.split(",")]
        left = [CompletionItem(f"{before}{comma}{name}") for name in found]
        return left or ([CompletionItem(text, type="file")] if paths else [])

    return items


LOGGERS = ("tensorboard", "wandb")


PLUGINS = "mechint.registry.plugins"
"""The key of the plug-ins that a command was given, in click's context."""


def _load_plugins(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
    if not ctx.resilient_parsing:  # completion runs nobody's file
        ctx.meta[PLUGINS] = values
        load_plugins(values)


def path_option(*names: str, help: str, metavar: str = "FILE", **more: Any) -> Any:
    """An option that takes a path."""
    return click.option(*names, type=click.Path(path_type=Path), metavar=metavar, help=help, **more)


def count_option(*names: str, help: str, low: int = 1, high: int | None = None, **more: Any) -> Any:
    """An option that takes a whole number from `low` to `high`."""
    shown = more.get("default") is not None
    kind = click.IntRange(low, high)
    return click.option(*names, type=kind, metavar="N", show_default=shown, help=help, **more)


class GroupedCommand(click.Command):
    """A command whose help lists the five options that one needs first apart from the others."""

    FIRST = 5

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options under two headings, in the order in which they were written."""
        every = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        rows = [row for one in every if (row := one.get_help_record(ctx))]
        for heading, some in (("Options", rows[: self.FIRST]), ("More", rows[self.FIRST :])):
            with formatter.section(heading):
                formatter.write_dl(some)


plugin_option = click.option(
    "--plugin",
    multiple=True,
    metavar="FILE.py:NAME",
    callback=_load_plugins,
    expose_value=False,
    is_eager=True,  # before names of tasks and probes are read
    help="A task, probe or family of explanations of your own; the file is run. May be repeated.",
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter; may be repeated. Where two share a name, write task.NAME, model.NAME …",
)
task_option = click.option(
    "--task",
    "task",
    metavar="NAME",
    help="The task, where the file does not name it.",
    shell_complete=complete(TASKS),
)
mapping_option = path_option(
    "--mapping", help="A YAML file that says how the checkpoint's names become mechint's."
)
device_option = click.option(
    "--device", default="cpu", show_default=True, metavar="DEVICE", help="cpu, cuda, or cuda:N."
)
workers_option = count_option(
    "--workers",
    help="Local processes side by side; the numbers do not depend on it.  [default: the cores]",
    high=256,
)
log_option = click.option(
    "--log",
    "loggers",
    multiple=True,
    type=click.Choice(LOGGERS),
    help="Send the metrics there as they come. May be repeated.",
)


def named_probes(help: str) -> Any:
    """The option of comma-separated probes."""
    return click.option(
        "--probe",
        "names",
        multiple=True,
        callback=split_commas,
        metavar="NAME,…",
        shell_complete=complete(PROBES, several=True),
        help=help,
    )


probe_option = named_probes("Comma-separated probes; all quick ones that apply when none is named.")
data_option = path_option(
    "--data", help="Prompts in place of a task's inputs: .txt, a text per line, or .jsonl."
)
answer_option = click.option(
    "--answer",
    metavar="N|all",
    help="Which answer of an example: from 0, negative from the last one. Default: the last one.",
)
seed_option = count_option("--seed", help="Seed of what is drawn.", low=0, default=0)
out_option = path_option("--out", help="Write the report to this HTML file.")
light_option = click.option(
    "--light", is_flag=True, help="Write the report without plotly.js: static figures."
)
force_option = click.option(
    "--force", is_flag=True, help="Replace a file that mechint did not write."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
brief_option = click.option(
    "--brief", is_flag=True, help="Print JSON of under 2 kB: verdict, evidence, what next."
)
"""The shared options, each as a decorator."""


def model_options(command: Any) -> Any:
    """The options that every command on a model has, besides those that its help puts first."""
    options = (answer_option, seed_option, mapping_option, device_option, plugin_option)
    for one in reversed((*options, light_option, force_option, json_option, brief_option)):
        command = one(command)
    return command


def propose(verb: str, place: Path) -> None:
    """Say on stderr which command tells more about `place`, with the plug-ins of this one."""
    loaded = click.get_current_context().meta.get(PLUGINS, ())
    words = [f"--plugin {shlex.quote(one)}" for one in loaded]
    echo(" ".join([f"next: mechint {verb}", shlex.quote(str(place)), *words]), 6, err=True)
