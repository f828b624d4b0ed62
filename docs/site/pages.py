"""Pages made from the code: one per probe and per task, their indexes, and the reference."""

from __future__ import annotations

import html
import inspect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import measure  # beside this file, from where mkdocs imports it

from mechint.figures.static import drawing
from mechint.probe.text import MARKS
from mechint.registry import PROBES, TASKS

ROOT = Path(__file__).parents[2]
REFERENCE = {
    "public names": ("mechint.checkpoints.open", "mechint.training.api", "mechint.subject.subject"),
    "accounts and results": (
        "mechint.account.account",
        "mechint.probe.results",
        "mechint.decide.null",
        "mechint.figures.figure",
        "mechint.report",
    ),
    "tables of models": (
        "mechint.run_table.table",
        "mechint.run_table.measuring",
        "mechint.run_table.dynamics",
    ),
    "figures": (
        "mechint.figures.build",
        "mechint.figures.parts",
        "mechint.figures._attention",
        "mechint.figures.steps",
    ),
    "interventions": ("mechint.interventions",),
    "contracts": (
        "mechint.task",
        "mechint.probe.probe",
        "mechint.probe.report",
        "mechint.models.protocol",
    ),
    "transitions": ("mechint.run_table.transitions",),
    "errors": ("mechint.errors",),
}
"""Page of the reference → modules on it."""


@cache
def made() -> dict[str, str]:
    """Path in the documentation → text."""
    found = {f"reference/{title.replace(' ', '-')}.md": reference(title) for title in REFERENCE}
    found |= {"command-line.md": command_line(), "papers.md": papers()}
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
    """Question, a yes and a no, method, settings, needs, calibration and a command."""
    probe = PROBES[name]
    written = ROOT / "docs" / "probes" / f"{name}.md"
    method = written.read_text(encoding="utf-8").partition("\n")[2] if written.exists() else ""
    method = method.replace(f"**{probe.question}**", "", 1)  # it stands above
    parts = [
        f"# {name}",
        f"*{probe.question}*",
        *yes_and_no(name),
        f"```text\nmechint analyze CHECKPOINT --probe {name}\n```",
        method.strip() or prose(probe),
        f"**Source.** {probe.source}",
        f"**Needs.** {', '.join(str(need) for need in probe.needs) or 'nothing but a model'}.",
        "## Settings",
        settings(probe.describe()),
        *calibration(name),
    ]
    return "\n\n".join(parts) + "\n"


def yes_and_no(name: str) -> list[str]:
    """A planted mechanism of which the probe says yes, beside a control of which it says no."""
    page = measure.probe_page(name)
    shown = [
        f'<figure markdown="0"><img src="{name}-{word.partition("-")[0]}.svg" '
        f'alt="{html.escape(figure.title)}"><figcaption>{html.escape(figure.title)}. '
        f"{html.escape(figure.caption)}</figcaption></figure>"
        for word, figure in page.figures.items()
        if figure.plots
    ]
    said = [
        f"- {section.title}: {MARKS[finding.verdict]} {finding.headline}"
        for section in page.sections
        for finding in section.findings[:1]
    ]
    return ['<div class="beside">' + "".join(shown) + "</div>", "\n".join(said)]


def pictures() -> dict[str, bytes]:
    """Path in the documentation → drawing, of the probes' pages."""
    found = {}
    for name in PROBES:
        for word, figure in measure.probe_page(name).figures.items():
            if figure.plots:
                drawn = drawing(figure, "svg", 4.6, 3.0)
                found[f"probes/{name}-{word.partition('-')[0]}.svg"] = drawn
    return found


def command_line() -> str:
    """Every command with its options, as ``--help`` prints them."""
    from click import Context, Group

    from mechint.cli import main

    parts = ["# Command line"]
    for name in main.list_commands(Context(main)):
        command = main.get_command(Context(main), name)
        assert command is not None
        inner = list(command.commands.items()) if isinstance(command, Group) else []
        for words, one in [(name, command), *((f"{name} {key}", sub) for key, sub in inner)]:
            context = Context(one, info_name=f"mechint {words}", max_content_width=100)
            parts += [f"## {words}", f"```text\n{one.get_help(context)}\n```"]
    return "\n\n".join(parts) + "\n"


def papers() -> str:
    """The verdicts of the studies, as they are kept in ``results/``."""
    text = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    body = re.sub(r"\[([^\]]+)\]\((?!https?://)[^)]*\)", r"\1", text.partition("\n")[2])
    return f"# Papers, run again\n{body}"


def task_page(name: str) -> str:
    """A description, its parameters, examples, variables, chance, controls and a command."""
    task = TASKS[name]()
    parts = [
        f"# {name}",
        prose(type(task)),
        f"```text\nmechint train {name} --out runs/{name}\n```",
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
    """Three examples with their answers, where the task has tokens."""
    if not len(task.vocabulary):
        return []
    batch = task.sample(3, 0, "train")
    shown = "\n".join(
        f"    {task.text(tokens)}  →  {task.answer_text(targets.tolist())}"
        for tokens, targets in zip(batch.tokens, batch.targets, strict=True)
    )
    return ["## Examples", shown]


def calibration(name: str) -> list[str]:
    """The probe's rows of the kept calibration table."""
    file = ROOT / "docs" / "generated" / "calibration.json"
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
        "refused them all; all of it stands in the [calibration](../generated/calibration.md)."
    )
    return ["## Calibration", text, table(["subject", "noise", "runs", "detected"], cells)]


def reference(title: str) -> str:
    """One page of the public names, from their docstrings."""
    modules = [f"::: {module}" for module in REFERENCE[title]]
    return "\n\n".join([f"# {title.capitalize()}", *modules]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(cell(text) for text in row) + " |" for row in rows]
    return "\n".join(lines)


def cell(text: Any) -> str:
    return " ".join(str(text).replace("|", "\\|").split())


def number(value: Any) -> str:
    return "" if value is None else f"{value:.3g}"
