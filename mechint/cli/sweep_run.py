"""What ``mechint sweep`` does with a plan: run it, show how it stands, measure, print."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mechint.cli.common import print_error, print_json
from mechint.cli.progress import headlines, progress_bar
from mechint.cli.resources import check_and_announce
from mechint.config.assign import integer_range
from mechint.errors import ParameterError, counted
from mechint.progress import counting

if TYPE_CHECKING:
    from mechint.sweeps import Group

Rows = list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class SweepRequest:
    """How a sweep is run, and what is made of it."""

    executor: str
    device: str
    options: Mapping[str, str]
    workers: int
    probes: Mapping[str, Mapping[str, Any]]
    loggers: tuple[str, ...]
    as_json: bool


def run_sweep_command(groups: list[Group], out: Path, request: SweepRequest) -> int:
    """Run what is not finished; the exit status."""
    from mechint.sweeps import run_sweep
    from mechint.sweeps.measuring import keep_probes
    from mechint.sweeps.table import PLAN, keep_plan
    from mechint.training.loggers import forwarding

    if (out / PLAN).exists():
        keep_plan(groups, out)
    specs = [spec for group in groups for spec in group.specs(out)]
    if request.executor == "local":
        ends = list(itertools.accumulate((len(group.runs) for group in groups), initial=0))
        together = [range(*pair) for pair in itertools.pairwise(ends)]
        check_and_announce(specs, request.device, request.workers, together)
    keep_plan(groups, out)
    keep_probes(out, request.probes)
    rows: Rows = []
    with (
        progress_bar(f"sweep of {counted(len(specs), 'run')}") as bar,
        forwarding(_places(groups, out), request.loggers, bar) as report,
    ):
        for done in run_sweep(
            groups,
            out,
            request.executor,
            request.device,
            report,
            workers=request.workers,
            options=request.options,
        ):
            rows += done
            if not request.as_json:
                print_rows(done)
    if request.as_json:
        print_json(rows)
    report_problems(rows)
    if _is_whole(rows):
        measure(out, request)
    return exit_status(rows)


def run_only_command(groups: list[Group], only: str, out: Path, request: SweepRequest) -> int:
    """Run the groups ``I`` or ``A:B`` here, and leave the sweep's table to who runs the rest; the
    exit status.
    """
    rows = run_some(groups, only, out, request.device, request.probes)
    (print_json if request.as_json else print_rows)(rows)
    report_problems(rows)
    return exit_status(rows)


def groups_in(out: Path) -> list[Group]:
    """The groups of the sweep in `out`, whose probes can be read."""
    from mechint.sweeps import read_plan
    from mechint.sweeps.measuring import probes_of

    groups = read_plan(out)
    probes_of(out)
    return groups


def show_sweep(groups: list[Group], out: Path, request: SweepRequest) -> int:
    """How a sweep stands; what has come since is measured and sent where that was asked for. The
    exit status is 0 whatever has failed.
    """
    from mechint.sweeps import status
    from mechint.sweeps.measuring import keep_probes
    from mechint.training.loggers import Forwarder

    keep_probes(out, request.probes)
    Forwarder(_places(groups, out), request.loggers).close()
    rows = status(groups, out)
    (print_json if request.as_json else print_rows)(rows)
    report_failures(rows)
    text = ", ".join(f"{count} {name}" for name, count in _counts(rows).items())
    print_error(f"{out}: {text}" + ("; --resume goes on" if _is_left(rows) else ""))
    if _is_whole(rows):
        measure(out, request)
    return 0


def _places(groups: Sequence[Group], out: Path) -> list[Path]:
    return [path for group in groups for path in group.paths(out)]


def run_some(
    groups: list[Group],
    only: str,
    out: Path,
    device: str,
    probes: Mapping[str, Mapping[str, Any]],
) -> Rows:
    """Run the groups ``I`` or ``A:B``, as a task of a batch system does."""
    from mechint.sweeps import run_group
    from mechint.sweeps.measuring import keep_probes
    from mechint.sweeps.table import keep_plan
    from mechint.training.interrupt import interruptible

    chosen = integer_range(only)
    if chosen is None and re.fullmatch(r"\d{1,12}", only):
        chosen = range(int(only), int(only) + 1)
    if chosen is None or chosen.start < 0:
        raise ParameterError(f"--only {only[:40]}: expected a group, such as 3, or several, 0:4")
    if not chosen or chosen.start >= len(groups):
        there = f"groups from 0 to {len(groups) - 1}" if len(groups) > 1 else "0, the only group"
        raise ParameterError(f"--only {only}: expected {there}")
    keep_plan(groups, out)
    keep_probes(out, probes)
    rows: Rows = []
    with progress_bar(f"groups {only}") as report, interruptible() as interrupted:
        for group in groups[chosen.start : chosen.stop]:
            rows += run_group(group, out, device, report)
            if interrupted.is_set():
                raise KeyboardInterrupt
    return rows


def report_failures(rows: Rows) -> None:
    """A line on stderr for each run that failed."""
    for row in rows:
        if row["status"] == "failed":
            print_error(f"run {row['id']} failed: {row.get('error', 'see its directory')}")


def report_problems(rows: Rows) -> None:
    """The failures, and how many runs were left to another process."""
    report_failures(rows)
    if running := _counts(rows)["running"]:
        print_error(f"another process trains {counted(running, 'run')}")


def exit_status(rows: Rows) -> int:
    """2 where a run failed, else 0; KeyboardInterrupt where one was interrupted."""
    counts = _counts(rows)
    if counts["interrupted"]:
        raise KeyboardInterrupt
    return 2 if counts["failed"] else 0


def _counts(rows: Rows) -> Counter[str]:
    """How many runs have each status."""
    return Counter(row["status"] for row in rows)


def _is_left(rows: Rows) -> bool:
    """Whether a run waits for somebody to train it."""
    return any(_counts(rows)[name] for name in ("waiting", "interrupted", "submitted"))


def _is_whole(rows: Rows) -> bool:
    """Whether no run is still to be trained, or being trained."""
    return not _is_left(rows) and not _counts(rows)["running"]


def measure(out: Path, request: SweepRequest) -> None:
    """The table of the sweep and its probes in DIR/sweep.csv; what a kill left out is measured."""
    from mechint.run_table import runs
    from mechint.sweeps.measuring import probes_of

    chosen = probes_of(out)
    if not chosen:
        return
    table = runs(out, workers=request.workers, device=request.device)
    table = dataclasses.replace(table, measurements=tuple(chosen))
    with counting("measuring") as report:
        place = table.csv(out / "sweep.csv", report)
    names = ", ".join(measurement.probe.name for measurement in chosen)
    print_error(
        f"{names} of {counted(len(table), 'run')}: {place}; mechint analyze {out} --out FILE"
    )


def print_rows(rows: Rows) -> None:
    """A line per run on stdout: its id, its status and its main numbers."""
    width = max((len(row["id"]) for row in rows), default=0)
    for row in rows:
        click.echo(
            f"{row['id']:<{width}}  {row['status']:<11}  {headlines(row['metrics'])}".rstrip()
        )
