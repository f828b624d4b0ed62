"""Pages of tasks, probes and examples, measured here and kept under ``results/``.

``python docs/site/measure.py tasks`` trains a small model per task at its preset "fast" under
``runs/gallery/`` (one that was stopped goes on) and accounts for it; ``... probes`` points every
probe at a planted mechanism and at a control; ``... examples`` runs the scripts of ``examples/``.
Names after it choose among them. ``... gallery`` builds the gallery of what is kept; tasks and
examples that were not measured have pages without a model.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import inspect
import io
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mechint import figures
from mechint.account import Account
from mechint.account.analysis import analyze
from mechint.checkpoints import load_checkpoint
from mechint.config._assign import set_options
from mechint.errors import MechintError, ParameterError
from mechint.figures.steps import on_one_scale
from mechint.probe.results import Figure, Finding, ProbeResult, Table
from mechint.registry import PROBES, TASKS
from mechint.report import (
    PAGE,
    Page,
    Section,
    build_gallery,
    find_pages,
    page_of,
    section_of,
)
from mechint.system.files import make_directory, read_json, write_text
from mechint.system.jsonable import to_jsonable
from mechint.system.progress import counting, print_line
from mechint.task import FiniteTask, Task
from mechint.training import train
from mechint.training.api import assign_run

PRESET = "fast"
WORKED = 3
"""Examples of a task that its page shows with their answers."""
LONGEST = 12_000
"""Characters of what a step printed that are kept."""
CALIBRATION = Path("docs/generated/calibration.json")
EXAMPLES = Path(__file__).parents[2] / "examples"


# --- tasks ----------------------------------------------------------------------------------------
def task_page(name: str, runs: Path) -> Page:
    """The page of one task: worked examples, the rule, the variables, and what a small model does.

    Raises:
        MechintError: the task has no preset "fast", or its model cannot be opened.
        KeyboardInterrupt: Ctrl-C or SIGTERM stopped the training; the next call goes on with it.
    """
    folder = runs / name
    train_fast(name, folder)
    opened = load_checkpoint(folder)
    subject = opened.subject()
    account = analyze(subject)
    command = f"mechint train {name} {_options(name, folder)} --out runs/{name}"
    page = page_of(account, command=command)
    task = opened.task or TASKS[name]()
    about = Section("The task", lead=TASKS.describe(name), tables=described(task))
    model = [shortened(section) for section in page.sections]
    return _dated(page, "task", title=f"Task: {task.title}", sections=[about, *model], task=name)


def train_fast(name: str, folder: Path) -> None:
    """Train the task's preset "fast" in `folder`; a finished run is not trained again."""
    from mechint.run_table import Entry

    if Entry(folder, name).describe().get("status") in ("finished", "stopped"):
        return
    kind = TASKS[name]
    if PRESET not in kind.presets:
        raise ParameterError(f"{name} has no preset {PRESET!r}")
    from mechint.config import assignment

    given = assign_run(name, [assignment(*one) for one in kind.presets[PRESET].items()])
    settings = {**given["train"], "checkpoints": "linear", "n_checkpoints": 6}
    train(kind.from_dict(given["task"]), given["model"], settings, out=folder, resume=True)


def _options(name: str, folder: Path) -> str:
    """The options that train the run in `folder` again: the preset, and what differs from it."""
    config = read_json(folder / "config.json")
    changed = {
        key: now
        for key, value in TASKS[name].presets[PRESET].items()
        for part, _, field in [key.partition(".")]
        if (now := config[part].get(field, value)) != to_jsonable(value)
    }
    return " ".join([f"--preset {PRESET}", *set_options(changed)])


def described(task: Task) -> dict[str, Table]:
    """Worked examples and causal variables of a task, as tables."""
    tables = {}
    batch = task.sample(WORKED, 0, "train")
    if len(task.vocabulary):
        texts = [task.text(tokens) for tokens in batch.tokens]
        answers = [task.answer_text(targets) for targets in batch.targets]
        tables["Worked examples"] = Table({"input": texts, "answer": answers}, "training split")
    rows = list(task.variables.values())[:12]
    if rows:
        columns = {"variable": [v.name for v in rows], "meaning": [v.description for v in rows]}
        tables["Causal variables"] = Table(columns, "what a model that follows the rule computes")
    chance = {key: f"{one.accuracy:.3g}" for key, one in list(task.chance.items())[:8]}
    columns = {"output": list(chance), "chance": list(chance.values())}
    tables["Outputs"] = Table(columns, "accuracy of the best constant answer")
    return tables


def shortened(section: Section) -> Section:
    """A probe's section with its findings alone."""
    return dataclasses.replace(section, figures={}, tables={}, metrics={}, provenance={})


