"""What a person reads of a model and its probes on the terminal, and what a machine reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.errors import one_line
from mechint.progress import console

if TYPE_CHECKING:
    from rich.console import Console

    from mechint.checkpoints import Checkpoint
    from mechint.results import ProbeResult


def assumptions(opened: Checkpoint) -> list[str]:
    """One line per thing that the file does not state: what was assumed, why, how to set it."""
    lines = []
    fields = set(opened.config.to_dict()) if hasattr(opened.config, "to_dict") else set()
    for name, item in opened.assumed.items():
        shown = "none" if item.value is None else item.value
        settable = f"; --set model.{name}=… sets it" if name in fields else ""
        lines.append(f"assumed {name} = {shown}: {item.why}{settable}")
    return lines


def unknown_task(opened: Checkpoint) -> str:
    """What an analysis without a task lacks, and the options that would name one."""
    line = (
        "no task is known, so only probes that need none apply; name it with --task and --set, or "
        "give a language model prompts with --data"
    )
    fitting = " or ".join(opened.proposals)
    return f"{line}: {fitting} fits the vocabulary" if fitting else line


def describe(opened: Checkpoint) -> dict[str, Any]:
    """What a machine reads about the checkpoint."""
    return {
        "path": str(opened.path),
        "format": opened.format,
        "task": opened.task.name if opened.task else None,
        "step": opened.step,
        "assumed": {name: item.to_dict() for name, item in opened.assumed.items()},
        **(opened.performance.to_dict() if opened.performance is not None else {}),
    }


def brief(result: ProbeResult) -> dict[str, Any]:
    """What a machine reads about a result: verdict and numbers, without arrays and figures."""
    whole = result.to_dict(arrays=False, figures=False)
    names = ("verdict", "lead", "findings", "not_asked", "metrics", "null", "tables")
    return {name: whole[name] for name in names}


def title_of(opened: Checkpoint) -> str:
    """The report's title: the task in words with the sizes and choices that are its own, or the
    file's name.
    """
    from mechint.prompts import Prompts

    if opened.task is None:
        return opened.path.name
    if isinstance(opened.task, Prompts):
        return f"Prompts of {Path(opened.task.path).name}, {opened.path.name}"
    defaults = type(opened.task)().to_dict()
    changed = ", ".join(
        f"{name} = {value}"
        for name, value in opened.task.to_dict().items()
        if value != defaults[name] and isinstance(value, int | str) and value is not True
    )
    words = opened.task.name.replace("-", " ").capitalize()
    return f"{words}, {changed}" if changed else words


def show_model(opened: Checkpoint, out: Console) -> None:
    """What the model is and how well it answers: what every analysis opens with."""
    from rich.markup import escape

    performance = opened.performance
    for line in performance.warnings(opened.metrics) if performance is not None else ():
        out.print(f"[bold red]warning[/bold red] {escape(line)}")
    known = {
        "format": opened.format,
        "task": opened.task.name if opened.task else None,
        "step": opened.step,
    }
    if opened.task is None:
        out.print(unknown_task(opened), markup=False, soft_wrap=True)
    words = "  ".join(f"{name} {value}" for name, value in known.items() if value is not None)
    out.print(f"[bold]{escape(one_line(str(opened.path), 4096))}[/bold]  {escape(words)}")
    if performance is not None:
        out.print(str(performance), markup=False)
    for line in assumptions(opened):
        out.print(line, markup=False)


def show(opened: Checkpoint, results: Mapping[str, ProbeResult]) -> None:
    """Findings and numbers on the terminal."""
    from rich.markup import escape
    from rich.table import Table

    from mechint.report.render import show as text

    out = console()
    show_model(opened, out)
    for name, result in results.items():
        out.print(f"\n[bold cyan]{escape(name)}[/bold cyan]  [dim]{escape(result.question)}[/dim]")
        out.print(result.finding, markup=False)
        tested, others = (
            Table(box=None, pad_edge=False, header_style="dim"),
            Table(box=None, pad_edge=False, show_header=False),
        )
        for column in ("metric", "observed", "null", "z", "p"):
            first = column == "metric"
            tested.add_column(
                column, no_wrap=not first, overflow="fold", justify="left" if first else "right"
            )
        others.add_column(no_wrap=True)
        others.add_column(overflow="fold")
        for metric, value in result.metrics.items():
            null = result.null.get(metric)
            if null is None:
                others.add_row(metric, text(value, limit=6))
            else:
                tested.add_row(
                    metric,
                    text(null.observed),  # what z and p are of, as in the report
                    f"{text(null.mean)} ± {text(null.std)}",
                    null.z_text,
                    null.p_text.removeprefix("p ").removeprefix("= "),
                )
        for table in (tested, others):
            if table.row_count:
                out.print(table, markup=False)
