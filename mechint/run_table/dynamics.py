"""Dynamics in a table over steps: emergence times, transitions along size."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Num

from mechint.errors import DataError, ParameterError
from mechint.run_table.entries import METRICS, Row, check_column, is_setting
from mechint.run_table.transitions import Transition, fit_transition
from mechint.system.files import read_json_lines
from mechint.system.jsonable import is_number


@dataclass(frozen=True)
class EmergenceTime:
    """The step at which a run's column first passes a level; infinite where it never does.

    `last` is the last step that was looked at, which bounds an infinite time from below.
    """

    path: str
    step: float
    last: float


def emergence_times(
    rows: Sequence[Row], column: str, level: float = 0.5, *, falling: bool = False
) -> list[EmergenceTime]:
    """Per run, the first step from which `column` is at or above `level`.

    Between two rows the step is interpolated linearly; a training metric is read at every
    evaluation of the run, up to the last step of its rows.

    Args:
        rows: of a table over steps, with "path" and "step".
        falling: the first step at or below the level, for losses.

    Raises:
        UnknownNameError: no such column. DataError: no row with a number there.

    >>> rows = [{"path": "a", "step": s, "x": s / 10} for s in (0, 4, 8)]
    >>> emergence_times(rows, "x", 0.6)[0].step
    6.0
    """
    rows = with_evaluations(rows)
    check_column(rows, column)
    sign = -1 if falling else 1
    found = [
        EmergenceTime(path, passing(steps, sign * np.array(values), sign * level), float(steps[-1]))
        for path, steps, values in _by_run(rows, column)
    ]
    if not found:
        raise DataError(f"column {column}: no row over steps holds a number")
    return found


def passing(
    steps: Sequence[float] | Num[np.ndarray, " step"],
    values: Num[np.ndarray, " step"],
    level: float,
) -> float:
    """The step, interpolated linearly, from which `values` are at or above `level`; infinite where
    they never are.

    >>> passing([0, 10, 20], np.array([0.0, 0.4, 0.6]), 0.5)
    15.0
    """
    passed = np.flatnonzero(values >= level)
    if not len(passed):
        return math.inf
    at = int(passed[0])
    if at == 0:
        return float(steps[0])
    share = (level - values[at - 1]) / (values[at] - values[at - 1])
    return float(steps[at - 1] + share * (steps[at] - steps[at - 1]))


def transition(
    rows: Sequence[Row], size: str, accuracy: str = "test.accuracy", *, seed: int = 0
) -> Transition:
    """The logistic curve of `accuracy` over the logarithm of column `size` (of a setting, with or
    without its owner), with its bootstrap.

    Raises:
        UnknownNameError: no such column. DataError: fewer than two sizes, or an accuracy outside
            0–1.
    """
    size, held = _sized(rows, size, accuracy)
    return fit_transition([row[size] for row in held], [row[accuracy] for row in held], seed=seed)


def compare_transitions(
    rows: Sequence[Row], size: str, by: str, bar: float = 1.0, accuracy: str = "test.accuracy"
) -> list[dict[str, Any]]:
    """For each two values of column `by`, the factor by which models of the first must be larger
    along `size` to pass one half, by profile likelihood with its 95% interval, and the exact shift
    test of "more than `bar` times"; first is the one that must.

    Raises:
        UnknownNameError: no such column. DataError: fewer than two values of `by`.
    """
    from mechint.run_table.shifts import (
        GroupRuns,
        at_most,
        decide_ratio,
        estimate_ratio,
        why_incomparable,
    )

    size, held = _sized(rows, size, accuracy)
    by = _column(rows, by)
    groups: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for row in held:
        value = row.get(by)
        name = "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        groups[name].append((row[size], row[accuracy] >= 0.5))
    if len(groups) < 2:
        raise DataError(f"column {by}: {len(groups)} value; expected at least two to compare")
    runs = {name: GroupRuns.of(*zip(*pairs, strict=True)) for name, pairs in groups.items()}
    found = []
    for names in combinations(runs, 2):
        if estimate_ratio(*(runs[name] for name in names)).value < 1:
            names = names[::-1]
        first, second = (runs[name] for name in names)
        ratio, wrong = estimate_ratio(first, second), why_incomparable(first, second, bar)
        decided = decide_ratio(first, second, (bar, math.inf), ratio)
        found.append(
            {
                **dict(zip(("first", "second"), names, strict=True)),
                **asdict(ratio),
                "p_value": at_most(first, second, bar),
                "verdict": "unclear" if wrong else decided.verdict,
                "reason": "; ".join(wrong) or decided.reason,
            }
        )
    return found


def _sized(rows: Sequence[Row], size: str, accuracy: str) -> tuple[str, list[Row]]:
    """The full name of column `size`, and the rows that have numbers there and of `accuracy`."""
    size = _column(rows, size)
    check_column(rows, accuracy)
    held = [row for row in rows if is_number(row.get(size)) and is_number(row.get(accuracy))]
    if any(row[size] <= 0 for row in held):
        raise ParameterError(f"column {size}: expected sizes above 0")
    return size, held


def _column(rows: Sequence[Row], name: str) -> str:
    """The full name of a column, of a setting with or without its owner."""
    names = dict.fromkeys(name for row in rows for name in row)
    found = next((one for one in names if is_setting(one) and one.endswith(f".{name}")), name)
    check_column(rows, found)
    return found


def _by_run(rows: Sequence[Row], column: str) -> Iterator[tuple[str, list[float], list[float]]]:
    """(path, steps, values) of every run, by ascending step, rows without a number left out."""
    held = [row for row in rows if is_number(row.get(column)) and is_number(row.get("step"))]
    for own in by_path(held):
        curve = {row["step"]: float(row[column]) for row in own}
        steps = sorted(curve)
        yield str(own[0].get("path")), steps, [curve[step] for step in steps]


# --- the evaluations of runs ----------------------------------------------------------------------
def evaluations_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Every evaluation of the runs of a table, with its "path" and the run's settings, up to the
    last step at which the table has the run; the rows themselves where no run keeps its
    evaluations.
    """
    found = [_which(own[0]) | one for own in by_path(rows) for one in _evaluations(own)]
    return found or [dict(row) for row in rows]


def with_evaluations(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """`rows` of a table over steps with every evaluation of their runs as a row of its own; the
    training metrics stand in those alone. Runs that keep no evaluations stay as they are.
    """
    found: list[dict[str, Any]] = []
    for own in by_path(rows):
        evaluations = _evaluations(own)
        metrics = {name for one in evaluations for name in one} - {"step"}
        found += [{name: row[name] for name in row if name not in metrics} for row in own]
        found += [_which(own[0]) | one for one in evaluations]
    return found


def by_path(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each run."""
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
