"""Room for the texts of a drawing: titles wrap, ticks thin out, the height follows.

A drawing has the width of its journal's column, and letters do not shrink with it. Texts are
measured after a first layout, made to fit, and laid out again.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from mechint.figures.theme import MARGIN, PIXELS_PER_INCH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis
    from matplotlib.figure import Figure as Drawing
    from matplotlib.text import Text

ALONE, ONE_OF_MANY = 1.2, 0.45
"""Inches that a panel is high at least, alone or one of many."""
EQUAL = 2.0
"""Inches up to which one whose units are equal is as high as it may be wide."""
LINE, MOST_NAMES = 0.125, 60
"""Inches from one line of ticks to the next, and how many names a drawing grows for."""
NAMES = 0.4
"""The share of a drawing's width that the names left of it may take."""
STANDING = 0.8
"""Inches that a name below a plot may take where it stands upright."""


def fit(
    drawing: Drawing, layout: Mapping[str, Any], panels: Sequence[Axes], *, grows: bool
) -> None:
    """Make every text of `drawing` fit; its height too where it `grows`.

    What fits depends on the panels' size and that on what fits: a first guess takes away what would
    leave no room for the panels, and the layout is found again after each change.
    """
    if grows:  # room for the guess; `_grow` takes back what is too much
        drawing.set_figheight(2 * drawing.get_figheight() + 2)
    _fit_across(drawing, panels)
    _fit_up(drawing, panels)
    _lay_out(drawing)
    _fit_across(drawing, panels)
    if grows:
        _lay_out(drawing)
        _grow(drawing, layout, panels)
    _lay_out(drawing)
    _fit_up(drawing, panels)
    _lay_out(drawing)
    _fit_across(drawing, panels)


def _lay_out(drawing: Drawing) -> None:
    """Give panels and texts their places, as drawing them would."""
    engine = drawing.get_layout_engine()
    assert engine is not None
    engine.execute(drawing)
    for axes in drawing.axes:
        axes.apply_aspect()


def _fit_across(drawing: Drawing, panels: Sequence[Axes]) -> None:
    """Wrap what is read above and below the panels, and thin out the ticks below them."""
    wide = drawing.dpi * drawing.get_figwidth()
    for text in (drawing._suptitle, drawing._supxlabel):  # pyright: ignore[reportAttributeAccessIssue]
        if text is not None:
            wrap(text, 0.96 * wide)
    for axes in panels:
        box = axes.get_window_extent()
        middle = (box.x0 + box.x1) / 2
        around = 1.96 * min(middle, wide - middle)
        wrap(axes.xaxis.label, around if len(panels) == 1 else box.width)
        wrap(axes.title, box.width)
        _thin(axes.xaxis, box.width, STANDING * drawing.dpi)


def _fit_up(drawing: Drawing, panels: Sequence[Axes]) -> None:
    """Wrap what is read upward, beside panels and scales, and thin out the ticks left of them."""
    wide, high = (drawing.dpi * inches for inches in drawing.get_size_inches())
    if drawing._supylabel is not None:  # pyright: ignore[reportAttributeAccessIssue]
        wrap(drawing._supylabel, 0.8 * high)  # pyright: ignore[reportAttributeAccessIssue]
    for axes in panels:
        _thin(axes.yaxis, axes.get_window_extent().height, NAMES * wide)
    for axes in drawing.axes:
        upward = axes.get_window_extent().height
        for side in (axes, *axes.child_axes):
            wrap(side.yaxis.label, upward)


def wrap(text: Text, most: float) -> None:
    """Break `text` into lines of at most `most` pixels, between words."""
    whole = text.get_text().replace("\n", " ")
    letters = len(whole)
    text.set_text(whole)
    while letters > 8 and _along(text) > most:
        letters = min(letters - 1, max(8, math.ceil(letters * most / _along(text))))
        text.set_text(textwrap.fill(whole, letters, break_long_words=False))
        if max(map(len, text.get_text().split("\n"))) > letters:
            return  # one word is longer than that


def _along(text: Text) -> float:
    """How long a text is, in pixels, in the direction in which it is read."""
    box = text.get_window_extent()
    return box.height if text.get_rotation() == 90 else box.width


