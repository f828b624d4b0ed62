"""Many pages as one folder: an index of cards with a picture each, and one plotly.js that all
share; opens without a server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mechint.errors import RunError
from mechint.figures.figure import Figure
from mechint.figures.static import drawing
from mechint.probe.text import rank
from mechint.report._render import (
    asset,
    content_policy,
    environment,
    plotly_js,
    render,
    slug,
    truncate,
)
from mechint.report.outputs import refuse_foreign
from mechint.report.page import Page
from mechint.system.files import make_directory, write_bytes, write_text
from mechint.system.progress import Count

PLOTLY = "plotly.js"
RESERVED = ("index", "plotly")
HEADINGS = {
    "report": "Reports",
    "study": "Papers, run again",
    "study of ours": "Questions of our own",
    "example": "Examples",
    "task": "Tasks",
    "probe": "Probes",
    "table": "Tables of models",
}
"""Kind of page → heading, in the order of the index."""
LONGEST = 110
"""Characters of a card's text."""
MAX_PANELS = 3
"""Panels of a figure that a card's picture shows."""


def card(name: str, page: Page) -> dict[str, Any]:
    """The card in the index of `page`, which is written to `name`.html: its kind, title, answer
    and picture (a file name, or "").

    >>> card("x", Page("T", [], verdict="It adds as a clock."))["text"]
    'It adds as a clock.'
    """
    leads = [section.headline for section in page.sections if section.headline]
    text = page.verdict or page.abstract or next(iter(leads), "")
    figure = picture(page)
    kind = page.kicker if page.kicker in HEADINGS else "report"
    return {
        "href": f"{name}.html",
        "title": page.title,
        "kind": kind,
        "text": truncate(" ".join(text.replace("`", "").split()), LONGEST),
        "words": " ".join([kind, page.title, page.task, *page.probes, text]).lower(),
        "quality": page.quality[0] if page.quality else "",
        "picture": f"{name}.svg" if figure is not None else "",
        "alt": f"{page.title}: {figure.title}" if figure is not None else "",
    }


def picture(page: Page) -> Figure | None:
    """The figure on a page's card: its hero, else the first that is drawn of what is there."""
    order = sorted(page.sections, key=lambda one: rank(one.verdict))
    every = [page.hero, *page.figures.values()]
    every += [figure for section in order for figure in section.figures.values()]
    return next((one for one in every if one is not None and one.plots), None)


def _check_place(out: Path, force: bool) -> None:
    """RunError where a gallery would lie among other things, or its place is a file."""
    if out.exists() and not out.is_dir():
        raise RunError(f"{out}: is a file; expected a directory for the gallery")
    if force or not out.is_dir() or not any(out.iterdir()) or (out / PLOTLY).is_file():
        return
    raise RunError(f"{out}: is not empty and holds no gallery; choose another --out, or --force")


def build_gallery(
    pages: Iterable[Page],
    out: str | Path,
    title: str = "Gallery",
    *,
    force: bool = False,
    progress: Count = lambda *_: None,
) -> Path:
    """Write `pages`, a picture of each and their index under `out`; returns the index.

    Everything is drawn before anything is written, so that a page that cannot be drawn leaves the
    gallery as it was.

    Args:
        force: replace files that are not mechint's own.
        progress: called with how many pages are drawn, how many there are, and the next one's name.

    Raises:
        RunError: `out` cannot be written, holds other things and no gallery, or another's file
            under a name that is needed.
    """
    _check_place(Path(out), force)
    named = _named(pages)
    cards = {name: card(name, page) for name, page in named.items()}
    texts, pictures = dict[str, str](), dict[str, bytes]()
    order = sorted(named, key=lambda name: list(HEADINGS).index(cards[name]["kind"]))
    for place, name in enumerate(order):
        progress(place, len(order), name)
        around = {"index": ("index.html", title)}
        for side, other in (("back", place - 1), ("next", place + 1)):
            if 0 <= other < len(order):
                around[side] = (f"{order[other]}.html", named[order[other]].title)
        texts[f"{name}.html"] = render(named[name], PLOTLY, around)
        if (figure := picture(named[name])) is not None:
            figure = dataclasses.replace(figure, plots=figure.plots[:MAX_PANELS])
            pictures[f"{name}.svg"] = drawing(figure, "svg", 3.6, 2.5)
    texts["index.html"] = _index(title, [cards[name] for name in order])
    out = make_directory(out)
    for name in texts:
        refuse_foreign(out / name, force=force)
    refuse_foreign(out / PLOTLY, force=force, mark=b"* plotly.js v", kind="plotly.js")
    write_text(out / PLOTLY, plotly_js())
    for name, text in texts.items():
        write_text(out / name, text)
    for name, data in pictures.items():
        write_bytes(out / name, data)
    return out / "index.html"


def _index(title: str, cards: Sequence[Mapping[str, Any]]) -> str:
    """The page of cards, by kind, with a search and chips."""
    template = environment().get_template("gallery.html.j2")
    policy = content_policy([asset("gallery.js"), asset("page.js")], beside=True)
    groups = [
        (kind, heading, own)
        for kind, heading in HEADINGS.items()
        if (own := [one for one in cards if one["kind"] == kind])
    ]
    return template.render(title=title, groups=groups, policy=policy)


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
