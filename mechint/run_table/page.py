"""A table of models as a page: the rows, and their numbers over the setting that differs or over
the steps.
"""

from __future__ import annotations

import contextlib
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mechint import figures
from mechint.errors import MechintError, ParameterError, counted
from mechint.figures import Figure
from mechint.figures.build import Curve, mean_curve, quality_panels, step_panel
from mechint.probe.results import Table
from mechint.registry import PROBES, TASKS
from mechint.report.page import Page, Section
from mechint.run_table.dynamics import emergence_times, evaluations_of
from mechint.run_table.entries import CHANGED, Row, check_column, in_words, is_setting
from mechint.system.files import read_json
from mechint.system.jsonable import is_number

MAX_FIGURES = 4
"""Figures per probe: the numbers that vary most between the rows."""
MAX_SETTINGS = 8
"""Settings that are named before the others are only counted."""
FOLLOWING = ("model.d_vocab", "model.d_vocab_out", "model.output_sizes", "model.n_ctx")
"""Settings of the model that follow from its task."""


def page_of_table(
    rows: Sequence[Row],
    title: str,
    *,
    figures: Mapping[str, Sequence[Mapping[str, Figure]]] | None = None,
    command: str = "",
) -> Page:
    """The page of a table of models: the rows, and their numbers drawn over the setting that
    differs or over the steps.

    Args:
        rows: as `Runs.rows` gives them.
        figures: of a table over the steps of one run, probe → its figures at each row; they stand
            behind a slider.
        command: the command that makes the page again.
    """
    probes = list(dict.fromkeys(name for row in rows for name in _probes_of(row)))
    numbers = [name for probe in probes for name in main_columns(rows, probe, MAX_FIGURES)]
    if over_steps(rows):
        drawn = {"dynamics": dynamics_figure(rows, numbers)}
    else:
        varying = [name for name in numbers if len({row.get(name) for row in rows}) > 1]
        drawn = _over_setting(rows, ["test.accuracy", *varying]) if len(rows) > 2 else {}
    errors = [name for probe in probes if any((name := f"{probe}.error") in row for row in rows)]
    shown = [*shown_columns(rows, probes), *errors]
    columns = {name: [row.get(name) for row in rows] for name in shown}
    return Page(
        title,
        [
            Section("Models", tables={"models": Table(columns, "one row per model")}),
            *(
                Section(probe, figures=stepped)
                for probe, drawings in (figures or {}).items()
                if (stepped := _through_steps(rows, drawings))
            ),
        ],
        kicker="table",
        verdict=answer_over_steps(rows) if over_steps(rows) else answer_of(rows),
        caveat=notes_of(rows),
        figures=drawn,
        command=command,
    )


def answer_of(rows: Sequence[Row]) -> str:
    """The medians of test accuracy by the one setting beside the seed that differs, with the
    p-value of Kruskal and Wallis; "" where several differ, or two values lack two models each.
    """
    asked = [name for name in settings_of(rows) if name != "seed"]
    held: dict[str, list[float]] = defaultdict(list)
    one_differs = asked and not any(_varies(rows, asked[0], name) for name in asked[1:])
    for row in rows if one_differs else ():
        if is_number(row.get("test.accuracy")):
            value = row.get(asked[0])
            shown = f"{value:g}" if is_number(value) else str(value)
            held[shown].append(row["test.accuracy"])
    every = [one for values in held.values() for one in values]
    if min(len(held), *map(len, held.values()), 2) < 2 or len(set(every)) < 2:
        return ""
    from scipy.stats import kruskal

    p = kruskal(*held.values()).pvalue
    medians = ", ".join(
        f"{statistics.median(values):.0%} at {value} (n = {len(values)})"
        for value, values in held.items()
    )
    said = "differs" if p < 0.05 else "is not shown to differ"
    return (
        f"Test accuracy {said} by {asked[0].partition('.')[2] or asked[0]}: median {medians}, "
        f"p = {p:.2g}; {sum(one >= 0.9 for one in every)} of {len(every)} reach 90%."
    )