# --- probes ---------------------------------------------------------------------------------------
def probe_page(name: str, runs: Path) -> Page:
    """The page of one probe: a planted mechanism, of which it says yes, beside a control, of which
    it says no; how often it errs; its method.

    Raises:
        ParameterError: the probe names neither plant nor control.
    """
    del runs
    kind = PROBES[name]
    trials = kind.calibration().trials
    if not trials:
        raise ParameterError(f"{name} has no calibration(): it names no plant and no control")
    trial = trials[0]
    control, build = next(iter(trial.controls.items()))
    known = {k: v for k, v in trial.settings.items() if not k.endswith("_samples")}  # all decide
    plant = kind.from_dict(known).run(trial.plant(0.0, 0).subject, seed=0)
    absent = kind.from_dict({**known, **trial.control_settings}).run(build(0), seed=0)
    sections = []
    for title, result in ((trial.mechanism, plant), (f"Control: {control}", absent)):
        section = section_of(name, result)
        told = dataclasses.replace(section, title=title, question="", verdict="")
        sections.append(dataclasses.replace(told, figures={}, tables={}, metrics={}))
    shown = {
        title: result.figures[plant.hero].for_verdict(result.verdict)
        for title, result in ((trial.mechanism, plant), (f"control, {control}", absent))
        if plant.hero in result.figures
    }
    drawn = list(shown.values())
    if all(figure.kind != "histogram" for figure in drawn):  # whose areas are equal
        drawn = on_one_scale(drawn)
    heroes = {
        f"{word}-{name}": dataclasses.replace(figure, title=f"{title}: {figure.title}")
        for word, title, figure in zip(("yes", "no"), shown, drawn, strict=False)
    }
    curve = power_figure(name)
    method = inspect.getdoc(kind) or ""
    sections.append(Section("Method", paragraphs=method.partition("\n\n")[2].split("\n\n")))
    if curve is not None:
        sections.append(Section("Calibration", figures={"power": curve}))
    page = Page(f"Probe: {name}", sections, abstract=kind.question, figures=heroes, probes=[name])
    return _dated(page, "probe", command=f"python docs/site/measure.py probes {name}")


def power_figure(name: str, path: Path = CALIBRATION) -> Figure | None:
    """Bars of how often the probe finds plants and controls, as the kept calibration has it; None
    where that has no row of the probe.
    """
    if not path.is_file():
        return None
    columns = read_json(path)["columns"]
    kept = [i for i, probe in enumerate(columns["probe"]) if probe == name]
    if not kept:
        return None
    noise = {i: f", noise {columns['noise'][i]:g}" if columns["noise"][i] else "" for i in kept}
    labels = [f"{columns['subject'][i]}{noise[i]}" for i in kept]
    return figures.bars(
        labels,
        {"yes": [columns["detected"][i] for i in kept]},
        title="How often it says yes",
        x_title="plant or control",
        y_title="share of models (0–1)",
        y_range=(0, 1),
        horizontal=True,
        caption="Plants should be near 1, controls near 0.",
    )


