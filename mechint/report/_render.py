"""From a Page to HTML: one file that opens offline, or pages that share one plotly.js.

Text and static drawings come first; plotly.js is the last thing in the body. Equal pages give equal
bytes: nothing is drawn from a clock or a random source.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from mechint.errors import percent, spell
from mechint.explanation.text import beside, legend, shown_tests
from mechint.figures import interactive
from mechint.figures.figure import Figure
from mechint.figures.theme import COLORS, NULL, finite, numbers
from mechint.probe.results import Null, PaperClaim, Table, to_jsonable
from mechint.probe.text import MARKS
from mechint.report.page import Page

TEMPLATES = Path(__file__).parent / "templates"
MAX_SLUG = 120
"""Bytes of an id or a file name."""
LONG = 12
"""Rows of a table, or members of a list, that are shown before the rest is folded away."""
SHORT_TEXT = 1500
"""Characters of a table that stands open."""


@cache
def plotly_js() -> str:
    """The plotly.js that comes with plotly, 4 to 5 MB."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def render(
    page: Page,
    plotly: str | None = None,
    around: Mapping[str, tuple[str, str]] | None = None,
    *,
    light: bool = False,
) -> str:
    """The HTML of `page`.

    Args:
        plotly: relative path of plotly.js; inlined when None. light: without plotly.js, so that
            figures stay static.
        around: "back", "next" and "index" → (address, title) of the pages beside it.
    """
    drawn = _figures(page)
    views = any(figure.view is not None for figure in drawn)
    moving = any(figure.plots and figure.view is None for figure in drawn) and not light
    inline = plotly_js() if moving and plotly is None else ""
    own = [*(["attention.js"] if views else []), *(["figures.js"] if drawn else []), "page.js"]
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            plotly_inline=inline,
            plotly_path=plotly if moving and plotly is not None else "",
            scripts=own,
            views=views,
            nulls={section.title: list(section.nulls) for section in page.sections},
            around=around or {},
            number=itertools.count(1).__next__,  # figures are numbered as they stand
            policy=content_policy(
                [text for text in (inline, *map(asset, own)) if text], beside=bool(plotly)
            ),
        )
    )


def _figures(page: Page) -> list[Figure]:
    sections = [figure for one in page.sections for figure in one.figures.values()]
    return [*([page.hero] if page.hero else []), *page.figures.values(), *sections]


def content_policy(scripts: Sequence[str], *, beside: bool) -> str:
    """A Content-Security-Policy under which only `scripts`, and files `beside` the page, run.

    Nothing is fetched from elsewhere. Style attributes are allowed, since Plotly sets them.
    """
    hashes = [f"'sha256-{_sha256(text)}'" for text in scripts]
    sources = " ".join([*hashes, *(["'self'", "file:"] if beside else [])]) or "'none'"
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; "
        "img-src 'self' file: data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )


@cache
def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _spelled(value: Any) -> Any:
    """A value of a page, the characters of a text that nobody sees spelled out."""
    if isinstance(value, Markup) or not isinstance(value, str) or value.isprintable():
        return value
    return "".join(one if one in "\n\t" else spell(one) for one in value)


@cache
def environment() -> jinja2.Environment:
    """The templates, with the filters they use; a name that is not there is an error.

    Everything that a template writes is escaped, but for files of ours (`asset`), plotly.js and
    drawings.
    """
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=_spelled,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {
        "show": show,
        "rows": _rows,
        "element": lambda figure, name: Markup(interactive.element(figure, name)),  # escaped there
        "flat": flat,
        "held": _held,
        "is_short": _is_short,
        "truncate_words": truncate,
        "inline": inline,
        "prose": prose,
        "slug": slug,
        "strip": null_strip,
        "by_size": _by_size,
        "tests": shown_tests,
        "as_width": lambda share: f"{100 * min(max(share, 0.0), 1.0):.1f}",
        "legend": legend,
        "claim_strip": claim_strip,
        "reason": reason_of,
    }
    made.globals |= {"asset": asset, "MARKS": MARKS, "percent": percent, "beside": beside}
    return made


@cache
def asset(name: str) -> str:
    """A style sheet or a script of ours, as it stands."""
    if name.startswith(("attention.", "figures.")):
        return interactive.asset(name)
    return (TEMPLATES / name).read_text(encoding="utf-8")


