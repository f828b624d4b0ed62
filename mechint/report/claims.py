"""A claim of a study as a picture: our value with its interval, the bar, the paper's number."""

from __future__ import annotations

import math
import re

from markupsafe import Markup, escape

from mechint.figures.theme import COLORS
from mechint.probe.results import PaperClaim

BAR = re.compile(r"(above|below|from) (-?[\d.]+)(?: to (-?[\d.]+))?; control")
THEIRS = re.compile(r"(?:exponent|correlation|accuracy) (-?\d+(?:\.\d+)?)")
"""Numbers of a paper that are of the same quantity as ours."""
WORDS = 10
"""Words of a reason."""
WIDTH, HEIGHT = 230, 34


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
        return round(WIDTH * (min(max(value, low), high) - low) / (high - low), 1)

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
        f'<svg class="claim" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
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
    return " ".join(words[:WORDS]) + (" …" if len(words) > WORDS else "")
