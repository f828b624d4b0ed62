"""Reports: probe results, or any page of sections, as one HTML file that opens offline, or as a
gallery.

write_report({"fourier": result}, "report.html", title="Addition mod 113")
write_page(Page("A study", [Section("Claims", claims=claims)]), "study.html")
build_gallery(find_pages(["runs"]), "gallery")
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mechint.errors import RunError
from mechint.files import write_error, write_text
from mechint.report.gallery import PAGE, build_gallery, find_pages
from mechint.report.page import Page, Section, page_of, section_of
from mechint.report.render import render
from mechint.results import ProbeResult


def write_report(
    results: Mapping[str, ProbeResult], path: str | Path, title: str = "What the model computes"
) -> Path:
    """Write the report of `results` (name of the probe → its result) to `path`; equal results give
    equal bytes.

    Raises:
        RunError: `path` cannot be written.
    """
    return write_page(page_of(results, title), path)


def write_page(page: Page, path: str | Path) -> Path:
    """Write `page` as one HTML file that opens offline."""
    write_text(path, render(page))
    return Path(path)


def check_writable(path: str | Path) -> None:
    """Find out now whether `path` will take a file, before hours of work; leaves nothing behind.

    Raises:
        RunError: it is a directory, or it or its directory cannot be written.
    """
    path = Path(path)
    if path.is_dir():
        raise RunError(f"{path}: cannot be written: it is a directory, expected a file")
    parent = path.resolve().parent
    while not parent.exists():
        parent = parent.parent
    try:
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(13, "permission denied")
        if not path.exists() or path.is_file():
            with tempfile.TemporaryFile(dir=parent):
                pass
    except OSError as error:
        raise write_error(path, error) from error


__all__ = [
    "PAGE",
    "Page",
    "Section",
    "build_gallery",
    "check_writable",
    "find_pages",
    "page_of",
    "render",
    "section_of",
    "write_page",
    "write_report",
]
