"""The evaluations of the runs of a table over steps. Training evaluates at steps of its own, so a
kept checkpoint has metrics of its own only where one of them is its step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mechint.files import read_json_lines
from mechint.run_table.entries import METRICS, is_setting
from mechint.run_table.numbers import Row, is_number


def evaluations_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Every evaluation of the runs of a table, with its "path" and the run's settings, up to the
    last step at which the table has the run; the rows themselves where no run keeps its
    evaluations.
    """
    found = [_which(own[0]) | one for own in _by_path(rows) for one in _evaluations(own)]
    return found or [dict(row) for row in rows]


def with_evaluations(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """`rows` of a table over steps with every evaluation of their runs as a row of its own; the
    training metrics stand in those alone. Runs that keep no evaluations stay as they are.
    """
    found: list[dict[str, Any]] = []
    for own in _by_path(rows):
        evaluations = _evaluations(own)
        metrics = {name for one in evaluations for name in one} - {"step"}
        found += [{name: row[name] for name in row if name not in metrics} for row in own]
        found += [_which(own[0]) | one for one in evaluations]
    return found


def _by_path(rows: Sequence[Row]) -> list[list[Row]]:
    runs: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        runs[str(row.get("path"))].append(row)
    return list(runs.values())


def _evaluations(own: Sequence[Row]) -> list[dict[str, Any]]:
    """The evaluations of one run up to the last step of its rows, as the run keeps them."""
    last = max((row["step"] for row in own if is_number(row.get("step"))), default=0)
    return [
        one
        for one in read_json_lines(Path(str(own[0].get("path"))) / METRICS)
        if is_number(one.get("step")) and one["step"] <= last
    ]


def _which(row: Row) -> dict[str, Any]:
    """The columns that say which run a row is of."""
    named = ("name", "path", "status", "task", "seed")
    return {name: row[name] for name in row if name in named or is_setting(name)}