def answer_over_steps(rows: Sequence[Row]) -> str:
    """The step at which test accuracy first reaches one half, its median over runs, and where it
    ends; "" without test accuracies.
    """
    held = [row for row in rows if is_number(row.get("test.accuracy"))]
    last = {row.get("path"): row["test.accuracy"] for row in held}
    if not held:
        return ""
    runs = emergence_times(held, "test.accuracy")
    reached = [one.step for one in runs if one.step <= one.last]
    several = f" in {len(reached)} of {len(runs)} runs" if len(runs) > 1 else ""
    said = f"first reaches one half{several} at step {statistics.median(reached or [0]):,.0f}"
    said = said if reached else f"does not reach one half{' in any run' if several else ''}"
    return f"Test accuracy {said}, and ends at {statistics.median(last.values()):.0%}."


def shown_columns(rows: Sequence[Row], probes: Sequence[str], limit: int = 6) -> list[str]:
    """Columns that a person reads: names, what differs, accuracy, and of each probe its verdict,
    its words and at most `limit` of its numbers; the others are left to the CSV.
    """
    columns = ["name", "status", *settings_of(rows)[:MAX_SETTINGS], "test.accuracy", "accuracy"]
    for probe in probes:
        columns += [f"{probe}.verdict", *text_columns(rows, probe)]
        columns += main_columns(rows, probe, limit)
    return [name for name in dict.fromkeys(columns) if any(name in row for row in rows)]


# --- columns --------------------------------------------------------------------------------------
def settings_of(rows: Sequence[Row]) -> list[str]:
    """Columns of the configuration in which the rows differ, "task", "seed" and "step" among them;
    without the parameters of different tasks, and without what follows from the task.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    differing = [
        name
        for name in names
        if (name in ("task", "seed", "step") or is_setting(name))
        and len({str(row.get(name)) for row in rows}) > 1
    ]
    if "task" in differing:
        differing = [name for name in differing if not name.startswith("task.")]
    if any(name.partition(".")[0] == "task" for name in differing):
        differing = [name for name in differing if name not in FOLLOWING]
    return differing


def main_columns(rows: Sequence[Row], probe: str, limit: int = 6) -> list[str]:
    """The probe's columns that hold numbers in most rows: those that have a null first, then those
    that vary most.
    """
    held: dict[str, float] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        if not name.startswith(f"{probe}.") or name.endswith(".p"):
            continue
        values = [row[name] for row in rows if is_number(row.get(name))]
        if 2 * len(values) > len(rows):
            low, high = min(values), max(values)
            size = max(abs(low), abs(high))
            held[name] = (high - low) / size if size > 0 else 0.0
    with_null = {name for row in rows for name in row if name.endswith(".p")}
    return sorted(held, key=lambda name: (f"{name}.p" not in with_null, -held[name]))[:limit]


def _probes_of(row: Row) -> list[str]:
    """The probes that gave the row columns, or the reason for which they gave none."""
    heads = (name.partition(".") for name in row)
    found = [head for head, _, rest in heads if rest == "verdict" or (rest and head in PROBES)]
    return found + [
        name.removesuffix(".error")
        for name, value in row.items()
        if name.endswith(".error") and isinstance(value, str)  # a metric may be called an error too
    ]


def notes_of(rows: Sequence[Row]) -> str:
    """Lines on the runs behind the rows: those trained with other files than are there now, and
    those that the plan of their sweep has and the table lacks; "" where there is neither.
    """
    count = sum(CHANGED in row for row in rows)
    lines = [
        f"{counted(count, 'model')}: {row[CHANGED][0]} is another file now than in training, so "
        "that the numbers are of other data or of another task"
        for row in rows
        if CHANGED in row
    ][:1]
    runs = {Path(str(row.get("path"))) for row in rows}
    for place in () if over_steps(rows) else sorted({run.parent for run in runs}):
        with contextlib.suppress(MechintError, TypeError, KeyError):
            groups = read_json(place / "sweep.json") or ()
            planned = sum(len(group["runs"]) for group in groups)
            there = sum(run.parent == place for run in runs)
            if there < planned:
                lines.append(f"{there} of {counted(planned, 'run')} of {place / 'sweep.json'}")
    return "\n".join(lines)


def text_columns(rows: Sequence[Row], probe: str) -> list[str]:
    """The probe's columns that hold words, such as the mechanism, and differ between the rows."""
    skipped = (f"{probe}.verdict", f"{probe}.error")
    names = dict.fromkeys(name for row in rows for name in row if name.startswith(f"{probe}."))
    held = {name: {row[name] for row in rows if isinstance(row.get(name), str)} for name in names}
    return [name for name in names if name not in skipped and len(held[name]) > 1]


