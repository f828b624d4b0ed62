"""Which options of ``mechint sweep`` are refused together, before anything is read or trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mechint.cli.search import is_search
from mechint.errors import ParameterError, UnknownNameError
from mechint.registry import TASKS

OF_SEARCH = ("objective", "minimize", "maximize", "sampler")
"""Options that say what is searched for, besides the spaces."""


def _given(options: Mapping[str, Any]) -> str | None:
    """The first of `options` that was given, as it was written; None where none was."""
    return next((name for name, value in options.items() if value), None)


def refuse_new_plan(what: str, options: Mapping[str, Any]) -> None:
    """ParameterError where an option would change the plan of the sweep or search in `what`."""
    given = _given(options)
    if given is not None:
        raise ParameterError(
            f"sweep {what}: --{given}: what a directory holds is planned already; expected a task "
            "or a file, with another --out"
        )


def refuse_missing(what: str) -> None:
    """ParameterError where `what`, which is no task, is no file of a sweep either."""
    if "/" in what or what.endswith((".json", ".toml")):
        return  # said where the file is read
    unknown = UnknownNameError.of("task", what, TASKS)
    raise ParameterError(f"sweep {what}: there is no such directory of a sweep, and {unknown}")


def refuse_idle(
    what: str,
    resume: bool,
    executor: str,
    of_sweep: Mapping[str, Any],
    of_search: Mapping[str, Any],
) -> None:
    """ParameterError where an option that was given would do nothing.

    of_sweep: options that a search has no use for; of_search: those that only a search has.
    """
    elsewhere = None if executor == "local" else f"executor {executor}"
    if of_search["spaces"] or is_search(what):
        given = elsewhere or _given(of_sweep)
        if given is not None:
            raise ParameterError(
                f"--{given}: a search trains its trials here, in ensembles of its own; leave it out"
            )
        return
    given = _given(of_search)
    if given is not None:
        raise ParameterError(
            f"--{given}: is for a search; expected --search NAME=LOW..HIGH, or a search's directory"
        )
    if of_sweep["slurm"] and executor != "slurm":
        raise ParameterError(f"--slurm: is for --executor slurm, got --executor {executor}")
    if elsewhere and of_sweep["only"]:
        raise ParameterError(f"--only: runs its groups here; leave --{elsewhere} out")
    if elsewhere and Path(what).is_dir() and not (resume or of_sweep["dry-run"]):
        raise ParameterError(f"--{elsewhere}: {what} stands there; --resume goes on with it")


def refuse_absent_logs(executor: str, loggers: Sequence[str]) -> None:
    """ParameterError where metrics should be sent of runs that end after the command."""
    if loggers and executor == "slurm":
        raise ParameterError(
            "--log: this command does not wait for Slurm; mechint sweep DIR --log NAME sends what "
            "the runs in DIR have written"
        )
