"""The attention view: choose an example, a head and a query; compare examples and checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechint.figures.build import image_grid
from mechint.figures.figure import Figure
from mechint.figures.steps import MAX_WEIGHTS
from mechint.figures.theme import numbers

PANELS = 12
"""Heads in the static drawing."""


def attention(
    heads: Sequence[str],
    examples: Mapping[str, Sequence[str]],
    patterns: Mapping[str, Any],
    *,
    title: str,
    caption: str,
) -> Figure:
    """Attention of all heads over some examples, as a view in a page or a notebook.

    Args:
        heads: names, "L0H1".
        examples: name of the example → text of each of its tokens.
        patterns: name of the example → attention (head, query, key), 0–1.

    Returns:
        A figure with a view beside the static drawing of its first example. Examples that are too
        many for a page, and heads that are too many for the drawing, are left out; the caption
        says so. Patterns that are the same in every example and query are stated in a sentence.

    >>> shown = attention(["L0H0"], {"a": ["1", "="]}, {"a": [[[1, 0], [0.5, 0.5]]]},
    ...     title="Attention", caption="Where it looks.")
    >>> shown.view["frames"]
    [[[[1.0, 0.0, 0.5, 0.5]]]]
    """
    assert heads and examples, "no head or no example"
    every = [np.asarray(patterns[name], dtype=np.float64) for name in examples]
    if all(np.ptp(one) == 0 for one in every) and every[0].shape[-1] > 1:
        value = float(every[0].flat[0])
        return Figure("sentence", title, f"{title}: {value:.3g} from every token to every token.")
    cost, kept = 0, []
    for name, tokens in examples.items():
        cost += len(heads) * len(tokens) ** 2
        if kept and cost > MAX_WEIGHTS:
            break
        kept.append(name)
    view = {
        "kind": "attention",
        "heads": list(heads),
        "examples": [{"name": name, "tokens": [*map(str, examples[name])]} for name in kept],
        "frames": [[_heads(patterns[name]) for name in kept]],
        "steps": [],
    }
    if len(kept) < len(examples):
        caption += f" The first {len(kept)} of {len(examples)} examples can be chosen."
    if len(heads) > PANELS:
        caption += f" Its static drawing has the first {PANELS} heads."
    first = kept[0]
    drawn = image_grid(
        {name: _unmasked(patterns[first][i]) for i, name in enumerate(heads[:PANELS])},
        title=title,
        x_title="key (token)",
        y_title="query (token)",
        z_title="attention (0–1)",
        caption=caption,
        limits=(0, 1),
        labels=[str(token) for token in examples[first]],
    )
    return dataclasses.replace(drawn, kind="attention", view=view)


def _heads(pattern: Any) -> list[list[float]]:
    """Every head's weights in one row, to three digits."""
    values = np.asarray(pattern, dtype=np.float64).round(3) + 0.0
    return [head.ravel().tolist() for head in values]


def _unmasked(pattern: Any) -> Any:
    """The matrix without what a causal model cannot attend to."""
    matrix = np.array(pattern, dtype=np.float64)
    if not np.triu(matrix, 1).any():
        matrix[np.triu_indices(len(matrix), 1)] = np.nan
    return numbers(matrix, 4)
