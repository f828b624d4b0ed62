"""Many pages as one folder: an index with a picture per page, and one plotly.js that all share;
opens without a server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mechint.errors import DataError, MechintError, RunError
from mechint.files import make_directory, write_text
from mechint.progress import Count
from mechint.report.cards import ORDER, Card, card
from mechint.report.outputs import refuse_foreign
from mechint.report.page import Page
from mechint.report.render import asset, content_policy, environment, plotly_js, render, slug
from mechint.report.validate import check_page

PLOTLY = "plotly.js"
RESERVED = ("index", "plotly")
HEADINGS = {
    "study": "Papers, run again",
    "example": "Examples",
    "task": "Tasks",
    "probe": "Probes",
    "report": "Reports",
}
INTRODUCTION = (
    "Small transformers trained on tasks whose algorithm is known, and what the probes find in "
    "them. Every number on these pages was measured here, beside its null; every page names the "
    "command that makes it again.",
    "A card says what was found: how many of a paper's claims came out, how well the model answers "
    "beside chance, which probes found their mechanism, which did not, and which abstain.",
)
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
    progress: Count = lambda *_: None,
) -> Path:
    """Write `pages` and their index under `out`; returns the index.

    Everything is drawn before anything is written, so that a page that cannot be drawn leaves the
    gallery as it was.

    Args:
        force: replace files that are not mechint's own.
        progress: called with how many pages are drawn, how many there are, and the next one's name.

    Raises:
        RunError: `out` cannot be written, or holds another's file under a name that is needed.
        DataError: a page holds what may not be drawn.
    """
    named = _named(pages)
    cards = {name: card(f"{name}.html", page) for name, page in named.items()}
    order = sorted(named, key=lambda name: ORDER.index(cards[name].kind))
    files = {}
    for place, name in enumerate(order):
        progress(place, len(order), name)
        around = {"index": ("index.html", title)}
        for side, other in (("back", place - 1), ("next", place + 1)):
            if 0 <= other < len(order):
                around[side] = (f"{order[other]}.html", named[order[other]].title)
        files[f"{name}.html"] = _rendered(named[name], PLOTLY, around)
    files["index.html"] = _index(title, [cards[name] for name in order])
    out = make_directory(out)
    for name in files:
        refuse_foreign(out / name, force=force)
    refuse_foreign(out / PLOTLY, force=force, mark=b"* plotly.js v", kind="plotly.js")
    write_text(out / PLOTLY, plotly_js())
    for name, text in files.items():
        write_text(out / name, text)
    return out / "index.html"


def _index(title: str, cards: Sequence[Card]) -> str:
    """The page of cards, by kind, with its filters."""
    groups = [
        (HEADINGS[kind], shown)
        for kind in ORDER
        if (shown := [one for one in cards if one.kind == kind])
    ]
    filters = [
        ("task", "task", sorted({one.task for one in cards} - {""})),
        ("probe", "probe", sorted({name for one in cards for name in one.probes})),
    ]
    return (
        environment()
        .get_template("gallery.html.j2")
        .render(
            title=title,
            introduction=INTRODUCTION,
            groups=groups,
            filters=filters,
            policy=content_policy([asset("gallery.js")], beside=False),
        )
    )


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


def _rendered(page: Page, plotly: str, around: Mapping[str, tuple[str, str]]) -> str:
    try:
        return render(page, plotly=plotly, around=around)
    except DataError as error:
        raise DataError(f"page {page.title[:80]!r}: {error}") from error


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
