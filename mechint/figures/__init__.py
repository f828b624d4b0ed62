"""Figures: numbers in, a `Figure` out, which draws and saves itself.

    from mechint import figures
    figures.bars(
        frequencies, {"share": share}, title="Embedding", highlight=[16, 30, 56],
        x_title="frequency (cycles per p)", y_title="share of energy (0–1)",
        caption="Three frequencies hold it.",
    ).save("embedding.pdf")

`lines`, `bars`, `scatter`, `histogram` show numbers against numbers; `between` one number among
others; `heatmap`, `attention` show matrices; `graph` a flow; `stacked` has panels on
one axis, `beside` puts figures side by side, `stepped` a slider over steps. Builders take tensors,
arrays or lists, and want a title, a caption, and axis titles with units in brackets. A caption can
be given per verdict of the finding that it belongs to.
"""

from mechint.figures._attention import Chosen, attention
from mechint.figures.build import (
    Panel,
    bars,
    beside,
    between,
    graph,
    heatmap,
    histogram,
    lines,
    scatter,
    stacked,
    training_curve,
)
from mechint.figures.figure import Figure
from mechint.figures.parts import Axis, Layer, Line, Plot, Scale
from mechint.figures.steps import stepped, with_cursor
from mechint.figures.theme import COLORS

__all__ = [
    "COLORS",
    "Axis",
    "Chosen",
    "Figure",
    "Layer",
    "Line",
    "Panel",
    "Plot",
    "Scale",
    "attention",
    "bars",
    "beside",
    "between",
    "graph",
    "heatmap",
    "histogram",
    "lines",
    "scatter",
    "stacked",
    "stepped",
    "training_curve",
    "with_cursor",
]
