"""The examples that come with mechint: trained models, scripts in ``# %%`` cells, and notebooks of
these.

    subject = mechint.load(mechint.example("clock.pt"))
    copy_examples("examples")                       # what ``mechint examples examples`` does

A notebook runs where it lies: Jupyter gives it its own folder, and its first cell says where the
script is, where that reads files beside itself.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mechint.errors import RunError, UnknownNameError
from mechint.system.files import make_directory, write_bytes

MARK = "# %% "


@dataclass(frozen=True)
class Cell:
    """A step of a script: its title and its code."""

    title: str
    code: str


def cells_of(text: str) -> tuple[str, list[Cell]]:
    """The docstring of a script, and its cells.

    >>> cells_of('\"\"\"What it is.\"\"\"\\n\\n# %% First\\nx = 1\\n\\n# %% Then\\nprint(x)\\n')
    ('What it is.', [Cell(title='First', code='x = 1'), Cell(title='Then', code='print(x)')])
    """
    cells: list[Cell] = []
    lines: list[str] = []
    title = ""
    for line in [*text.splitlines(), MARK]:
        if line.startswith(MARK):
            if title:
                cells.append(Cell(title, "\n".join(lines).strip()))
            title, lines = line.removeprefix(MARK).strip(), []
        else:
            lines.append(line)
    return ast.get_docstring(ast.parse(text)) or "", cells


def notebook(text: str, script: str = "") -> dict[str, Any]:
    """The script as a Jupyter notebook (format 4.5): its docstring and titles as text, its cells as
    code.

    script: path of the script from the notebook's folder.

    >>> made = notebook('\"\"\"What it is.\"\"\"\\n\\n# %% First\\nx = 1\\n')
    >>> [(cell["cell_type"], cell["source"]) for cell in made["cells"]]
    [('markdown', '# What it is'), ('markdown', '## First'), ('code', 'x = 1')]
    """
    about, steps = cells_of(text)
    title, _, rest = about.partition("\n\n")
    parts = [("markdown", f"# {title.rstrip('.')}\n\n{rest}".rstrip())]
    if "__file__" in text:
        parts.append(("code", f"__file__ = {script!r}  # the script that this notebook is made of"))
    for step in steps:
        parts += [("markdown", f"## {step.title}"), ("code", step.code)]
    cells = []
    for index, (kind, source) in enumerate(parts):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{index}", "metadata": {}}
        cell |= {"execution_count": None, "outputs": []} if kind == "code" else {}
        cells.append({**cell, "source": source})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def write_notebooks(scripts: Sequence[Path], out: Path) -> list[Path]:
    """A notebook per script that has cells, under `out`; their paths."""
    folder = make_directory(out)
    made = []
    for script in scripts:
        content = _notebook_bytes(script, Path(os.path.relpath(script, folder)).as_posix())
        if content is not None:
            write_bytes(folder / f"{script.stem}.ipynb", content)
            made.append(folder / f"{script.stem}.ipynb")
    return made


def _notebook_bytes(path: Path, script: str) -> bytes | None:
    """The notebook of the script at `path`; None where it has no cells."""
    text = path.read_text(encoding="utf-8")
    if f"\n{MARK}" not in text:
        return None
    return f"{json.dumps(notebook(text, script), indent=1)}\n".encode()


# --- what is shipped ------------------------------------------------------------------------------
def example(name: str) -> Path:
    """Path of a model that comes with mechint, for `mechint.load`.

    Raises:
        UnknownNameError: there is no such model.

    >>> example("clock.pt").name
    'clock.pt'
    """
    models = {path.name: path for path in sorted((_folder() / "models").glob("*.pt"))}
    if name not in models:
        raise UnknownNameError.of("model that comes with mechint", name, models)
    return models[name]


def copy_examples(out: str | Path, force: bool = False) -> list[Path]:
    """Copy scripts and models under `out`, and write the scripts as notebooks; paths of all files.

    force: replace files that are there and differ.

    Raises:
        RunError: a file that is there differs, or cannot be written.
    """
    source, folder = _folder(), Path(out)
    scripts = sorted(source.glob("*.py"))
    files = {
        folder / path.relative_to(source): path.read_bytes()
        for path in [source / "README.md", *scripts, *sorted((source / "models").glob("*.pt"))]
    }
    for path in scripts:
        if (content := _notebook_bytes(path, path.name)) is not None:
            files[folder / f"{path.stem}.ipynb"] = content
    there = {path for path in files if path.exists()}
    different = [path for path in there if not path.is_file() or path.read_bytes() != files[path]]
    if different and not force:
        raise RunError(
            f"{min(different)}: is there already and differs; choose another folder, or replace it "
            "with --force"
        )
    for path, content in files.items():
        make_directory(path.parent)
        write_bytes(path, content)
    return [*files]


def _folder() -> Path:
    """The folder of the examples: in the installed package, or in the checkout beside it."""
    installed = Path(__file__).parent / "examples"
    return installed if installed.is_dir() else Path(__file__).parents[1] / "examples"
