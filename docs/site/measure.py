"""Pages of the gallery, measured here: ``python docs/site/measure.py gallery``.

Studies are drawn from their rows; every probe is pointed at a planted mechanism and at a control;
examples and tasks that take some ten seconds and have an answer are run, the others are left out.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mechint import analyze, figures, train
from mechint.account import Account
from mechint.figures.steps import on_one_scale
from mechint.probe.results import Figure, Finding, ProbeResult, Table
from mechint.registry import PROBES, TASKS
from mechint.report import Page, Section, build_gallery, page_of, section_of
from mechint.studies.record import pages_under
from mechint.system.files import read_json
from mechint.system.progress import Count, counting, print_line

WORKED = 3
"""Examples of a task that its page shows with their answers."""
LONGEST = 12_000
"""Characters of what a step printed that are kept."""
ROOT = Path(__file__).parents[2]
CALIBRATION = ROOT / "docs" / "generated" / "calibration.json"
QUICK_EXAMPLES = (
    *("attribution", "circuits", "das_comparison", "induction_heads", "induction_weights"),
    *("learning_coefficient", "neuron_clusters", "open_published_checkpoint"),
    *("planted_and_calibrated", "regression_mixture"),
)
QUICK_TASKS = ("max-of-list", "sorted-list", "rasp", "groups", "modular-arithmetic")


# --- tasks ----------------------------------------------------------------------------------------
def task_page(name: str) -> Page:
    """The page of a task: worked examples, and what a model of its preset "fast" computes."""
    (run,) = train(name, preset="fast")
    page = page_of(analyze(run.subject()), command=f"mechint train {name} --preset fast --out run")
    task = run.spec.task
    batch = task.sample(WORKED, 0, "train")
    texts = [task.text(tokens) for tokens in batch.tokens]
    answers = [task.answer_text(targets) for targets in batch.targets]
    worked = {"Worked examples": Table({"input": texts, "answer": answers}, "training split")}
    about = Section("The task", lead=TASKS.describe(name), tables=worked)
    title, sections = f"Task: {task.title}", [about, *map(shortened, page.sections)]
    return dataclasses.replace(page, kicker="task", title=title, sections=sections, task=name)


def shortened(section: Section) -> Section:
    """A probe's section with its findings alone."""
    return dataclasses.replace(section, figures={}, tables={}, metrics={}, provenance={})


# --- probes ---------------------------------------------------------------------------------------
@cache
def probe_page(name: str) -> Page:
    """The page of one probe: a planted mechanism, of which it says yes, beside a control, of which
    it says no; how often it errs; its method.
    """
    kind = PROBES[name]
    trial = kind.calibration().trials[0]
    control, build = next(iter(trial.controls.items()))
    known = {k: v for k, v in trial.settings.items() if not k.endswith("_samples")}  # all decide
    plant = kind.from_dict(known).run(trial.plant(0.0, 0).subject, seed=0)
    absent = kind.from_dict({**known, **trial.control_settings}).run(build(0), seed=0)
    sections = []
    for title, result in ((trial.mechanism, plant), (f"Control: {control}", absent)):
        section = shortened(section_of(name, result))
        sections.append(dataclasses.replace(section, title=title, question="", verdict=""))
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
    return Page(
        f"Probe: {name}",
        sections,
        kicker="probe",
        abstract=kind.question,
        figures=heroes,
        probes=[name],
        command=f"mechint analyze CHECKPOINT --probe {name}",
    )


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


def example_page(name: str) -> Page:
    """The page of one example: every cell with what it printed and drew."""
    script = ROOT / "examples" / f"{name}.py"
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
    return Page(
        title.rstrip("."),
        sections,
        kicker="example",
        abstract=" ".join(rest.split()),
        verdict=account.verdict if account else "",
        hero=account.hero if account else None,
        command=f"python examples/{script.name}",
        probes=[one for one in PROBES.names() if f'"{one}"' in text or f"probes.{one}(" in text],
        task=next((one for one in TASKS.names() if f'"{one}"' in text), ""),
        downloads={script.name: text},
    )


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


# --- all of them ----------------------------------------------------------------------------------
def gallery_pages(progress: Count) -> list[Page]:
    """The pages of the studies, drawn from their rows, and of what is measured in seconds."""
    makers: list[tuple[Callable[[str], Page], str]]
    makers = [(example_page, name) for name in QUICK_EXAMPLES]
    makers += [(task_page, name) for name in QUICK_TASKS]
    makers += [(probe_page, name) for name in PROBES]
    pages = pages_under([ROOT / "results"])
    for place, (make, name) in enumerate(makers):
        progress(place, len(makers), name)
        pages.append(make(name))
    return pages


if __name__ == "__main__":
    with counting("measuring pages") as update:
        measured = gallery_pages(update)
    print_line(str(build_gallery(measured, *sys.argv[1:])))
