"""What every figure of a probe has to carry: a title, a caption, axis names and a unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mechint.results import Figure


def _titles(spec: Any, inside: bool = False) -> Iterator[str]:
    """Texts of the titles of axes and color bars in a figure's dictionary."""
    if isinstance(spec, Mapping):
        for key, value in spec.items():
            named = (
                key.startswith(("xaxis", "yaxis", "colorbar", "scene"))
                if isinstance(key, str)
                else False
            )
            if inside and key == "title":
                yield value.get("text", "") if isinstance(value, Mapping) else str(value)
            else:
                yield from _titles(value, inside or named)
    elif isinstance(spec, list | tuple):
        for item in spec:
            yield from _titles(item, False)


UNITLESS = ("activation", "coordinate", "singular value")
"""Quantities in the model's own arbitrary units, which need no brackets."""


def check_figure(where: str, figure: Figure) -> None:
    """A figure has a title, a caption, names on its axes, and a unit in brackets on one of them.

    Raises:
        AssertionError: with what is missing.
    """
    layout = figure.spec.get("layout", {})
    title = layout.get("title", {})
    assert title.get("text") if isinstance(title, Mapping) else title, f"{where} has no title"
    assert figure.caption.strip(), f"{where} has no caption"
    for axis in ("xaxis", "yaxis"):
        names = [_text(value) for key, value in layout.items() if key.startswith(axis)]
        assert any(names), f"{where}: no name on its {axis}"
    units = [name for name in _titles(dict(figure.spec)) if "(" in name or name in UNITLESS]
    assert units, f"{where}: no axis or color bar says its unit in brackets"


def _text(axis: Mapping[str, Any]) -> str:
    title = axis.get("title", "")
    return str(title.get("text", "") if isinstance(title, Mapping) else title).strip()
