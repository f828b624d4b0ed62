"""From a Page to HTML: one file that opens offline, or pages that share one plotly.js beside them.

Equal pages give equal bytes: nothing is drawn from a clock or a random source.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from mechint.figures.export import view_asset
from mechint.figures.theme import numbers
from mechint.report.legend import words_of
from mechint.report.page import SCHEMA, Page, clipped
from mechint.report.validate import check_page
from mechint.results import Null, Table, rank, to_jsonable

TEMPLATES = Path(__file__).parent / "templates"
MAX_SLUG = 120
"""Bytes of an id or a file name."""
TITLE = 40
"""Pixels of a figure's height that its titles take, which the page shows."""
LONG = 12
"""Rows of a table, or members of a list, that are shown before the rest is folded away."""


@cache
def plotly_js() -> str:
    """The plotly.js that comes with plotly, 4 to 5 MB."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def render(
    page: Page, plotly: str | None = None, around: Mapping[str, tuple[str, str]] | None = None
) -> str:
    """The HTML of `page`; plotly.js inlined once where the page has figures, or loaded from the
    relative path `plotly`; `around`: "back", "next" and "index" → (address, title) of the pages
    beside it.

    Raises:
        DataError: the page holds what may not be drawn, with the field.
    """
    check_page(page.to_dict())
    drawn = [*page.figures.values(), *(f for one in page.sections for f in one.figures.values())]
    inline = plotly_js() if drawn and plotly is None else ""
    shared = plotly if drawn and plotly is not None else ""
    views = any("view" in figure.spec for figure in drawn)
    own = [*(["attention.js"] if views else []), *(["figures.js"] if drawn else [])]
    scripts = [text for text in (inline, *map(asset, own)) if text]
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            plotly_inline=inline,
            plotly_path=shared,
            scripts=own,
            around=around or {},
            whole="" if around else json.dumps(page.to_dict(), ensure_ascii=False),
            schema=SCHEMA,
            policy=content_policy(scripts, beside=bool(shared)),
        )
    )


def content_policy(scripts: Sequence[str], *, beside: bool) -> str:
    """A Content-Security-Policy under which only `scripts`, and files `beside` the page, run.

    Nothing is fetched from elsewhere. Style attributes are allowed, since Plotly sets them.
    """
    hashes = [f"'sha256-{_sha256(text)}'" for text in scripts]
    sources = " ".join([*hashes, *(["'self'", "file:"] if beside else [])]) or "'none'"
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )


@cache
def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def environment() -> jinja2.Environment:
    """The templates, with the filters they use; a name that is not there is an error.

    Everything that a template writes is escaped. Two kinds of text stand as they are: files of ours
    (`asset`) and plotly.js.
    """
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    made.filters |= {
        "show": show,
        "rows": _rows,
        "spec": lambda figure: to_jsonable(figure.spec),
        "height": lambda figure: int(figure.spec.get("layout", {}).get("height", 380)) - TITLE,
        "flat": flat,
        "without_view": lambda figures: [one for one in figures if not one.spec.get("view")],
        "words": words_of,
        "held": _held,
        "is_short": _is_short,
        "clipped": clipped,
        "parts": lambda text: text.split("; "),
        "by_status": lambda findings: sorted(findings, key=lambda one: rank(one[0])),
        "inline": inline,
        "prose": prose,
        "end": lambda value: "" if value is None else f"{value:.3g}",
        "slug": slug,
        "p_value": _p_value,
    }
    made.globals |= {"asset": asset, "LONG": LONG}
    return made


@cache
def asset(name: str) -> str:
    """A style sheet or a script of ours, as it stands."""
    if name.startswith("attention."):
        return view_asset(name)
    return (TEMPLATES / name).read_text(encoding="utf-8")


def prose(text: str) -> Markup:
    """A paragraph as HTML: `code` between back quotes, a list where lines begin with "- ".

    >>> print(prose("With `p`:\\n\\n- one\\n  line;\\n- a < b"))
    <p>With <code>p</code>:</p><ul><li>one line;</li><li>a &lt; b</li></ul>
    """
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


SHORT_ROWS, SHORT_TEXT = 12, 1500
"""At most so many rows, and characters in all, of a table that stands open."""


def _is_short(rows: Sequence[Sequence[Any]]) -> bool:
    """Whether a table is short enough to stand open."""
    text = sum(len(cell) for row in rows for cell in row if isinstance(cell, str))
    return len(rows) <= SHORT_ROWS and text <= SHORT_TEXT


def show(value: Any, limit: int = LONG) -> str:
    """A value as a reader wants it: four significant digits; of a long mapping its largest `limit`
    numbers, of a long list its first.

    >>> show(0.123456), show([16, 30, 56]), show({"16": 0.348, "30": 0.314}), show(True)
    ('0.1235', '16, 30, 56', '16: 0.348, 30: 0.314', 'yes')
    """
    value = to_jsonable(value)
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return (
            show(int(value))
            if value.is_integer() and abs(value) < 1e15
            else f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e+")
        )
    if isinstance(value, list | dict):
        if (
            isinstance(value, dict)
            and len(value) > limit
            and all(isinstance(item, int | float) for item in value.values())
        ):
            value = dict(sorted(value.items(), key=lambda entry: -abs(entry[1])))
        parts = (
            [f"{key}: {show(item)}" for key, item in value.items()]
            if isinstance(value, dict)
            else [show(item) for item in value]
        )
        return (
            ", ".join(parts[:limit])
            + (f", … {len(parts) - limit} more" if len(parts) > limit else "")
            or "none"
        )
    return (
        {"inf": "∞", "-inf": "−∞", "nan": "–"}.get(value, value)
        if isinstance(value, str)
        else str(value)
    )


def _p_value(null: Null) -> str:
    """The p-value; with "≤" where a sampled null gives nothing smaller."""
    value = null.p_value
    if math.isnan(value):
        return "–"
    at_floor = null.samples and value <= 1 / (1 + null.samples)
    return ("≤ " if at_floor else "") + ("< 1e-6" if value < 1e-6 else f"{value:.2g}")


def _held(text: str) -> str:
    """The text as an address that holds it, so that a page needs no file beside it."""
    return f"data:text/plain;base64,{base64.b64encode(text.encode()).decode()}"


def _rows(table: Table) -> list[tuple[Any, ...]]:
    return list(zip(*(map(_cell, column) for column in table.columns.values()), strict=True))


def _cell(value: Any) -> Any:
    """A cell with short floats; one that is not finite stays as it is, and `show` names it."""
    short = numbers(value)
    return value if short is None else short


def flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested mappings as rows of dotted name and text.

    >>> flat({"task": {"name": "groups", "parameters": {}}, "seed": 0})
    [('task.name', 'groups'), ('seed', '0')]
    """
    rows: list[tuple[str, str]] = []
    for name, item in value.items():
        rows += (
            flat(item, f"{prefix}{name}.")
            if isinstance(item, Mapping)
            else [(f"{prefix}{name}", show(item))]
        )
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
