"""The code stays readable: how long files and functions may be, and that files say what they are.

Lines are 100 columns at most, which ruff checks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_layers import ROOT, modules

MAX_FILE, MAX_FUNCTION, MAX_LONG_FILES = 300, 60, 5

FILES = modules("mechint") + modules("tasks") + modules("probes")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and number of lines, without the docstring, of every function of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Function):
            lines = (node.end_lineno or 0) - node.lineno + 1
            first = node.body[0]
            if ast.get_docstring(node) is not None:
                lines -= (first.end_lineno or 0) - first.lineno + 1
            yield node.name, lines


def says_why_it_is_long(path: Path) -> bool:
    """A long file gives its reason in its docstring: "Long because …"."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return "Long because " in docstring


@pytest.mark.parametrize("path", FILES, ids=place)
def test_a_file_is_short_or_says_why_not(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_FILE or says_why_it_is_long(path), (
        f"{lines} lines; split it or say 'Long because …'"
    )


def test_few_files_are_long() -> None:
    long = [place(path) for path in FILES if says_why_it_is_long(path)]
    assert len(long) <= MAX_LONG_FILES, long


@pytest.mark.parametrize("path", FILES, ids=place)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    long = {name: lines for name, lines in functions(path) if lines > MAX_FUNCTION}
    assert not long, f"split {long}"


@pytest.mark.parametrize("path", FILES, ids=place)
def test_a_file_says_what_it_is(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert len(docstring.partition("\n")[0]) >= 10, "its first line says its reason to exist"
