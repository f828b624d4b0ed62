"""Texts as they stand, where Plotly would read them as markup: "<s>" is a token, and no font.

Matplotlib, CSV and JSON take a figure's texts as they are; what goes to plotly.js from Python goes
through `plain`, and a report's own script does the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHOWN = ("name", "text", "hovertext", "ticktext", "title")
PLACES = ("x", "y", "x0", "x1", "y0", "y1", "tickvals", "categoryarray")
TEXTS = frozenset((*SHOWN, *PLACES))
"""Where texts stand that are shown, names of categories among them. A `hovertemplate` is markup:
its maker escapes names.
"""


def escaped(text: str) -> str:
    """`text` so that Plotly shows it letter by letter.

    >>> escaped("<s>"), escaped("&lt;")
    ('&lt;s>', '&amp;lt;')
    """
    return text.replace("&", "&amp;").replace("<", "&lt;")


def plain(value: Any, shown: bool = False) -> Any:
    """A specification whose texts Plotly shows letter by letter; `shown`: the value is such a text,
    or holds some.

    >>> plain({"name": "<s>", "x": ["<s>", 1], "hovertemplate": "%{x}<br>%{y}"})
    {'name': '&lt;s>', 'x': ['&lt;s>', 1], 'hovertemplate': '%{x}<br>%{y}'}
    """
    if isinstance(value, Mapping):
        return {key: plain(held, key in TEXTS) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [plain(held, shown) for held in value]
    return escaped(value) if shown and isinstance(value, str) else value


def hover(x: str, y: str, z: str, *before: str) -> str:
    """What hovering over a cell shows, by the titles of its axes and of its color, under the lines
    `before`.
    """
    named = [f"{escaped(title)}: %{{{key}}}" for title, key in ((y, "y"), (x, "x"), (z, "z"))]
    return "<br>".join([*map(escaped, before), *named]) + "<extra></extra>"
