"""Reports: probe results, or any page of sections, as one HTML file that opens offline, or as a
gallery.

write_report({"fourier": result}, "report.html", title="Addition mod 113")
write_page(Page("A study", [Section("Claims", claims=claims)]), "study.html")
build_gallery(find_pages(["runs"]), "gallery")
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mechint.files import write_text
from mechint.report.gallery import PAGE, build_gallery, find_pages
from mechint.report.head import head_of
from mechint.report.outputs import check_writable
from mechint.report.page import Page, Section, page_of, section_of
from mechint.report.render import render, slug
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


__all__ = [
    "PAGE",
    "Page",
    "Section",
    "build_gallery",
    "check_writable",
    "find_pages",
    "head_of",
    "page_of",
    "render",
    "section_of",
    "slug",
    "write_page",
    "write_report",
]
