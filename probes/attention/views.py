"""The attention probe's table and figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray

from mechint import figures
from mechint.results import Figure, Table
from mechint.subject import Subject
from probes import answers
from probes.attention.patterns import Patterns
from probes.fourier.spectra import Array
from probes.positions import position_names, token_texts

PANELS, PIXELS = 8, 128
"""At most so many panels in a figure, and so many rows and columns of the input grid in one."""
EXAMPLES, HEADS, LONGEST, STEPS = 8, 48, 64, 6
"""Examples, heads, tokens and checkpoints of the attention view."""


def heads_table(patterns: Patterns, metrics: Mapping[str, Any]) -> Table:
    """A row per head with every score that was measured."""
    columns: dict[str, list[Any]] = {"head": patterns.names}
    for kind in (
        "previous_token.score",
        "same_token.score",
        "same_token.by_content",
        "induction.score",
        "induction.by_content",
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
    subject: Subject,
    patterns: Patterns,
    operands: list[int],
    example: int,
    rows: Int[np.ndarray, " row"],
) -> dict[str, Figure]:
    """The attention view over the examples `rows`, and on a grid of two operands, whose inputs are
    all there in order, which of them the answer's position prefers.
    """
    shown = {"patterns": _view(subject, patterns, example, rows)}
    if len(operands) == 2 and subject.on_grid:
        shown["operands"] = _grid(subject, patterns)
    return shown


def _view(subject: Subject, patterns: Patterns, example: int, rows: NDArray[np.int64]) -> Figure:
    order = [example, *(i for i in range(len(rows)) if i != example)][:EXAMPLES]
    heads = patterns.names[:HEADS]
    texts: dict[str, list[str]] = {}
    chosen: dict[str, int | None] = {}
    if (patterns.lengths == patterns.lengths[0]).all():
        name = f"mean of {len(rows)} examples"
        texts[name], chosen[name] = position_names(subject)[: patterns.lengths[0]][:LONGEST], None
    for place in order:
        length = min(int(patterns.lengths[place]), LONGEST)
        text = token_texts(subject, patterns.tokens[place, :length].tolist())
        name = " ".join(text[:12]) + (" …" if length > 12 else "")
        name = name if name not in texts else f"{name} (example {rows[place]})"
        texts[name], chosen[name] = text, place
    moments = _moments(subject, rows, len(heads))
    return figures.attention(
        heads,
        texts,
        _patterns(patterns.sample[:, : len(heads)], texts, chosen),
        title="Attention of every head",
        caption=(
            "Where each position looks. Hover over a token, or a row, to see its attention; press "
            "to lock it. “minus” shows the difference from another example"
            + (", or from an earlier checkpoint." if moments else ".")
        ),
        steps={step: _patterns(sample, texts, chosen) for step, sample in moments.items()},
    )


def _patterns(
    sample: Array, texts: Mapping[str, list[str]], chosen: Mapping[str, int | None]
) -> dict[str, Array]:
    """Attention (head, query, key) by example, cut to its tokens; the mean for None."""
    whole = {name: sample.mean(0) if i is None else sample[i] for name, i in chosen.items()}
    return {name: w[:, : len(texts[name]), : len(texts[name])] for name, w in whole.items()}


def _moments(subject: Subject, rows: NDArray[np.int64], heads: int) -> dict[int, Array]:
    """Step → attention (example, head, query, key) at earlier checkpoints of the run."""
    data = subject.data[torch.from_numpy(rows).to(subject.data.tokens.device)]
    last = max(subject.series, default=0)
    found = {}
    for step, now in answers.checkpoints(subject, STEPS):
        if step == last:
            continue
        layers = [
            now.activation(f"blocks.{layer}.attn.hook_pattern", None, data).float()
            for layer in range(subject.n_layers)
        ]
        found[step] = torch.cat(layers, 1)[:, :heads].cpu().numpy()
    return found


def _grid(subject: Subject, patterns: Patterns) -> Figure:
    """Over the input grid, by how much the answer's position prefers the first operand."""
    rows, columns = subject.task.grid  # type: ignore[union-attr]
    step = (slice(None, None, -(-rows // PIXELS)), slice(None, None, -(-columns // PIXELS)))
    each = patterns.to_operand.astype(np.float64)  # (head, example, operand)
    values = (each[..., 0] - each[..., 1]) / np.maximum(each.sum(-1), 1e-12)
    heads = patterns.names[:PANELS]
    skipped = f" Every {step[0].step}th row is drawn." if step[0].step > 1 else ""
    return figures.image_grid(
        {name: values[i].reshape(rows, columns)[step] for i, name in enumerate(heads)},
        title="Which operand the answer's position looks at, for every input",
        x_title="second operand",
        y_title="first operand",
        z_title="preference (−1 second operand, 1 first)",
        caption=(
            "Each panel is a head, each pixel an input. One color everywhere means that the head "
            f"looks at that operand whatever the input.{skipped}"
        ),
        limits=(-1, 1),
        diverging=True,
        columns=2,
    )
