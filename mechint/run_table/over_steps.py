"""A table over steps as one figure: accuracy, loss and the probes' main numbers on one shared axis,
when each of them changes, and the figures of a run's checkpoints behind a slider.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from mechint import figures
from mechint.figures import Figure, Panel
from mechint.results import Table
from mechint.run_table.dynamics import first_passages
from mechint.run_table.evaluations import evaluations_of
from mechint.run_table.numbers import Row, in_words, is_number

ACCURACY, LOSS = ("train.accuracy", "test.accuracy"), ("train.loss", "test.loss")
LEAST_CHANGE = 0.5
"""Share of its range by which a number has to change from first to last to be a transition."""


def dynamics_figure(rows: Sequence[Row], columns: Sequence[str]) -> Figure:
    """Accuracy, loss and `columns` over the steps, a panel each, with a line where the slider
    stands.

    Args:
        rows: of a table over steps. Accuracy and loss are those of all evaluations of the runs.
        columns: of probes; several runs are shown by their mean, with their range as a band.
    """
    evaluations = evaluations_of(rows)
    panels = []
    for names, title, log, span in (
        (ACCURACY, "accuracy (0–1)", False, (-0.03, 1.03)),
        (LOSS, "loss (nats)", True, None),
    ):
        held = {name: name.partition(".")[0] for name in names if _has(evaluations, name)}
        if held:
            panels.append(_panel(evaluations, held, title, log, span))
    panels += [
        _panel(rows, {name: in_words(name)}, in_words(name), False, None) for name in columns
    ]
    steps = sorted({row["step"] for row in rows if is_number(row.get("step"))})
    found = transitions(evaluations, ["test.accuracy"])
    marks = {"test accuracy half way": found[0]["half way"]} if found else {}
    several = len({row.get("path") for row in rows}) > 1
    text = "Accuracy and loss at every evaluation, the probes' numbers at every kept checkpoint"
    text += "; means over the runs, with their range." if several else "."
    log = spaced_logarithmically(steps)
    made = figures.stacked(
        panels,
        x_title="step (optimizer steps)",
        title="Dynamics",
        caption=text + (" Logarithmic steps; step 0 is not drawn." if log else ""),
        marks=marks,
        x_log=log,
    )
    return figures.with_cursor(made, [step for step in steps if step > 0 or not log])


def transitions(rows: Sequence[Row], columns: Sequence[str]) -> list[dict[str, Any]]:
    """When numbers change: a mapping per column that ends far from where it began.

    "from" and "to" are means over the runs at the first and the last step; "10%", "half way" and
    "90%" the median over the runs of the step at which a run has come so far from its first to its
    last value, interpolated; "earliest" and "latest" the range of "half way".

    >>> rows = [{"path": "a", "step": s, "x": min(s / 8, 1.0)} for s in (0, 4, 8, 12)]
    >>> found = transitions(rows, ["x"])[0]; found["half way"], found["90%"]
    (4.0, 7.2)
    """
    found = []
    for column in columns:
        runs: dict[Any, list[Row]] = defaultdict(list)
        for row in rows:
            if is_number(row.get(column)) and is_number(row.get("step")):
                runs[row.get("path")].append(row)
        passed: dict[float, list[float]] = defaultdict(list)
        ends = []
        for own in runs.values():
            values = [row[column] for row in sorted(own, key=lambda row: row["step"])]
            first, last = values[0], values[-1]
            if abs(last - first) < LEAST_CHANGE * (max(values) - min(values)) or first == last:
                continue
            ends.append((first, last))
            for share in (0.1, 0.5, 0.9):
                level = first + share * (last - first)
                (time,) = first_passages(own, column, level, falling=last < first)
                passed[share].append(time.step)
        if ends:
            middle = {share: statistics.median(steps) for share, steps in passed.items()}
            found.append(
                {
                    "number": column,
                    "from": statistics.fmean(first for first, _ in ends),
                    "to": statistics.fmean(last for _, last in ends),
                    "10%": round(middle[0.1], 1),
                    "half way": round(middle[0.5], 1),
                    "90%": round(middle[0.9], 1),
                    "earliest": round(min(passed[0.5]), 1),
                    "latest": round(max(passed[0.5]), 1),
                    "runs": len(ends),
                }
            )
    return sorted(found, key=lambda one: one["half way"])


def transition_table(rows: Sequence[Row], columns: Sequence[str]) -> Table | None:
    """`transitions` of accuracy, loss and `columns`, the earliest first; None where nothing
    changes.
    """
    found = transitions(evaluations_of(rows), [*ACCURACY, *LOSS]) + transitions(rows, columns)
    found.sort(key=lambda one: one["half way"])
    if not found:
        return None
    steps = ("10%", "half way", "90%", "earliest", "latest")
    return Table(
        {name: [one[name] for one in found] for name in found[0]},
        "when each number has come how far from its first to its last value, medians over the runs",
        dict.fromkeys(steps, "step"),
    )


def through_steps(rows: Sequence[Row], shown: Sequence[Mapping[str, Figure]]) -> dict[str, Figure]:
    """The figures of one run's checkpoints behind a slider: name → the figure over all steps.

    Args:
        rows: of one run, and shown: the figures of one probe at each row; a figure that fewer than
            two steps have is left out.
    """
    names = dict.fromkeys(name for some in shown for name in some)
    pairs = sorted(zip(rows, shown, strict=True), key=lambda pair: pair[0]["step"])
    found = {}
    for name in names:
        steps = {row["step"]: some[name] for row, some in pairs if name in some}
        if len(steps) > 1:
            found[name] = figures.stepped(steps)
    return found


def spaced_logarithmically(steps: Sequence[float]) -> bool:
    """Whether most of the steps lie in the first fifth of their range.

    >>> spaced_logarithmically([1, 2, 4, 8, 16, 32, 64]), spaced_logarithmically([0, 10, 20, 30])
    (True, False)
    """
    return len(steps) > 3 and statistics.median(steps) < 0.2 * max(steps)


def _has(rows: Sequence[Row], column: str) -> bool:
    return sum(is_number(row.get(column)) for row in rows) > 1


def _panel(
    rows: Sequence[Row],
    columns: Mapping[str, str],
    title: str,
    log: bool,
    y_range: tuple[float, float] | None,
) -> Panel:
    """`columns` (name → label) over the steps: means over the runs, with their range."""
    series, bands = {}, {}
    for column, label in columns.items():
        curve: dict[float, list[float]] = defaultdict(list)
        for row in rows:
            if is_number(row.get(column)) and is_number(row.get("step")):
                curve[row["step"]].append(float(row[column]))
        steps = sorted(curve)
        series[label] = (steps, [statistics.fmean(curve[step]) for step in steps])
        if any(len(values) > 1 for values in curve.values()):
            edges = [[edge(curve[step]) for step in steps] for edge in (min, max)]
            bands[label] = (steps, *edges)
    return Panel(title, series, bands, log=log, y_range=y_range)