def null_strip(null: Null) -> Markup:
    """The null as a picture: its distribution in gray, a line at what was observed.

    A null without kept quantiles is drawn as a normal one of its mean and spread.
    """
    width, height, quantiles = 120, 24, list(null.quantiles)
    if not quantiles and null.std > 0:
        from statistics import NormalDist

        normal = NormalDist(null.mean, null.std)
        quantiles = [
            normal.inv_cdf(share) for share in (0.005, *(i / 20 for i in range(1, 20)), 0.995)
        ]
    ends = [*quantiles, null.mean, null.observed]
    if not all(map(math.isfinite, ends)):
        return Markup("")
    low, high = min(ends), max(ends)
    room = 0.06 * ((high - low) or 1.0)
    low, high = low - room, high + room

    def at(value: float) -> float:
        return round(width * (value - low) / (high - low), 2)

    pairs = [(a, b) for a, b in itertools.pairwise(quantiles) if b > a]
    top = max((1 / (b - a) for a, b in pairs), default=1.0)
    tall = height - 4
    bars = [(at(a), max(0.8, at(b) - at(a)), tall / (b - a) / top) for a, b in pairs]
    bars = bars or [(at(null.mean) - 1, 2.0, float(tall))]
    boxes = "".join(
        f'<rect x="{x:g}" y="{height - tall_:.1f}" width="{wide:.2f}" height="{tall_:.1f}" '
        f'fill="{NULL}"/>'
        for x, wide, tall_ in bars
    )
    seen = at(null.observed) - 1
    line = f'<rect x="{seen:g}" y="0" width="2" height="{height}" fill="{COLORS[1]}"/>'
    label = escape(f"{null.metric}: observed {show(null.observed)}, null {show(null.mean)}")
    return Markup(
        f'<svg class="null" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{label}">{boxes}{line}</svg>'
    )


def prose(text: str) -> Markup:
    """A paragraph as HTML: `code` between back quotes, a list where lines begin with "- ", lines
    as they stand where all are indented.

    >>> print(prose("With `p`:\\n\\n- one\\n  line;\\n- a < b"))
    <p>With <code>p</code>:</p><ul><li>one line;</li><li>a &lt; b</li></ul>
    """
    if text.strip() and all(line.startswith("    ") for line in text.splitlines() if line.strip()):
        return Markup('<pre tabindex="0">{}</pre>').format(textwrap.dedent(text).strip("\n"))
    before, *items = re.split(r"(?:^|\n)- ", text.strip())
    made = Markup("<p>{}</p>").format(inline(before)) if before.strip() else Markup("")
    listed = Markup("").join(Markup("<li>{}</li>").format(inline(item)) for item in items)
    return made + (Markup("<ul>{}</ul>").format(listed) if items else Markup(""))


def inline(text: str) -> Markup:
    """One line, escaped, with the spans between back quotes as code."""
    pieces = re.split(r"``?([^`]+)``?", " ".join(text.split()))
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if place % 2 else escape(piece)
        for place, piece in enumerate(pieces)
    )


def truncate(text: str, longest: int) -> str:
    """`text`, cut after a word where it has more than `longest` letters.

    >>> truncate("three short words", 12)
    'three short …'
    """
    return text if len(text) <= longest else f"{text[:longest].rpartition(' ')[0]} …"


