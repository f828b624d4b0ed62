"""The card of a page in a gallery's index: what was found here, not what others claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mechint.figures.figure import Figure
from mechint.report.page import Page, clipped
from mechint.report.thumbnail import Mark, amount, thumbnail

ORDER = ("study", "example", "task", "probe", "report")
"""The order in which the kinds of pages stand in the index."""
OUTCOMES = ("reproduced", "not reproduced", "yes", "no", "unclear")
LONGEST = 220
"""Letters of a card's text."""


@dataclass(frozen=True)
class Card:
    """counts: what came out → how often; marks: short facts; picture: elements of an SVG."""

    href: str
    title: str
    kind: str
    task: str
    date: str
    text: str
    probes: Sequence[str] = ()
    counts: dict[str, int] = field(default_factory=dict)
    marks: Sequence[str] = ()
    picture: Sequence[Mark] = ()


def card(href: str, page: Page) -> Card:
    """What the index shows of `page`.

    >>> from mechint.report import Page, Section
    >>> made = card("x.html", Page("T", [Section("fourier", status="yes")]))
    >>> made.kind, made.counts
    ('report', {'found': 1})
    """
    figure = _figure(page)
    verdicts = [claim.verdict for section in page.sections for claim in section.claims]
    found = [section.status for section in page.sections if section.status]
    kind = kind_of(page)
    return Card(
        href,
        page.title,
        kind,
        page.task,
        page.date,
        _text(page, kind),
        list(page.probes) or [s.title for s in page.sections if s.status and kind == "report"],
        _counted(verdicts or found),
        [f"{name}: {value}" for name, value in list(page.scores.items())[:2]],
        thumbnail(figure) if figure else [],
    )


def _counted(outcomes: Sequence[str]) -> dict[str, int]:
    """How often each came out, what was found first."""
    counts = Counter(outcomes)
    order = [name for name in OUTCOMES if name in counts]
    return {name: counts[name] for name in [*order, *(n for n in counts if n not in order)]}


def kind_of(page: Page) -> str:
    """ "study", "example", "task", "probe" or "report", by its kicker."""
    last = page.kicker.rpartition(" ")[2]
    return last if last in ORDER else "report"


def _text(page: Page, kind: str) -> str:
    """What was found, in a sentence: a paper's claims are not results, so a study's card has those
    that were reproduced, and says which stand where none was.
    """
    leads = [section.headline for section in page.sections]
    first = next((lead for lead in leads if lead), "")
    text = first if kind in ("study", "report") else page.abstract or first
    claims = [claim for section in page.sections for claim in section.claims]
    stand = [claim.statement.rstrip(".") for claim in claims if claim.verdict == "reproduced"]
    if stand:
        text = f"Reproduced: {'; '.join(stand)}."
    return clipped(text.replace("`", ""), LONGEST)


FEWEST = 12
"""Numbers in a figure that is worth a picture on a card."""


def _figure(page: Page) -> Figure | None:
    """The first figure of what was found, else the first of all, else the head's; one that shows
    little only where no other does.
    """
    sections = sorted(page.sections, key=lambda one: one.status != "yes")
    every = [figure for section in sections for figure in section.figures.values()]
    every += page.figures.values()
    full = [figure for figure in every if amount(figure) >= FEWEST]
    return next(iter(full or every), None)
