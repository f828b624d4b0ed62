"""Pages of tasks and examples, measured here and kept under ``results/``.

``python -m mechint.gallery.measure tasks`` trains a small model per task at its preset "fast" under
``runs/gallery/`` (one that was stopped goes on, a finished one is not trained again), points probes
at it and keeps the page; ``... examples`` runs every script of ``examples/`` at size smoke and
keeps what it printed. Names after it choose among them.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mechint.checkpoints import load_checkpoint
from mechint.config.assign import set_options
from mechint.errors import MechintError, NotApplicableError, ParameterError
from mechint.files import make_directory, read_json, write_text
from mechint.gallery.cells import cells_of, notebook
from mechint.gallery.probes import TASK_KICKER
from mechint.jsonable import to_jsonable
from mechint.probe import quick_probes
from mechint.progress import counting, print_line
from mechint.registry import PROBES, TASKS
from mechint.report import PAGE, Page, Section, head_of, page_of
from mechint.results import Figure, ProbeResult, Table
from mechint.run_table import Entry

PRESET = "fast"
EXAMPLE_KICKER = "mechint example"
MORE: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "modular-arithmetic": {
        "ablation": {},
        "attribution": {},
        "circuits": {},
        "das": {},
        "gradients": {},
        "linear": {},
        "llc": {"chains": 4},
        "neurons": {},
        "patching": {},
        "progress": {"steps": 6},
        "weights": {},
    },
    "composition": {"ablation": {}, "weights": {}},
    "groups": {"neurons": {}},
    "regression-mixture": {"subspace": {}},
    "remainders": {"interference": {}, "linear": {}},
}
"""Probes that run on a task beside the quick ones, with their settings."""
LONGEST = 12_000
"""Characters of what a step printed that are kept."""


def task_page(name: str, runs: Path) -> Page:
    """The page of one task: what it is, how well a small model learns it, and what probes find.

    Raises:
        MechintError: the task has no preset "fast", or its model cannot be opened.
        KeyboardInterrupt: Ctrl-C or SIGTERM stopped the training; the next call goes on with it.
    """
    from mechint.config import assignment
    from mechint.training import train
    from mechint.training.api import assign_run

    kind, folder = TASKS[name], runs / name
    if Entry(folder, name).describe().get("status") not in ("finished", "stopped"):
        presets = kind.presets
        if PRESET not in presets:
            raise ParameterError(f"it has no preset {PRESET!r}")
        texts = [assignment(key, value) for key, value in presets[PRESET].items()]
        given = assign_run(name, texts)
        steps = {"checkpoints": "linear", "n_checkpoints": 6}
        task, settings = kind.from_dict(given["task"]), {**given["train"], **steps}
        train(task, given["model"], settings, out=folder, resume=True)
    opened = load_checkpoint(folder)
    subject = opened.subject()
    more = MORE.get(name, {})
    results: dict[str, ProbeResult] = {}
    for probe in sorted({*quick_probes(), *more}):
        with contextlib.suppress(NotApplicableError):
            made = PROBES[probe].from_dict(more.get(probe, {}))
            results[probe] = made.run(subject, seed=0)
    command = f"mechint train {name} {_training(kind, folder)} --out runs/{name}"
    page = page_of(results, f"Task: {name}", **head_of(opened, subject, results, command))
    about = Section("What it is", lead=TASKS.describe(name), tables=_described(opened.task))
    return _dated(page, TASK_KICKER, sections=[about, *page.sections], task=name, next_steps={})


def _training(kind: Any, folder: Path) -> str:
    """The options that train the run in `folder` again: the preset, or what differs from it."""
    config = read_json(folder / "config.json")
    changed = {
        key: now
        for key, value in kind.presets[PRESET].items()
        for part, _, field in [key.partition(".")]
        if (now := config[part].get(field, value)) != to_jsonable(value)
    }
    return " ".join([f"--preset {PRESET}", *set_options(changed)])


def _described(task: Any) -> dict[str, Table]:
    """Examples and causal variables of a task, as tables."""
    tables = {}
    if len(task.vocabulary):
        texts = [task.text(tokens) for tokens in task.sample(8, 0, "train").tokens]
        tables["examples"] = Table({"tokens": texts}, "drawn from the training split")
    if task.variables:
        rows = list(task.variables.values())[:24]
        columns = {"name": [v.name for v in rows], "what it is": [v.description for v in rows]}
        tables["variables"] = Table(columns, "causal variables")
    return tables


def _dated(page: Page, kicker: str, **changes: Any) -> Page:
    today = datetime.now(UTC).date().isoformat()
    return dataclasses.replace(page, kicker=kicker, date=today, **changes)


def example_page(script: Path, *, run: bool = True) -> Page:
    """The page of one example: every cell with what it printed and drew.

    Args:
        run: at size smoke, in a folder of its own; else the code stands alone.

    Raises:
        KeyboardInterrupt: after Ctrl-C, or SIGTERM in a training of the script.
    """
    text = script.read_text(encoding="utf-8")
    about, cells = cells_of(text)
    title, _, rest = about.partition("\n\n")
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(script)}
    sections, known = [], set[int]()
    with _folder(script) if run else contextlib.nullcontext():
        for cell in cells:
            printed = io.StringIO()
            if run:
                with contextlib.redirect_stdout(printed):
                    exec(compile(cell.code, script.name, "exec"), names)
            said = printed.getvalue().replace(f"{Path.cwd()}/", "").rstrip()
            figures, findings = _shown(names, known)
            sections.append(
                Section(
                    cell.title,
                    code=cell.code,
                    output=said[:LONGEST],
                    figures=figures,
                    findings=findings,
                )
            )
    probes = [name for name in PROBES.names() if f'"{name}"' in text or f"probes.{name}(" in text]
    tasks = [name for name in TASKS.names() if f'"{name}"' in text]
    return _dated(
        Page(f"Example: {script.stem.replace('_', ' ')}", sections),
        EXAMPLE_KICKER,
        abstract=" ".join(f"{title} {rest}".split()),
        facts={"size": "smoke"} if run else {},
        command=f"python examples/{script.name}",
        task=tasks[0] if tasks else "",
        probes=probes,
        downloads={
            script.name: text,
            f"{script.stem}.ipynb": json.dumps(notebook(text), indent=1) + "\n",
        },
    )


@contextlib.contextmanager
def _folder(script: Path) -> Iterator[None]:
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
            if size is None:
                del os.environ["SIZE"]
            else:
                os.environ["SIZE"] = size


def _shown(
    names: Mapping[str, Any], known: set[int]
) -> tuple[dict[str, Figure], list[tuple[str, str]]]:
    """Figures and findings of the results that are new among `names`; `known`: ids of the old."""
    figures: dict[str, Figure] = {}
    findings: list[tuple[str, str]] = []
    for name, value in names.items():
        inside = value if isinstance(value, Mapping) else {name: value}
        for key, one in inside.items():
            if id(one) in known or not isinstance(one, ProbeResult | Figure):
                continue
            known.add(id(one))
            if isinstance(one, Figure):
                figures[str(key)] = one
                continue
            findings += [(found.verdict, str(found)) for found in one.findings]
            if one.verdict == "yes":
                figures |= {f"{key} {part}": drawn for part, drawn in one.figures.items()}
    return figures, findings


def keep(page: Page, folder: Path) -> None:
    """Write the page to ``folder/page.json``."""
    write_text(make_directory(folder) / PAGE, json.dumps(page.to_dict(), ensure_ascii=False))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure the gallery's pages.")
    parser.add_argument("what", choices=("tasks", "examples"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--runs", type=Path, default=Path("runs/gallery"))
    given = parser.parse_args(arguments)
    if given.what == "tasks":
        names = given.names or TASKS.names()
        with counting("measuring tasks") as update:
            for place, name in enumerate(names):
                update(place, len(names), name)
                try:
                    keep(task_page(name, given.runs), given.results / "tasks" / name)
                except MechintError as error:
                    print_line(f"{name}: {error}")
        return
    scripts = {path.stem: path.resolve() for path in sorted(Path("examples").glob("*.py"))}
    names = given.names or list(scripts)
    with counting("running examples") as update:
        for place, name in enumerate(names):
            update(place, len(names), name)
            page = example_page(scripts[name], run=not name.startswith("study_"))
            keep(page, given.results / "examples" / name)


if __name__ == "__main__":
    main()