def chance_of(rows: Sequence[Row]) -> dict[str, float]:
    """Levels of chance for an axis of accuracy: that of the task where all rows are of runs of one
    with one output. The task is that of the runs' configurations; a table leaves out the settings
    in which no row differs.
    """
    found = set[float]()
    try:
        runs = {Path(row["path"]) for row in rows}
        asked = [read_json(run / "config.json")["task"] for run in runs]
        for task in {repr(one): one for one in asked}.values():
            chances = TASKS[task["name"]].from_dict(task["parameters"]).chance
            several = {-1.0, -2.0}  # no one level
            found |= {one.accuracy for one in chances.values()} if len(chances) == 1 else several
    except (MechintError, LookupError, TypeError, ValueError):
        return {}
    return {"chance": found.pop()} if len(found) == 1 else {}


def over_steps(rows: Sequence[Row]) -> bool:
    """Return whether there are several rows per run, at different steps."""
    runs = {row.get("path") for row in rows}
    return len({(row.get("path"), row.get("step")) for row in rows}) > len(runs)


def _over_setting(rows: Sequence[Row], columns: Sequence[str]) -> dict[str, Figure]:
    """`columns` over the setting that differs, every model a dot; models of different tasks by
    their names.
    """
    columns = [name for name in columns if sum(is_number(row.get(name)) for row in rows) > 1]
    settings = [name for name in settings_of(rows) if name != "step"]
    axes = [name for name in settings if all(is_number(row.get(name)) for row in rows)]
    axis = next((name for name in axes if name != "seed"), "seed" if "seed" in axes else None)
    color = next((name for name in settings if name != "seed" and _varies(rows, axis, name)), None)
    if "task" in settings:
        axis, color = "name", None
    return {} if axis is None else {name: dots(rows, axis, name, color) for name in columns}


def _varies(rows: Sequence[Row], axis: str | None, name: str) -> bool:
    """True if models at one place on the axis differ in `name`, so that it does not follow from the
    axis as d_head does from d_model.
    """
    places = [str(row.get(axis or "")) for row in rows]
    pairs = {(place, str(row.get(name))) for place, row in zip(places, rows, strict=True)}
    return len(pairs) > len(set(places))


def dots(rows: Sequence[Row], x: str, y: str, color: str | None = None) -> Figure:
    """Every model as a dot.

    x: a setting with an order, or "seed" or "name", which have none.

    Raises:
        ParameterError: no row has numbers there.
    """
    held = [row for row in rows if is_number(row.get(y)) and row.get(x) is not None]
    if not held:
        raise ParameterError(f"figure: columns {x} and {y} share no row with numbers")
    places = [str(row[x]) if x in ("seed", "name") else float(row[x]) for row in held]
    name = x.partition(".")[2] or x
    return figures.scatter(
        places,
        [float(row[y]) for row in held],
        title=f"{in_words(y)} by {name}",
        x_title="model" if x == "name" else name,
        y_title=in_words(y),
        groups=[f"{color.partition('.')[2] or color} = {row.get(color)}" for row in held]
        if color
        else None,
        text=[str(row.get("name")) for row in held],
        caption="One dot per model.",
        levels=chance_of(held) if y.endswith(".accuracy") else {},
    )


