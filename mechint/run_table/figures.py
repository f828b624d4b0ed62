"""Columns of a table of models as a figure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from mechint import figures
from mechint.errors import ParameterError
from mechint.results import Figure
from mechint.run_table.numbers import check_column, in_words, is_number


def figure_of(
    rows: Sequence[Mapping[str, Any]], x: str, y: Sequence[str], color: str | None
) -> Figure:
    """`y` over `x`: the mean of the rows that share `x` and `color`, and their range as a band.

    Raises:
        UnknownNameError: no such column. ParameterError: it holds no numbers.
    """
    for name in (x, *y, *([color] if color else [])):
        check_column(rows, name)
    curves: dict[str, dict[float, list[float]]] = {}
    for column in y:
        for row in rows:
            if not is_number(row.get(x)) or not is_number(row.get(column)):
                continue
            parts = [column] if len(y) > 1 or not color else []
            parts += [f"{color} = {row.get(color)}"] if color else []
            curve = curves.setdefault(", ".join(parts), defaultdict(list))
            curve[row[x]].append(float(row[column]))
    if x == "seed" and len(y) == 1 and not color:
        return _strip(rows, y[0])
    if not curves:
        raise ParameterError(f"figure: columns {x} and {', '.join(y)} share no row with numbers")
    places = {name: sorted(curve) for name, curve in curves.items()}
    bands = {
        name: ([min(curve[at]) for at in places[name]], [max(curve[at]) for at in places[name]])
        for name, curve in curves.items()
        if any(len(values) > 1 for values in curve.values())
    }
    means = {
        name: [sum(curve[at]) / len(curve[at]) for at in places[name]]
        for name, curve in curves.items()
    }
    text = "Mean over the models that share a point; the band spans the smallest and largest one."
    return figures.lines(
        places,
        means,
        title=f"{' and '.join(map(in_words, y))} over {x}",
        x_title=x,
        y_title=in_words(y[0]) if len(y) == 1 else "value",
        caption=text if bands else "One point per model.",
        bands=bands,
        markers=True,
    )


def _strip(rows: Sequence[Mapping[str, Any]], column: str) -> Figure:
    """A number of models that differ in their seed alone: points, and their mean."""
    held = [row for row in rows if is_number(row.get(column)) and is_number(row.get("seed"))]
    if not held:
        raise ParameterError(f"figure: columns seed and {column} share no row with numbers")
    values = [float(row[column]) for row in held]
    return figures.scatter(
        [str(row["seed"]) for row in held],
        values,
        title=f"{in_words(column)}, by seed",
        x_title="seed",
        y_title=in_words(column),
        text=[str(row.get("name", row["seed"])) for row in held],
        caption=f"One point per model; their mean is {statistics.fmean(values):.4g}, their "
        f"standard deviation {statistics.stdev(values) if len(values) > 1 else 0.0:.2g}.",
        height=300,
    )


def by_model(rows: Sequence[Mapping[str, Any]], column: str) -> Figure:
    """A number of models that no one setting orders: a bar per model."""
    held = [row for row in rows if is_number(row.get(column))]
    return figures.bars(
        [str(row.get("name")) for row in held],
        {in_words(column): [float(row[column]) for row in held]},
        title=in_words(column),
        x_title="model",
        y_title=in_words(column),
        caption="One bar per model; they differ in their task.",
    )
