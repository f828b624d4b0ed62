"""Checks that every figure of a probe has a title, a caption, axis names and a unit."""

from __future__ import annotations

from mechint.results import Figure

UNITLESS = ("activation", "coordinate", "singular value")
"""Quantities in the model's own arbitrary units, which need no brackets."""


def check_figure(where: str, figure: Figure) -> None:
    """A figure has a title, a caption, names on its axes, and a unit in brackets on one of them.

    Raises:
        AssertionError: with what is missing.
    """
    assert figure.title.strip(), f"{where} has no title"
    assert figure.caption.strip(), f"{where} has no caption"
    plots = [plot for plot in figure.plots if not plot.bare]
    for axis in ("x", "y"):
        named = all(getattr(plot, axis).title.strip() for plot in plots)
        assert named, f"{where}: no name on its {axis} axis"
    scales = [layer.scale.title for plot in plots for layer in plot.layers if layer.scale]
    titles = [*scales, *(axis.title for plot in plots for axis in (plot.x, plot.y))]
    united = not plots or any("(" in name or name in UNITLESS for name in titles)
    assert united, f"{where}: no axis or color bar says its unit in brackets"
