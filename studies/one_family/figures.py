"""The figure of the study of clock and pizza."""

from __future__ import annotations

from mechint import figures
from mechint.probe.results import Figure
from mechint.studies.one_family.claims import KEPT, solved
from mechint.studies.rows import Rows


def draw(rows: Rows) -> dict[str, Figure]:
    """Draw what the sum keeps, alone and with the rest of another pair, a point a model."""
    kept = Rows([row for row in rows if solved(row)])
    title = "Clock and pizza: what a sum of one function of both operands keeps"
    if not kept:
        return {}
    return {
        title: figures.scatter(
            kept.column("sum"),
            kept.column("rest"),
            groups=kept.column("arm"),
            title=title,
            x_title="accuracy kept by the sum alone (0–1)",
            y_title="accuracy kept with the rest of another pair (0–1)",
            caption="What the MLP reads at the answer is replaced by its best fit g(x) + g(y), "
            f"{len(kept)} models at 95% held out. To the right of {KEPT:g} the sum is enough; "
            f"above {KEPT:g} nothing but the sum is used.",
            equal=True,
        )
    }