# --- figures of columns ---------------------------------------------------------------------------
def figure_of(
    rows: Sequence[Mapping[str, Any]], x: str, y: Sequence[str], color: str | None
) -> Figure:
    """`y` over `x`: the mean of the rows that share `x` and `color`, and their range as a band.

    Raises:
        UnknownNameError: no such column. ParameterError: it holds no numbers.
    """
    for name in (x, *y, *([color] if color else [])):
        check_column(rows, name)
    if x == "seed" and len(y) == 1 and not color:
        return dots(rows, x, y[0])
    curves: dict[str, Curve] = {}
    for column in y:
        for value in dict.fromkeys(row.get(color) for row in rows) if color else (None,):
            some = [row for row in rows if not color or row.get(color) == value]
            parts = [column] if len(y) > 1 or not color else []
            curve = mean_curve(some, x, column)
            if curve[0]:
                curves[", ".join([*parts, *([f"{color} = {value}"] if color else [])])] = curve
    if not curves:
        raise ParameterError(f"figure: columns {x} and {', '.join(y)} share no row with numbers")
    places = {name: curve[0] for name, curve in curves.items()}
    means = {name: curve[1] for name, curve in curves.items()}
    bands = {name: curve[2:] for name, curve in curves.items() if curve[2] != curve[3]}
    text = "Mean over the models that share a point; the band spans the smallest and largest one."
    return figures.lines(
        places,
        means,
        title=f"{' and '.join(map(in_words, y))} over {x}",
        x_title=x,
        y_title=in_words(y[0]) if len(y) == 1 else "value",
        caption=text if bands else "One point per model.",
        bands=bands,
        markers=True,
    )


# --- over steps -----------------------------------------------------------------------------------
def dynamics_figure(rows: Sequence[Row], columns: Sequence[str]) -> Figure:
    """Accuracy, loss and `columns` over the steps, a panel each, with a line where the slider
    stands.

    Args:
        rows: of a table over steps. Accuracy and loss are those of all evaluations of the runs.
        columns: of probes; several runs are shown by their mean, with their range as a band.
    """
    measured = (step_panel(rows, {name: in_words(name)}, in_words(name)) for name in columns)
    panels = quality_panels(evaluations_of(rows), chance_of(rows))
    panels += [panel for panel in measured if panel.series]
    steps = sorted({row["step"] for row in rows if is_number(row.get("step"))})
    several = len({row.get("path") for row in rows}) > 1
    text = "Accuracy and loss at every evaluation, the probes' numbers at every kept checkpoint"
    text += "; means over the runs, with their range." if several else "."
    log = spaced_logarithmically(steps)
    made = figures.stacked(
        panels,
        x_title="step (optimizer steps)",
        title="Dynamics",
        caption=text + (" Logarithmic steps; step 0 is not drawn." if log else ""),
        x_log=log,
    )
    return figures.with_cursor(made, [step for step in steps if step > 0 or not log])


def _through_steps(rows: Sequence[Row], shown: Sequence[Mapping[str, Figure]]) -> dict[str, Figure]:
    """The figures of one run's checkpoints behind a slider: name → the figure over all steps.

    Args:
        rows: of one run, and shown: the figures of one probe at each row; a figure that fewer than
            two steps have is left out.
    """
    pairs = sorted(zip(rows, shown, strict=True), key=lambda pair: pair[0]["step"])
    found: dict[str, dict[float, Figure]] = defaultdict(dict)
    for row, some in pairs:
        for name, figure in some.items():
            found[name][row["step"]] = figure
    return {name: figures.stepped(steps) for name, steps in found.items() if len(steps) > 1}


def spaced_logarithmically(steps: Sequence[float]) -> bool:
    """Return whether most of the steps lie in the first fifth of their range.

    >>> spaced_logarithmically([1, 2, 4, 8, 16, 32, 64]), spaced_logarithmically([0, 10, 20, 30])
    (True, False)
    """
    return len(steps) > 3 and statistics.median(steps) < 0.2 * max(steps)
