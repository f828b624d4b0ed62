"""Scripts in ``# %%`` cells: as cells, and as notebooks.

``python docs/site/notebooks.py examples/*.py --out notebooks`` writes one notebook per script that
has cells. It runs where it lies: Jupyter gives it its own folder, and its first cell says where the
script is, where that reads files beside itself.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mechint.system.files import make_directory, write_text

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
        text = script.read_text(encoding="utf-8")
        if f"\n{MARK}" not in text:
            continue
        held = notebook(text, Path(os.path.relpath(script, folder)).as_posix())
        write_text(folder / f"{script.stem}.ipynb", json.dumps(held, indent=1) + "\n")
        made.append(folder / f"{script.stem}.ipynb")
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a notebook per script.")
    parser.add_argument("scripts", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("notebooks"))
    given = parser.parse_args()
    write_notebooks(given.scripts, given.out)