def _thin(axis: XAxis | YAxis, length: float, longest: float) -> None:
    """Leave out ticks whose names would touch, after turning names below a plot upright.

    Args:
        length: of the axis in pixels.
        longest: pixels that a name may take away from the panel.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator

    flat, locator = axis.axis_name == "x", axis.get_major_locator()
    labels = axis.get_ticklabels()
    texts, places = [label.get_text() for label in labels], list(axis.get_majorticklocs())
    hidden = not axis.get_tick_params().get("labelbottom" if flat else "labelleft", True)
    if hidden or not any(texts) or isinstance(locator, LogLocator):  # which leaves room by itself
        return
    widest = max(labels, key=_along)
    line = LINE * axis.axes.figure.dpi
    room = widest.get_window_extent().width + 0.4 * line if flat else line
    if isinstance(locator, MaxNLocator):
        if len(places) * room > length:
            locator.set_params(nbins=max(1, int(length / room) - 1))
        return
    along = axis.get_transform().transform
    low, high = np.asarray(along(axis.get_view_interval())).tolist()
    at = np.asarray(along(places)).tolist()
    gaps = [abs(b - a) for a, b in pairwise(at)]
    gap = min(gaps, default=abs(high - low)) * length / (abs(high - low) or 1.0)
    upright = labels[0].get_rotation() == 90 or (
        flat and room > gap and not all(_is_number(text) for text in texts)
    )
    if upright:
        room = line
    if upright or not flat:
        letter = _along(widest) / max(1, len(widest.get_text()))
        texts = shortened(texts, int(longest / letter))
    every = max(1, math.ceil(room / gap - 0.05))
    axis.set_ticks(places[::every], texts[::every], rotation=90 if upright else 0)


def shortened(names: Sequence[str], most: int) -> list[str]:
    """Names of at most `most` letters each, or about so: begin and end, or what follows the begin
    that all long ones share, so that none becomes another's; as they are where all of that fails.

    >>> shortened(["L0H1", "embedding: frequency 3", "neurons: frequency 3"], 12)
    ['L0H1', 'embed…ency 3', 'neuro…ency 3']
    >>> shortened(["waves of 3 in the keys", "waves of 7 in the keys"], 12)
    ['…3 in the k…', '…7 in the k…']
    """
    most = max(most, 7)
    long = [name for name in names if len(name) > most]
    columns = zip(*long, strict=False)
    same = next((at for at, letters in enumerate(columns) if len(set(letters)) > 1), 0)
    ways: tuple[Callable[[str], str], ...] = (
        lambda name: f"{name[: (most - 1) // 2]}…{name[-(most // 2) :]}",
        lambda name: f"…{name[same : same + most - 2]}…",
        lambda name: f"…{name[1 - most :]}",
    )
    for way in ways:
        cut = [way(name) if len(name) > most else name for name in names]
        if len(set(cut)) == len(set(names)):
            return cut
    return list(names)


def _is_number(text: str) -> bool:
    try:
        float(text.replace("\N{MINUS SIGN}", "-") or 0)
    except ValueError:
        return False
    return True


def _grow(drawing: Drawing, layout: Mapping[str, Any], panels: Sequence[Axes]) -> None:
    """Set the height at which the panels are as high, for their width, as on a page."""
    margin = {**MARGIN, **(layout.get("margin") or {})}
    pixels = float(layout.get("height", 380)) - margin["t"] - margin["b"]
    inches = drawing.get_figwidth() * pixels / (PIXELS_PER_INCH * 7.2)
    least = ONE_OF_MANY
    if len(panels) == 1:
        names = [label.get_text() for label in panels[0].get_yticklabels()]
        rows = 0 if all(map(_is_number, names)) else min(len(names), MOST_NAMES)
        least = max(ALONE, LINE * (1 + 1.12 * rows))  # bars have a margin above and below them
        if panels[0].get_aspect() == 1:
            wide = panels[0].get_position(original=True).width * drawing.get_figwidth()
            least = max(least, min(wide, EQUAL))
    lacking, seen = 0.0, set[int]()
    for axes in panels:
        place = axes.get_subplotspec()
        assert place is not None
        row = place.rowspan.start
        if row not in seen:
            shares = np.asarray(place.get_gridspec().get_height_ratios(), dtype=np.float64)
            wanted = max(least, float(shares[row]) * inches)
            lacking += wanted - axes.get_position(original=True).height * drawing.get_figheight()
        seen.add(row)
    drawing.set_figheight(max(1.0, drawing.get_figheight() + lacking))
