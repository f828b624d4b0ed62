"""Pages made from the code: one per probe and per task, their indexes, and the reference."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mechint.registry import PROBES, TASKS

ROOT = Path(__file__).parents[2]
REFERENCE = {
    "The public names": ("mechint.checkpoints.open", "mechint.training.api", "mechint.subject"),
    "Results": ("mechint.results", "mechint.null", "mechint.figures.figure"),
    "Tables of models": (
        "mechint.run_table.table",
        "mechint.run_table.measuring",
        "mechint.run_table.dynamics",
    ),
    "Interventions": ("mechint.interventions",),
    "Sparse dictionaries": (
        "mechint.dictionaries.dictionary",
        "mechint.dictionaries.files",
        "mechint.dictionaries.export",
        "mechint.dictionaries.recovery",
    ),
    "Contracts": ("mechint.task", "mechint.probe", "mechint.reporting", "mechint.models.protocol"),
    "Similarity and transitions": ("mechint.similarity", "mechint.transitions"),
    "Errors": ("mechint.errors",),
}


@cache
def made() -> dict[str, str]:
    """Path in the documentation → text."""
    found = {"reference.md": reference()}
    for kind, registry, page in (("probes", PROBES, probe_page), ("tasks", TASKS, task_page)):
        found[f"{kind}/index.md"] = index(
            kind, {name: registry.describe(name) for name in registry}
        )
        found |= {f"{kind}/{name}.md": page(name) for name in registry}
    return found


def on_site(text: str) -> str:
    """`text` of a page as the site shows it: where it links the code of a probe, which is what the
    repository holds, the site has a page of that probe.

    >>> on_site("[`clock-pizza`](../probes/_clock_pizza), [`gradients`](../probes/_gradients.py)")
    '[`clock-pizza`](probes/clock-pizza.md), [`gradients`](probes/gradients.md)'
    """

    def page(link: re.Match[str]) -> str:
        return f"](probes/{link[1].strip('_').replace('_', '-')}.md)"

    return re.sub(r"\]\(\.\./probes/(\w+)(?:\.py)?\)", page, text)


def index(kind: str, lines: Mapping[str, str]) -> str:
    """The list of all probes or tasks."""
    rows = [[f"[`{name}`]({name}.md)", line] for name, line in lines.items()]
    what = {"probes": "question", "tasks": "what it is"}[kind]
    return f"# {kind.capitalize()}\n\n{table(['name', what], rows)}\n"


def probe_page(name: str) -> str:
    """Question, method, settings, needs, calibration and a command."""
    probe = PROBES[name]
    parts = [
        f"# {name}",
        f"*{probe.question}*",
        prose(probe),
        f"    mechint analyze CHECKPOINT --probe {name}",
        f"**Source.** {probe.source}",
        f"**Needs.** {', '.join(str(need) for need in probe.needs) or 'nothing but a model'}.",
        "## Settings",
        settings(probe.describe()),
        *calibration(name),
    ]
    return "\n\n".join(parts) + "\n"


def task_page(name: str) -> str:
    """What it is, its parameters, examples, variables, chance, controls and a command."""
    task = TASKS[name]()
    parts = [
        f"# {name}",
        prose(type(task)),
        f"    mechint train {name} --out runs/{name}",
        f"**Source.** {task.source}",
        "## Parameters",
        settings(type(task).describe()),
        *examples(task),
    ]
    if task.variables:
        rows = [[f"`{key}`", variable.description] for key, variable in task.variables.items()]
        parts += ["## Causal variables", table(["name", "what it is"], rows[:24])]
    rows = [
        [f"`{key}`", f"{chance.accuracy:.4g}", f"{chance.loss:.4g}"]
        for key, chance in list(task.chance.items())[:24]
    ]
    parts += ["## Chance", table(["output", "accuracy", "loss (nats)"], rows)]
    rows = [[f"`{control.name}`", control.description] for control in task.controls]
    parts += ["## Controls", table(["name", "what is done"], rows)]
    return "\n\n".join(parts) + "\n"


def prose(kind: type) -> str:
    """The docstring below its summary, up to its example."""
    text = (inspect.getdoc(kind) or "").partition(">>>")[0].partition("Example:")[0]
    summary_shown = hasattr(kind, "question")  # a probe's stands as the question of its page
    return text.partition("\n\n")[2].strip() if summary_shown else text.strip()


def settings(rows: Sequence[Mapping[str, str]]) -> str:
    """Settings with default, range and meaning."""
    if not rows:
        return "None."
    cells = [
        [f"`{row['name']}`", f"`{row['default']}`", row["range"] or row["type"], row["help"]]
        for row in rows
    ]
    return table(["name", "default", "expected", "meaning"], cells)


def examples(task: Any) -> list[str]:
    """Three examples, where the task has tokens."""
    if not len(task.vocabulary):
        return []
    batch = task.sample(3, 0, "train")
    shown = "\n".join(f"    {task.text(tokens)}" for tokens in batch.tokens)
    return ["## Examples", shown]


def calibration(name: str) -> list[str]:
    """The probe's rows of the kept calibration table."""
    file = ROOT / "docs" / "calibration.json"
    columns = json.loads(file.read_text(encoding="utf-8"))["columns"]
    every = zip(*columns.values(), strict=True)
    rows = [dict(zip(columns, cells, strict=True)) for cells in every]
    rows = [row for row in rows if row["probe"] == name]
    if not rows:
        return []
    cells = [
        [row["subject"], number(row["noise"]), str(row["runs"]), number(row["detected"]) or "–"]
        for row in rows
    ]
    text = (
        "Share of plants that the probe detects, and of controls that it takes for one, – where it "
        "refused them all; all of it stands in the [calibration](../calibration.md)."
    )
    return ["## Calibration", text, table(["subject", "noise", "runs", "detected"], cells)]


def reference() -> str:
    """The public names, from their docstrings."""
    parts = ["# Reference"]
    for title, modules in REFERENCE.items():
        parts.append(f"## {title}")
        parts += [f"::: {module}" for module in modules]
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(cell(text) for text in row) + " |" for row in rows]
    return "\n".join(lines)


def cell(text: Any) -> str:
    return " ".join(str(text).replace("|", "\\|").split())


def number(value: Any) -> str:
    return "" if value is None else f"{value:.3g}"
