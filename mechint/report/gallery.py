"""Many pages as one folder: an index with a picture a page, and one plotly.js that all share; opens
without a server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from markupsafe import Markup

from mechint.errors import RunError
from mechint.files import make_directory, write_text
from mechint.report.page import Page
from mechint.report.render import environment, plotly_js, render, slug
from mechint.report.thumbnail import thumbnail

PAGE = "page.json"
"""The file in which a run, a study or an example keeps its page for the gallery."""


def build_gallery(pages: Iterable[Page], out: str | Path, title: str = "mechint gallery") -> Path:
    """Write `pages` and their index under `out`; returns the index.

    Raises:
        RunError: `out` cannot be written.
    """
    out = make_directory(out)
    named: dict[str, Page] = {}
    for page in pages:
        name = slug(page.title) or "page"
        while name in named:
            name += "-again"
        named[name] = page
    write_text(out / "plotly.js", plotly_js())
    for name, page in named.items():
        write_text(out / f"{name}.html", render(page, plotly="plotly.js"))
    index = out / "index.html"
    write_text(
        index,
        environment()
        .get_template("gallery.html.j2")
        .render(title=title, cards=[_card(name, page) for name, page in named.items()]),
    )
    return index


def _card(name: str, page: Page) -> Mapping[str, str]:
    figure = next(
        (figure for section in page.sections for figure in section.figures.values()), None
    )
    text = page.abstract or next((section.lead for section in page.sections if section.lead), "")
    return {
        "href": f"{name}.html",
        "title": page.title,
        "text": text,
        "picture": Markup(thumbnail(figure)) if figure else "",
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
            try:
                pages.append(Page.from_dict(json.loads(file.read_text(encoding="utf-8"))))
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise RunError(f"{file}: holds no page: {error}") from error
    return pages