# --- examples -------------------------------------------------------------------------------------
def cells_of(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The docstring of a script, and title and code of its cells."""
    about, *parts = re.split(r"^# %% (.+)\n", text, flags=re.MULTILINE)
    cells = [(title, code.strip()) for title, code in zip(parts[::2], parts[1::2], strict=True)]
    return ast.get_docstring(ast.parse(about)) or "", cells


def example_page(name: str, runs: Path, *, folder: Path = Path("examples")) -> Page:
    """The page of one example: every cell with what it printed and drew.

    Raises:
        KeyboardInterrupt: after Ctrl-C, or SIGTERM in a training of the script.
    """
    del runs
    script = (folder / f"{name}.py").resolve()
    text = script.read_text(encoding="utf-8")
    about, cells = cells_of(text)
    title, _, rest = about.partition("\n\n")
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(script)}
    sections, known, accounts = [], set[int](), list[Account]()
    with _working_directory(script):
        for step, code in cells:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, script.name, "exec"), names)
            said = printed.getvalue().replace(f"{Path.cwd()}/", "").rstrip()
            drawn, findings = _new(names, known, accounts)
            told: dict[str, Any] = {"code": code, "output": said[:LONGEST]}
            sections.append(Section(step, figures=drawn, findings=findings, **told))
    account = accounts[-1] if accounts else None
    page = Page(
        title.rstrip("."),
        sections,
        abstract=" ".join(rest.split()),
        verdict=account.verdict if account else "",
        hero=account.hero if account else None,
        command=f"python examples/{script.name}",
        probes=[one for one in PROBES.names() if f'"{one}"' in text or f"probes.{one}(" in text],
        task=next((one for one in TASKS.names() if f'"{one}"' in text), ""),
        downloads={script.name: text},
    )
    return _dated(page, "example")


@contextlib.contextmanager
def _working_directory(script: Path) -> Iterator[None]:
    """An empty working directory, size smoke, no arguments; all as before afterwards."""
    before, argv, size = Path.cwd(), sys.argv, os.environ.get("SIZE")
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        sys.argv, os.environ["SIZE"] = [str(script)], "smoke"
        try:
            yield
        finally:
            os.chdir(before)
            sys.argv = argv
            os.environ.pop("SIZE")
            if size is not None:
                os.environ["SIZE"] = size


def _new(
    names: Mapping[str, Any], known: set[int], accounts: list[Account]
) -> tuple[dict[str, Figure], list[Finding]]:
    """Figures and findings of what is new among `names`; `known`: ids of what is not."""
    drawn: dict[str, Figure] = {}
    findings: list[Finding] = []
    for name, value in names.items():
        for key, one in (value if isinstance(value, Mapping) else {name: value}).items():
            if id(one) in known or not isinstance(one, ProbeResult | Figure | Account):
                continue
            known.add(id(one))
            if isinstance(one, Figure):
                drawn[str(key)] = one
            elif isinstance(one, ProbeResult):
                findings += one.findings
                drawn |= {f"{key} {part}": f for part, f in one.figures.items() if part == one.hero}
            else:
                accounts.append(one)
    return drawn, findings


# --- without a model ------------------------------------------------------------------------------
def described_task(name: str) -> Page:
    """The page of a task as it stands: worked examples, variables, chance, and its table of answers
    where it has two operands.
    """
    task = TASKS[name]()
    figure = answers_figure(task)
    about = Section("The task", lead=TASKS.describe(name), tables=described(task))
    command = f"mechint train {name} --out runs/{name}"
    page = Page(f"Task: {task.title}", [about], hero=figure, abstract=TASKS.describe(name))
    return dataclasses.replace(page, kicker="task", command=command, task=name)


def answers_figure(task: Task) -> Figure | None:
    """The answers of a finite task over its grid of two operands; None of another."""
    if not isinstance(task, FiniteTask) or len(task.grid) != 2 or max(task.grid) > 128:
        return None
    answers = task.examples().targets[:, -1]
    if answers.numel() != math.prod(task.grid):
        return None
    return figures.heatmap(
        answers.reshape(task.grid).tolist(),
        title="Answers",
        x_title="second operand",
        y_title="first operand",
        z_title="answer (class)",
        caption="The answer to every input of the task.",
        annotate=False,
        square=True,
    )


def described_example(script: Path) -> Page:
    """The page of a script that was not run: its text and its cells."""
    text = script.read_text(encoding="utf-8")
    about, cells = cells_of(text)
    title, _, rest = about.partition("\n\n")
    return Page(
        title.rstrip("."),
        [Section(step, code=code) for step, code in cells],
        kicker="example",
        abstract=" ".join(rest.split()),
        command=f"python examples/{script.name}",
        probes=[one for one in PROBES.names() if f'"{one}"' in text or f"probes.{one}(" in text],
        downloads={script.name: text},
    )


def gallery_pages(results: Path) -> list[Page]:
    """The pages kept in `results`, and those of the tasks and examples that were not measured."""
    tasks = [one for one in TASKS if not (results / "tasks" / one / PAGE).exists()]
    scripts = [one for one in sorted(EXAMPLES.glob("*.py")) if "\n# %% " in one.read_text()]
    left = [one for one in scripts if not (results / "examples" / one.stem / PAGE).exists()]
    more = [*map(described_task, tasks), *map(described_example, left)]
    return [*find_pages([results]), *more]


# --- all of them ----------------------------------------------------------------------------------
def _dated(page: Page, kicker: str, **changes: Any) -> Page:
    today = datetime.now(UTC).date().isoformat()
    return dataclasses.replace(page, kicker=kicker, date=today, **changes)


def keep(page: Page, folder: Path) -> None:
    """Write the page to ``folder/page.json``."""
    write_text(make_directory(folder) / PAGE, json.dumps(page.to_dict(), ensure_ascii=False))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure the pages of the gallery.")
    makers: dict[str, tuple[Callable[[str, Path], Page], Callable[[], list[str]]]] = {
        "tasks": (task_page, TASKS.names),
        "probes": (probe_page, PROBES.names),
        "examples": (example_page, lambda: sorted(p.stem for p in Path("examples").glob("*.py"))),
    }
    parser.add_argument("what", choices=[*makers, "gallery"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--runs", type=Path, default=Path("runs/gallery"))
    parser.add_argument("--out", type=Path, default=Path("gallery"))
    given = parser.parse_args(arguments)
    if given.what == "gallery":
        with counting("drawing pages") as update:
            print_line(str(build_gallery(gallery_pages(given.results), given.out, progress=update)))
        return
    make, all_names = makers[given.what]
    names = given.names or all_names()
    with counting(f"measuring {given.what}") as update:
        for place, name in enumerate(names):
            update(place, len(names), name)
            try:
                keep(make(name, given.runs), given.results / given.what / name)
            except MechintError as error:
                print_line(f"{name}: {error}")


if __name__ == "__main__":
    main()
