"""A table of models as a page: what differs, how well each does, and every probe's numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mechint.report.page import Page, Section
from mechint.results import Figure, Table
from mechint.run_table.compare import Comparison
from mechint.run_table.entries import is_setting
from mechint.run_table.evaluations import evaluations_of
from mechint.run_table.figures import by_model, figure_of
from mechint.run_table.numbers import Row, all_numbers, in_words, is_number
from mechint.run_table.over_steps import dynamics_figure, through_steps, transition_table
from mechint.terminal import percent

MAX_FIGURES = 4
"""Figures per probe: the numbers that vary most between the rows."""
MAX_SETTINGS = 8
"""Settings that are named before the others are only counted."""
FOLLOWING = ("model.d_vocab", "model.d_vocab_out", "model.output_sizes", "model.n_ctx")
"""Settings of the model that follow from its task."""
OUTCOMES = ("yes", "no", "unclear")


def page_of_table(
    rows: Sequence[Row],
    title: str,
    *,
    comparison: Comparison | None = None,
    figures: Mapping[str, Sequence[Mapping[str, Figure]]] | None = None,
    command: str = "",
) -> Page:
    """The page of a table of models.

    Args:
        rows: as `Runs.rows` gives them.
        comparison: of the two models, where there are two.
        figures: of a table over the steps of one run, probe → its figures at each row; they stand
            behind a slider.
        command: the command that makes the page again.
    """
    probes = list(dict.fromkeys(name for row in rows for name in _probes_of(row)))
    stepped = {name: through_steps(rows, shown) for name, shown in (figures or {}).items()}
    sections = [_models(rows)]
    sections += [_measured(rows, probe, stepped.get(probe)) for probe in probes]
    columns = [name for probe in probes for name in main_columns(rows, probe, MAX_FIGURES)]
    if over_steps(rows) and (table := transition_table(rows, columns)) is not None:
        sections.insert(0, _transitions(table))
    if comparison is not None:
        sections.insert(1, _compared(comparison))
    return Page(
        title,
        sections,
        kicker="table",
        quality=_quality(evaluations_of(rows) if over_steps(rows) else rows),
        facts={
            "checkpoints" if over_steps(rows) else "models": str(len(rows)),
            "what differs": _first(settings_of(rows)) or _nothing(rows),
        },
        figures={"dynamics": dynamics_figure(rows, columns)} if over_steps(rows) else {},
        command=command,
    )


def _compared(comparison: Comparison) -> Section:
    numbers = comparison.to_dict()
    return Section(
        "Side by side",
        question="On the same examples, what differs?",
        lead=comparison.sentence(),
        metrics=numbers,
        nulls=[comparison.null],
        figures={"cka": comparison.figure()},
    )


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


def _nothing(rows: Sequence[Row]) -> str:
    """What stands in place of settings that differ: runs say theirs, checkpoint files do not."""
    known = any(name in ("task", "seed") or is_setting(name) for row in rows for name in row)
    return "nothing" if known else "not read from checkpoint files"


def _first(names: Sequence[str], limit: int = MAX_SETTINGS) -> str:
    """The first of `names`, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


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
    return [name.removesuffix(".verdict") for name in row if name.endswith(".verdict")] + [
        name.removesuffix(".error")
        for name, value in row.items()
        if name.endswith(".error") and isinstance(value, str)  # a metric may be called an error too
    ]


def _quality(rows: Sequence[Row]) -> list[str]:
    """The range of test accuracies."""
    held = [row["test.accuracy"] for row in rows if is_number(row.get("test.accuracy"))]
    if not held:
        return []
    low, high = min(held), max(held)
    text = percent(high) if low == high else f"{percent(low)} to {percent(high)}"
    return [f"test accuracy {text}"]


def over_steps(rows: Sequence[Row]) -> bool:
    """Whether there are several rows per run, at different steps."""
    runs = {row.get("path") for row in rows}
    return len({(row.get("path"), row.get("step")) for row in rows}) > len(runs)


