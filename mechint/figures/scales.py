"""Scales of colors: where they end, and how Matplotlib draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mechint.figures.theme import color

if TYPE_CHECKING:
    from matplotlib.colors import Colormap


def ends(
    held: Mapping[str, Any], low: str, high: str, values: Sequence[Any] = ()
) -> tuple[float | None, float | None]:
    """The least and the largest value of a scale: those it `held` under the names `low` and `high`,
    else those of the `values`, as far below its "cmid" as above where it has one.

    >>> ends({"cmid": 0}, "cmin", "cmax", [-3, None, 1]), ends({}, "zmin", "zmax")
    ((-3, 3), (None, None))
    """
    known = [value for value in values if isinstance(value, int | float)]
    found = [held.get(low), held.get(high)]
    if known and None in found:
        middle = held.get("cmid")
        found = [min(known), max(known)]
        if isinstance(middle, int | float):
            reach = max(found[1] - middle, middle - found[0])
            found = [middle - reach, middle + reach]
    first, last = (end if isinstance(end, int | float) else None for end in found)
    return first, last


def colormap(scale: Any) -> Colormap:
    """Plotly's stops (place 0–1, color) as Matplotlib's; Viridis for a name."""
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap

    if isinstance(scale, str) or scale is None:
        return colormaps["viridis"]
    stops = [(float(at), color(shade)) for at, shade in scale]
    return LinearSegmentedColormap.from_list("scale", stops)


def title_of(held: Mapping[str, Any]) -> str:
    """What the bar beside a scale names: the quantity, with its unit."""
    title = (held.get("colorbar") or {}).get("title") or {}
    return str(title.get("text", "") if isinstance(title, Mapping) else title)
