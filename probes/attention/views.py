"""The attention probe's table and figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mechint import figures
from mechint.results import Figure, Table
from mechint.subject import Subject
from probes.attention.patterns import Patterns

PANELS, PIXELS = 12, 57
"""At most so many panels in a figure, and so many rows and columns of the input grid in one."""


def heads_table(patterns: Patterns, metrics: Mapping[str, Any]) -> Table:
    columns: dict[str, list[Any]] = {"head": patterns.names}
    for kind in (
        "previous_token.score",
        "same_token.score",
        "induction.score",
        "operand.preference",
        "target.mass",
        "target.argmax",
    ):
        if kind in metrics:
            columns[kind] = [metrics[kind][name] for name in patterns.names]
    for i, position in enumerate(metrics.get("operand.positions", [])):
        columns[f"to position {position}"] = [
            metrics["operand.attention"][name][i] for name in patterns.names
        ]
    return Table(
        columns,
        "one row per head; attention 0–1, preference −1 (second operand) … 1 (first)",
        {"previous_token.score": "mean attention"},
    )


def pattern_figures(
    subject: Subject, patterns: Patterns, operands: list[int], example: int
) -> dict[str, Figure]:
    some = patterns.names[:PANELS]
    shown = {
        "patterns": figures.image_grid(
            {name: patterns.mean[i] for i, name in enumerate(some)},
            title="Mean attention of every head",
            x_title="key position",
            y_title="query position",
            z_title="attention (0–1)",
            caption=(
                "A row is where a position looks on average; a diagonal below the main one is a "
                "previous-token head."
            ),
            limits=(0, 1),
        )
    }
    if len(operands) == 2:
        shown["operands"] = grid_figure(subject, patterns, operands)
    elif not operands:
        length = int(patterns.lengths[example])
        vocabulary = subject.task.vocabulary.tokens if subject.task else None
        text = [
            vocabulary[token] if vocabulary else str(token)
            for token in patterns.tokens[example, :length]
        ]
        last = patterns.names[-4:] if len(patterns.names) >= 4 else patterns.names
        shown["arcs"] = figures.arcs(
            text,
            {
                name: patterns.sample[example, patterns.names.index(name), :length, :length]
                for name in last
            },
            title=f"Attention over example {example}",
            caption=(
                "An arc joins a token to each token it draws from; the stronger, the darker. The "
                "last heads of the model."
            ),
            threshold=0.15,
        )
    return shown


def grid_figure(subject: Subject, patterns: Patterns, operands: list[int]) -> Figure:
    rows, columns = subject.task.grid  # type: ignore[union-attr]
    step = (slice(None, None, -(-rows // PIXELS)), slice(None, None, -(-columns // PIXELS)))
    panels = {}
    for i, name in enumerate(patterns.names[: PANELS // 2]):
        for column, position in enumerate(operands):
            panels[f"{name} to position {position}"] = patterns.to_operand[i, :, column].reshape(
                rows, columns
            )[step]
    return figures.image_grid(
        panels,
        title="Attention from the answer's position to the operands, for every input",
        x_title="second operand",
        y_title="first operand",
        z_title="attention (0–1)",
        caption=(
            "Each panel is a head and an operand, each pixel an input: dark everywhere means that "
            "the head looks there whatever the input."
        ),
        limits=(0, 1),
        columns=2,
    )