def _transitions(table: Table) -> Section:
    columns = table.columns
    texts = [
        f"{in_words(name)} at step {step:.0f}"
        for name, step in zip(columns["number"], columns["half way"], strict=True)
    ]
    return Section(
        "Transitions",
        question="When does each number change?",
        lead=f"Half way from first to last value: {_first(texts)}.",
        tables={"transitions": table},
    )


def _models(rows: Sequence[Row]) -> Section:
    settings = settings_of(rows)
    first = ["name", "status", *(["step"] if "step" in settings else [])]
    wanted = [*first, "test.accuracy", "test.loss", *settings[:MAX_SETTINGS]]
    shown = [name for name in dict.fromkeys(wanted) if any(name in row for row in rows)]
    columns = {name: [row.get(name) for row in rows] for name in shown}
    tables = {"models": Table(columns, "one row per model")}
    if len(settings) > MAX_SETTINGS:
        every = {"name": [row.get("name") for row in rows]}
        every |= {name: [row.get(name) for row in rows] for name in settings}
        tables["settings"] = Table(every, "every setting in which the models differ")
    return Section("Models", tables=tables)


def _measured(
    rows: Sequence[Row], probe: str, stepped: Mapping[str, Figure] | None = None
) -> Section:
    statuses = [row.get(f"{probe}.verdict") or "failed" for row in rows]
    counts = {name: statuses.count(name) for name in (*OUTCOMES, *statuses)}
    noun = "checkpoints" if over_steps(rows) else "models"
    lead = ", ".join(f"{name} in {count}" for name, count in counts.items() if count)
    lead = f"Of {len(rows)} {noun}: {lead}"
    names = main_columns(rows, probe)
    figures = dict(stepped or {})
    if len(rows) > 2 and not over_steps(rows):  # over steps, they are panels of the dynamics
        figures |= _figures(rows, probe)
    if len(rows) == 2:
        table = _beside(rows, names, probe)
    else:
        columns = {"name": [row.get("name") for row in rows]}
        settings = settings_of(rows)[:MAX_SETTINGS]
        columns |= {name: [row.get(name) for row in rows] for name in [*settings, *names]}
        table = Table(columns, "the numbers with a null, and that vary most")
    errors = sorted({str(row[f"{probe}.error"]) for row in rows if f"{probe}.error" in row})
    return Section(
        probe,
        lead=f"{lead}.",
        paragraphs=errors[:3],
        figures=figures,
        tables={f"{probe} per model": table},
    )


def _figures(rows: Sequence[Row], probe: str) -> dict[str, Figure]:
    """The probe's numbers that vary, over the setting that does; models that differ in their seed
    alone are points without an order, models of different tasks bars.
    """
    settings = [name for name in settings_of(rows) if name != "step"]  # what came out, not set
    axes = [name for name in settings if all_numbers(rows, name)]
    axis = next((name for name in axes if name != "seed"), "seed" if "seed" in axes else None)
    tasks_differ = "task" in settings
    if axis is None and not tasks_differ:
        return {}
    color = next((name for name in settings if name not in (axis, "seed")), None)
    varying = [
        name
        for name in main_columns(rows, probe, MAX_FIGURES)
        if len({row.get(name) for row in rows}) > 1
    ]
    tested = [name for name in varying if any(f"{name}.p" in row for row in rows)]
    if tasks_differ or axis is None:
        return {name: by_model(rows, name) for name in tested or varying}
    return {name: figure_of(rows, axis, [name], color) for name in tested or varying}


def _beside(rows: Sequence[Row], names: Sequence[str], probe: str) -> Table:
    """Two models beside each other: a row per number."""
    columns: dict[str, list[object]] = {
        "number": [name.removeprefix(f"{probe}.") for name in names]
    }
    for place, row in enumerate(rows):
        name = str(row.get("name"))
        name = name if name not in columns else f"{name} ({place + 1})"
        columns[name] = [row.get(number) for number in names]
    return Table(columns, "the numbers with a null, and that differ most")
