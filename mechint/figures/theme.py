"""Colors and sizes that all figures share, and numbers short enough to ship."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from mechint.system.jsonable import is_number

# Okabe & Ito (2008), in an order whose first three also differ in lightness
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#7F7F7F")
_VIRIDIS = "440154 482878 3E4A89 31688E 26828E 1F9E89 35B779 6CCE59 B4DE2C FDE725"
VIRIDIS = tuple(f"#{color}" for color in _VIRIDIS.split())
SCALES: dict[str, tuple[str, ...]] = {
    "sequential": VIRIDIS,
    "diverging": ("#2166AC", "#92C5DE", "#F7F7F7", "#F4A582", "#B2182B"),
    "cyclic": ("#D55E00", "#E6C04B", "#4FA36B", "#2C7FB8", "#8C4FA3", "#D55E00"),
}
"""Kind of a color scale → equally spaced colors."""

INK, QUIET, GRID, MUTED = "#1b1f24", "#626b76", "#e4e7e9", "#8aa0b3"
"""Text, axes, grid lines, and marks that are not emphasized; a page replaces the first three."""
NULL = "#9aa3ad"
"""Color of everything drawn of a null."""
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
MAX_LABEL = 40
"""Characters of a name beside an axis."""
MAX_TICKS = 24
"""Names beside one axis; of more, every second, third … is written."""


def numbers(values: Any, digits: int = 5) -> Any:
    """Nested lists of `values` (tensor, array or sequence) with floats of `digits` significant
    digits; what is not finite is None.

    >>> numbers([1, 0.123456789, float("nan")])
    [1, 0.12346, None]
    """
    if isinstance(values, float):
        return float(f"{values:.{digits}g}") if math.isfinite(values) else None
    if hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, list | tuple | range):
        return [numbers(value, digits) for value in values]
    return values


def finite(values: Any) -> list[float]:
    """The finite numbers in nested lists, in order.

    >>> finite([[1, None], [2.5, "a"]])
    [1, 2.5]
    """
    if isinstance(values, list | tuple):
        return [number for value in values for number in finite(value)]
    return [values] if is_number(values) else []


def palette(n: int) -> list[str]:
    """`n` line colors: the palette while it lasts, then an ordered ramp.

    >>> palette(2), palette(9)[0]
    (['#0072B2', '#D55E00'], '#3e4a89')
    """
    if n <= len(COLORS):
        return list(COLORS[:n])
    return [ramp(VIRIDIS[2:-1], i / (n - 1)) for i in range(n)]


def ramp(stops: Sequence[str], share: float) -> str:
    """The color at `share` (0 to 1) of a scale of equally spaced `stops` ("#RRGGBB").

    >>> ramp(["#000000", "#ff0000"], 0.2)
    '#330000'
    """
    place = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    ends = [[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops[low : low + 2]]
    return "#" + "".join(
        f"{round(a + (b - a) * (place - low)):02x}" for a, b in zip(*ends, strict=True)
    )


def with_alpha(color: str, alpha: float) -> str:
    """`color` ("#RRGGBB") at opacity `alpha`, as CSS has it."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def wrap_title(title: str, up: bool, between: str = "\n") -> str:
    """The title of an axis in lines short enough for it; `up`: it stands beside a vertical axis.

    >>> wrap_title("share of the energy of all the embeddings (0–1)", up=True).count("\\n")
    1
    >>> wrap_title("cosine with the characters (−1 … 1)", up=True).split("\\n")[1]
    '(−1\\xa0…\\xa01)'
    """
    kept = title.replace(" … ", "\u00a0…\u00a0")  # a range is not broken
    return between.join(textwrap.wrap(kept, 26 if up else 42))


def shorten_label(name: str, most: int = MAX_LABEL) -> str:
    """A name of at most `most` characters: its start and its end.

    >>> shorten_label("L0H1"), len(shorten_label("blocks.0.attn.hook_result of the last one"))
    ('L0H1', 40)
    """
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-(most // 2) :]}"