def _is_short(rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether a table is short enough to stand open."""
    text = sum(len(cell) for row in rows for cell in row if isinstance(cell, str))
    return len(rows) <= LONG and text <= SHORT_TEXT


def show(value: Any, limit: int = LONG) -> str:
    """A value as a reader wants it: three significant digits; of a long mapping its largest `limit`
    numbers, of a long list its first.

    >>> show(0.123456), show([16, 30, 56]), show({"16": 0.348, "30": 0.314}), show(True)
    ('0.123', '16, 30, 56', '16: 0.348, 30: 0.314', 'yes')
    """
    value = to_jsonable(value)
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e15:
            return show(int(value))
        return f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e+")
    if isinstance(value, dict):
        parts = [f"{key}: {show(item)}" for key, item in _by_size(value)[:limit]]
    elif isinstance(value, list):
        parts = [show(item) for item in value[:limit]]
    else:
        return {"inf": "∞", "-inf": "−∞", "nan": "–"}.get(str(value), str(value))
    more = len(value) - len(parts)
    return ", ".join([*parts, *([f"… {more} more"] if more else [])]) or "none"


def _by_size(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The entries of a mapping, the largest numbers first where it is long and holds numbers."""
    pairs = list(value.items())
    if len(pairs) <= LONG or not all(isinstance(item, int | float) for _, item in pairs):
        return pairs
    return sorted(pairs, key=lambda pair: -abs(pair[1]))


def _held(text: str) -> str:
    """The text as an address that holds it, so that a page needs no file beside it."""
    return f"data:text/plain;base64,{base64.b64encode(text.encode()).decode()}"


def _rows(table: Table) -> list[tuple[Any, ...]]:
    return list(zip(*map(_cells, table.columns.values()), strict=True))


def _cells(column: Sequence[Any]) -> list[Any]:
    """Cells with short floats, 0 where they are rounding beside the largest of the column; one that
    is not finite stays as it is, and `show` names it.
    """
    least = 1e-9 * max(map(abs, finite(list(column))), default=0.0)
    cells = [0 if isinstance(one, float) and abs(one) < least else one for one in column]
    return [one if (short := numbers(one)) is None else short for one in cells]


def flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested mappings as rows of dotted name and text.

    >>> flat({"task": {"name": "groups", "parameters": {}}, "seed": 0})
    [('task.name', 'groups'), ('seed', '0')]
    """
    rows: list[tuple[str, str]] = []
    for name, item in value.items():
        nested = isinstance(item, Mapping)
        rows += flat(item, f"{prefix}{name}.") if nested else [(f"{prefix}{name}", show(item))]
    return rows


def slug(text: str) -> str:
    """`text` as an HTML id or a file name: lower case letters, digits and hyphens.

    A long text is cut and ends with eight digits of its hash.

    >>> slug("Joint training: p = 113")
    'joint-training-p-113'
    """
    words = "".join(letter if letter.isalnum() else " " for letter in text.lower()).split()
    name = "-".join(words)
    if len(name.encode()) <= MAX_SLUG:
        return name
    return f"{name[: MAX_SLUG // 4]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


# --- a claim of a study as a picture --------------------------------------------------------------
BAR = re.compile(r"(above|below|from) (-?[\d.]+)(?: to (-?[\d.]+))?; control")
THEIRS = re.compile(r"(?:exponent|correlation|accuracy) (-?\d+(?:\.\d+)?)")
"""Numbers of a paper that are of the same quantity as ours."""
MAX_WORDS = 10
"""Words of a reason."""
CLAIM_WIDTH, CLAIM_HEIGHT = 230, 34


def bar_of(claim: PaperClaim) -> tuple[float, float]:
    """The values that support a claim, by its criterion; everything where it states none.

    >>> bar_of(PaperClaim("s", "a", "", criterion="a share above 0.4; control: some"))
    (0.4, inf)
    """
    found = BAR.search(claim.criterion)
    if found is None:
        return -math.inf, math.inf
    low = float(found[2])
    if found[1] == "from":
        return low, float(found[3])
    return (low, math.inf) if found[1] == "above" else (-math.inf, low)


def claim_strip(claim: PaperClaim) -> Markup:
    """Our value with its 95% interval against the bar, the part that supports the claim shaded; the
    paper's number a tick below, where it is of the same quantity. Empty without a value.
    """
    if claim.value is None or not math.isfinite(claim.value):
        return Markup("")
    bar, ends = bar_of(claim), [end for end in claim.interval or () if math.isfinite(end)]
    theirs = THEIRS.search(claim.theirs)
    paper = float(theirs[1]) if theirs else None
    held = [claim.value, *ends, *filter(math.isfinite, bar), *([] if paper is None else [paper])]
    low, high = min(held), max(held)
    room = 0.12 * ((high - low) or abs(high) or 1.0)
    low, high = low - room, high + room

    def at(value: float) -> float:
        return round(CLAIM_WIDTH * (min(max(value, low), high) - low) / (high - low), 1)

    left, right = (at(end) for end in bar)
    parts = [f'<rect x="{left}" y="6" width="{right - left:.1f}" height="14" class="inside"/>']
    for end in filter(math.isfinite, bar):
        parts.append(f'<line x1="{at(end)}" x2="{at(end)}" y1="3" y2="23" class="bar-line"/>')
        parts.append(f'<text x="{at(end)}" y="33" text-anchor="middle">{end:g}</text>')
    if claim.interval is not None:
        first, last = (at(end) for end in claim.interval)
        parts.append(f'<line x1="{first}" x2="{last}" y1="13" y2="13" class="reach"/>')
    parts.append(f'<circle cx="{at(claim.value)}" cy="13" r="4" fill="{COLORS[1]}"/>')
    if paper is not None:
        x = at(paper)
        parts.append(f'<path d="M{x} 16l4 8h-8z" class="paper"><title>the paper</title></path>')
    said = f"here {claim.ours}; supported where {claim.criterion.partition('; control')[0]}"
    said += "" if paper is None else f"; the paper {paper:g}"
    return Markup(
        f'<svg class="claim" viewBox="0 0 {CLAIM_WIDTH} {CLAIM_HEIGHT}" width="{CLAIM_WIDTH}" '
        f'height="{CLAIM_HEIGHT}" '
        f'role="img" aria-label="{escape(said)}">{"".join(parts)}</svg>'
    )


def reason_of(claim: PaperClaim) -> str:
    """The reason of an open verdict, in ten words; "" of a decided one.

    >>> reason_of(PaperClaim("s", "a", "", verdict="inconclusive", control="failed: 3 of 8"))
    'control failed: 3 of 8'
    """
    if claim.verdict not in ("inconclusive", "not run"):
        return ""
    if claim.control.startswith("failed"):
        said = f"control {claim.control}"
    elif claim.value is not None:
        said = "the interval crosses the bar"
    else:
        said = claim.note
    words = said.split()
    return " ".join(words[:MAX_WORDS]) + (" …" if len(words) > MAX_WORDS else "")
