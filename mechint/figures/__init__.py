"""Figure builders that probes and studies share: numbers in, a `Figure` (Plotly dictionary and
caption) out.

    from mechint import figures
    figures.bars(
        frequencies, {"share": share}, title="Embedding", highlight=[16, 30, 56],
        x_title="frequency (cycles per p)", y_title="share of energy (0–1)",
        caption="Three frequencies hold it.",
    )

`lines`, `bars`, `scatter`, `histogram`, `fits` show numbers against numbers; `heatmap`,
`image_grid`, `attention` show matrices; `stacked` puts panels on one axis, `stepped` goes
through steps. Every builder takes tensors, arrays or lists, wants a title, a caption that says what
to see, and axis titles with units in brackets. Equal input gives equal JSON.
"""

from mechint.figures.attention import attention
from mechint.figures.curves import bars, lines
from mechint.figures.figure import Figure, figure
from mechint.figures.fits import fits
from mechint.figures.images import heatmap, image_grid
from mechint.figures.points import histogram, scatter
from mechint.figures.stacked import Panel, stacked
from mechint.figures.steps import stepped, with_cursor
from mechint.figures.theme import COLORS
from mechint.figures.training import training_curve

__all__ = [
    "COLORS",
    "Figure",
    "Panel",
    "attention",
    "bars",
    "figure",
    "fits",
    "heatmap",
    "histogram",
    "image_grid",
    "lines",
    "scatter",
    "stacked",
    "stepped",
    "training_curve",
    "with_cursor",
]
