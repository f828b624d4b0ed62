"""Reports: an account, or any page of sections, as one HTML file that opens offline, and many pages
as a gallery.

write_report(mechint.analyze(subject), "report.html")
write_page(Page("A study", [Section("Claims", claims=claims)]), "study.html")
build_gallery([page_of(account) for account in accounts], "gallery")
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mechint.report._render import render, slug
from mechint.report.gallery import build_gallery
from mechint.report.outputs import check_writable
from mechint.report.page import (
    Page,
    Section,
    comparison_page,
    page_of,
    section_of,
    training_section,
)
from mechint.system.files import write_text

if TYPE_CHECKING:
    from mechint.account import Account


def write_report(account: Account, path: str | Path, *, light: bool = False) -> Path:
    """Write the report of an account to `path`; equal accounts give equal bytes.

    Args:
        light: without plotly.js (5 MB): figures are static.

    Raises:
        RunError: `path` cannot be written.
    """
    return write_page(page_of(account), path, light=light)


def write_page(page: Page, path: str | Path, *, light: bool = False) -> Path:
    """Write `page` as one HTML file that opens offline."""
    write_text(path, render(page, light=light))
    return Path(path)


__all__ = [
    "Page",
    "Section",
    "build_gallery",
    "check_writable",
    "comparison_page",
    "page_of",
    "render",
    "section_of",
    "slug",
    "training_section",
    "write_page",
    "write_report",
]
