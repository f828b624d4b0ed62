"""The table and the figures of the capacity study's language models."""

from __future__ import annotations

from typing import Any

import numpy as np

from mechint import figures
from mechint.errors import TrainingError
from mechint.results import Figure, Table
from mechint.studies.capacity.claims_language import SEEDS
from mechint.studies.capacity.language_measures import Measures
from mechint.studies.core.study import Analysis, mean_and_spread


def draw(analysis: Analysis, study: Measures) -> None:
    """Add the figures and the table of the language models."""
    analysis.add_figure("Injected task", lambda: accuracy(study))
    analysis.add_figure("Gradient interference", lambda: interference(study))
    analysis.add_table("Language models", lambda: conditions(study))


def conditions(study: Measures) -> Table:
    """Every condition: accuracy, cosines over their random level, loss."""
    rows = []
    for frequency in study.axis("frequency"):
        for gap in study.axis("gap"):
            for width in study.axis("width"):
                names = study.names(frequency=frequency, gap=gap, width=width)
                if names:
                    cosines = [found for name in names if (found := study.cosines(name))]
                    rows.append(
                        (
                            frequency,
                            gap,
                            width,
                            mean_and_spread([study.accuracy(name) for name in names]),
                            *(
                                mean_and_spread([one[part] for one in cosines])
                                if cosines
                                else "learned before"
                                for part in ("background", "task")
                            ),
                            mean_and_spread(
                                [float(study.runs[name].final["test.loss"]) for name in names], 3
                            ),
                        )
                    )
    columns = (
        "frequency",
        "gap",
        "width",
        "accuracy",
        "cosine over random, background",
        "cosine over random, task",
        "loss",
    )
    caption = (
        "Every condition: held-out accuracy on the injected task, size of a batch's cosine with "
        f"the task's reference gradient over that of a random direction, loss. {SEEDS}"
    )
    table = {name: [row[i] for row in rows] for i, name in enumerate(columns)}
    return Table(table, caption, {"loss": "nats per token"})


def accuracy(study: Measures) -> Figure:
    """Accuracy on held-out instances over training, at each frequency's largest gap."""
    x, y = {}, {}
    for frequency in study.axis("frequency"):
        gap = max(study.axis("gap", frequency=frequency))
        for width in study.axis("width"):
            names = study.names(frequency=frequency, gap=gap, width=width)
            group = [study.runs[name] for name in names]
            if group:
                name = f"width {width}, frequency {frequency:g}"
                x[name] = [row["step"] for row in group[0].metrics]
                found = [[row["test.greedy.accuracy.task"] for row in run.metrics] for run in group]
                y[name] = np.mean(found, axis=0)
    caption = (
        "Accuracy on held-out instances of the injected comparison over training, at each "
        "frequency's largest gap, mean over seeds."
    )
    style: dict[str, Any] = {
        "x_title": "step",
        "y_title": "held-out accuracy (0–1)",
        "levels": {"chance": 0.5},
    }
    return figures.lines(x, y, title="Injected task", caption=caption, **style)


def interference(study: Measures) -> Figure:
    """Size of the cosines over their random level, width by width."""
    found = {
        width: [one for name in study.names(width=width) if (one := study.cosines(name))]
        for width in study.axis("width")
    }
    widths = [width for width, each in found.items() if each]
    if not widths:
        raise TrainingError("no model has a checkpoint before it learned the task")
    series = {
        f"{part} tokens": [float(np.mean([one[part] for one in found[width]])) for width in widths]
        for part in ("task", "background")
    }
    caption = (
        "Mean size of a batch's cosine with the task's reference gradient over that of a random "
        "direction, task neurons alone, before the task is learned: 1 is no interference."
    )
    return figures.bars(
        [str(width) for width in widths],
        series,
        title="Gradient interference",
        x_title="width",
        y_title="cosine over its random level",
        caption=caption,
    )
