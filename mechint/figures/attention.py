"""The attention view: choose an example, a head and a query; compare examples and checkpoints.

The figure holds what the view needs beside an ordinary drawing of its first example, so that it
saves and prints like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechint.figures.figure import Figure
from mechint.figures.images import image_grid
from mechint.figures.theme import numbers

MOST_WEIGHTS = 120_000
"""Weights that one view holds; examples are left out beyond it."""
PANELS = 12
"""Heads in the drawing."""


def attention(
    heads: Sequence[str],
    examples: Mapping[str, Sequence[str]],
    patterns: Mapping[str, Any],
    *,
    title: str,
    caption: str,
    steps: Mapping[int, Mapping[str, Any]] | None = None,
) -> Figure:
    """Attention of all heads over some examples, as a view in a page or a notebook.

    Args:
        heads: names, "L0H1".
        examples: name of the example → text of each of its tokens.
        patterns: name of the example → attention (head, query, key), 0–1.
        steps: step of an earlier checkpoint → its patterns; a slider goes through them, `patterns`
            last.

    Returns:
        A figure whose specification has a "view" beside the drawing. Examples that are too many
        for one page are left out, and heads that are too many for a drawing are left out of that;
        the caption says so.

    >>> shown = attention(["L0H0"], {"a": ["1", "="]}, {"a": [[[1, 0], [0.5, 0.5]]]},
    ...     title="Attention", caption="Where it looks.")
    >>> shown.spec["view"]["frames"]
    [[[[1.0, 0.0, 0.5, 0.5]]]]
    """
    assert heads and examples, "no head or no example"
    moments = {**(steps or {}), -1: patterns}
    cost, kept = 0, []
    for name, tokens in examples.items():
        cost += len(moments) * len(heads) * len(tokens) ** 2
        if kept and cost > MOST_WEIGHTS:
            break
        kept.append(name)
    frames = [[_heads(moment[name]) for name in kept] for moment in moments.values()]
    view = {
        "kind": "attention",
        "heads": list(heads),
        "examples": [{"name": name, "tokens": [*map(str, examples[name])]} for name in kept],
        "frames": frames,
        "steps": [*(str(step) for step in steps or {}), "this checkpoint"] if steps else [],
    }
    if len(kept) < len(examples):
        caption += f" There is room for the first {len(kept)} of {len(examples)} examples."
    if len(heads) > PANELS:
        caption += f" Saved as a drawing, it shows the first {PANELS} heads."
    first = kept[0]
    drawn = image_grid(
        {name: _hidden(patterns[first][i]) for i, name in enumerate(heads[:PANELS])},
        title=f"{title}: {first}",
        x_title="key (token)",
        y_title="query (token)",
        z_title="attention (0–1)",
        caption=caption,
        limits=(0, 1),
        labels=[str(token) for token in examples[first]],
    )
    layout = {**drawn.spec["layout"], "title": {**drawn.spec["layout"]["title"], "text": title}}
    return Figure({**drawn.spec, "layout": layout, "view": view}, caption)


def _heads(pattern: Any) -> list[list[float]]:
    """Every head's weights in one row, to three digits."""
    values = np.asarray(pattern, dtype=np.float64).round(3) + 0.0
    return [head.ravel().tolist() for head in values]


def _hidden(pattern: Any) -> Any:
    """The matrix without what a causal model cannot look at."""
    matrix = np.array(pattern, dtype=np.float64)
    if not np.triu(matrix, 1).any():
        matrix[np.triu_indices(len(matrix), 1)] = np.nan
    return numbers(matrix, 4)
