"""Many pages as one folder: an index with a picture a page, and one plotly.js that all share; opens
without a server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mechint.errors import DataError, MechintError, RunError
from mechint.files import make_directory, write_text
from mechint.report.outputs import refuse_foreign
from mechint.report.page import Page
from mechint.report.render import content_policy, environment, plotly_js, render, slug
from mechint.report.thumbnail import thumbnail
from mechint.report.validate import check_page

PLOTLY = "plotly.js"
RESERVED = ("index", "plotly")
MAX_PAGE = 64 << 20
"""Bytes of one page.json."""
PAGE = "page.json"
"""The file in which a run, a study or an example keeps its page for the gallery."""


def build_gallery(
    pages: Iterable[Page],
    out: str | Path,
    title: str = "mechint gallery",
    *,
    force: bool = False,
) -> Path:
    """Write `pages` and their index under `out`; returns the index.

    Everything is drawn before anything is written, so that a page that cannot be drawn leaves the
    gallery as it was.

    Args:
        force: replace files that are not mechint's own.

    Raises:
        RunError: `out` cannot be written, or holds another's file under a name that is needed.
        DataError: a page holds what may not be drawn.
    """
    named = _named(pages)
    files = {f"{name}.html": _rendered(page, plotly=PLOTLY) for name, page in named.items()}
    cards = [_card(name, page) for name, page in named.items()]
    files["index.html"] = (
        environment()
        .get_template("gallery.html.j2")
        .render(title=title, cards=cards, policy=content_policy([], beside=False))
    )
    out = make_directory(out)
    for name in files:
        refuse_foreign(out / name, force=force)
    write_text(out / PLOTLY, plotly_js())
    for name, text in files.items():
        write_text(out / name, text)
    return out / "index.html"


def _named(pages: Iterable[Page]) -> dict[str, Page]:
    """File name (without its ending) → page; no two alike, none that the gallery itself needs."""
    named: dict[str, Page] = {}
    for page in pages:
        first = name = slug(page.title) or "page"
        count = 1
        while name in named or name in RESERVED:
            count += 1
            name = f"{first}-{count}"
        named[name] = page
    return named


def _rendered(page: Page, plotly: str) -> str:
    try:
        return render(page, plotly=plotly)
    except DataError as error:
        raise DataError(f"page {page.title[:80]!r}: {error}") from error


def _card(name: str, page: Page) -> Mapping[str, Any]:
    figure = next(
        (figure for section in page.sections for figure in section.figures.values()), None
    )
    text = page.abstract or next((section.lead for section in page.sections if section.lead), "")
    return {
        "href": f"{name}.html",
        "title": page.title,
        "text": text,
        "picture": thumbnail(figure) if figure else [],
    }


def find_pages(places: Iterable[str | Path]) -> list[Page]:
    """Every page kept under `places` (files, or folders searched to any depth), by path.

    Raises:
        RunError: a place that is not there, or a file that holds no page.
    """
    pages = []
    for place in map(Path, places):
        if not place.exists():
            raise RunError(f"{place}: there is no such file or directory to take pages from")
        for file in sorted(place.rglob(PAGE)) if place.is_dir() else [place]:
            pages.append(_read(file))
    return pages


def _read(file: Path) -> Page:
    """The page that `file` holds, checked; RunError with the reason where it holds none."""
    try:
        if not file.is_file():
            raise ValueError("it is not a regular file")
        if (size := file.stat().st_size) > MAX_PAGE:
            raise ValueError(f"it has {size} bytes, more than {MAX_PAGE}")
        data = json.loads(file.read_text(encoding="utf-8"))
        check_page(data)
        return Page.from_dict(data)
    except (OSError, ValueError, RecursionError, MechintError) as error:
        raise RunError(f"{file}: does not hold a page: {str(error)[:300]}") from error
