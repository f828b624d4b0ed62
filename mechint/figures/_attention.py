"""The attention view: choose an example, a head and a query; compare examples and checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechint.figures.build import heatmap
from mechint.figures.figure import Figure
from mechint.figures.parts import Axis, Layer, Plot
from mechint.figures.steps import MAX_WEIGHTS
from mechint.figures.theme import COLORS, MUTED, numbers

FAINT = 0.03
"""Attention below which no arc is drawn."""


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The opening state of a view, on its first example: a head, and the token that looks.

    keys: (query, key) pairs that the head is said to attend to; stripe: drawn as the head's matrix
    with dots at `keys`, where arcs are drawn otherwise, from the query to what it attends to.
    """

    head: str
    query: int
    keys: Sequence[tuple[int, int]] = ()
    stripe: bool = False


def attention(
    heads: Sequence[str],
    examples: Mapping[str, Sequence[str]],
    patterns: Mapping[str, Any],
    *,
    title: str,
    caption: str,
    chosen: Chosen,
) -> Figure:
    """Attention of all heads over some examples, as a view in a page or a notebook.

    Args:
        heads: names, "L0H1".
        examples: name of the example → text of each of its tokens.
        patterns: name of the example → attention (head, query, key), 0–1.
        chosen: the head and the query that are shown first.

    Returns:
        A figure with a view beside the static drawing of its first example. Examples that are too
        many for a page are left out; the caption says so. Patterns that are the same in every
        example and query are stated in a sentence.

    >>> shown = attention(["L0H0"], {"a": ["1", "="]}, {"a": [[[1, 0], [0.5, 0.5]]]},
    ...     title="Attention", caption="Where it looks.", chosen=Chosen("L0H0", 1))
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
    first = kept[0]
    place = list(heads).index(chosen.head)
    view["start"] = {"head": place, "query": chosen.query, "arcs": not chosen.stripe}
    view["marked"] = [list(pair) for pair in chosen.keys]
    weights, tokens = np.asarray(patterns[first][place]), [*map(str, examples[first])]
    drawn = (_stripe if chosen.stripe else _arcs)(weights, tokens, chosen, title, caption)
    return dataclasses.replace(drawn, kind="attention", view=view)


def _stripe(
    weights: np.ndarray, tokens: Sequence[str], chosen: Chosen, title: str, caption: str
) -> Figure:
    """The matrix of the chosen head, with a dot at every key that it is said to attend to."""
    drawn = heatmap(
        _unmasked(weights),
        title=title,
        x_title="key (token)",
        y_title="query (token)",
        z_title="attention (0–1)",
        caption=caption,
        x=tokens,
        y=tokens,
        limits=(0, 1),
        annotate=False,
        square=True,
    )
    (plot,) = drawn.plots
    queries, keys = ([pair[end] for pair in chosen.keys] for end in (0, 1))
    dots = Layer("points", keys, queries, "", COLORS[1])
    marked = dataclasses.replace(plot, layers=[*plot.layers, dots])
    return dataclasses.replace(drawn, plots=[marked])


def _arcs(
    weights: np.ndarray, tokens: Sequence[str], chosen: Chosen, title: str, caption: str
) -> Figure:
    """Arcs from the chosen query to the keys that its head attends to, with the attention."""
    query, row = chosen.query, weights[chosen.query]
    named = {key for at, key in chosen.keys if at == query} or {int(row.argmax())}
    longest = max(1, max((abs(key - query) for key in range(len(row))), default=1))
    layers: list[Layer] = []
    turn = np.linspace(0, np.pi, 33)
    for key, value in enumerate(row.tolist()):
        if value < FAINT or key == query:
            continue
        x = (key + query) / 2 + (query - key) / 2 * np.cos(turn)
        y = 0.75 * abs(key - query) / longest * np.sin(turn)
        color = COLORS[1] if key in named else MUTED
        layers.append(Layer("curve", numbers(x), numbers(y), "", color, width=1 + 5 * value))
    shown = [key for key, value in enumerate(row.tolist()) if value >= FAINT]
    tops = [0.75 * abs(key - query) / longest for key in shown]
    middle = [(key + query) / 2 for key in shown]
    texts = [f"{row[key]:.2f}" + (" on itself" if key == query else "") for key in shown]
    colors = [COLORS[1] if key in named else MUTED for key in shown]
    layers.append(Layer("points", middle, tops, "", colors, text=texts, labels=True))
    names = [f"[{token}]" if at == query else token for at, token in enumerate(tokens)]
    x = Axis("token (in brackets: the one that looks)", names=names)
    panel = Plot(x, Axis("", names=[], span=(-0.05, 1)), layers)
    return Figure("attention", title, caption, [panel], size=250)


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
