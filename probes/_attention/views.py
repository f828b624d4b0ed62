"""The attention probe's table and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from mechint import figures
from mechint.results import Figure, Table
from mechint.subject import Subject
from probes._attention.scores import AttentionPatterns
from probes.positions import position_names, token_texts

PANELS, PIXELS = 8, 128
"""At most so many panels in a figure, and so many rows and columns of the input grid in one."""
EXAMPLES, HEADS, LONGEST = 8, 48, 64
"""Examples, heads and tokens of the attention view, at most."""
PREFERENCE = "operand.preference"
RANKED = ("previous_token.score", "same_token.score", "induction.score", PREFERENCE)
"""Scores by which heads are chosen where there are too many to show."""


def heads_table(patterns: AttentionPatterns, metrics: Mapping[str, Any]) -> Table:
    """A row per head with every score that was measured."""
    columns: dict[str, list[Any]] = {"head": patterns.names}
    for kind in (*RANKED, "same_token.by_content", "induction.by_content"):
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
    patterns: AttentionPatterns,
    operands: list[int],
    example: int,
    rows: Int[np.ndarray, " row"],
    metrics: Mapping[str, Any],
) -> dict[str, Figure]:
    """The attention view over the examples `rows`, of the heads that score highest in `metrics`
    where there are many, and on a grid of two operands, whose inputs are all there in order, which
    of them the answer's position prefers.
    """
    heads = chosen_heads(patterns.names, metrics)
    shown = {"patterns": _view(subject, patterns, example, rows, heads)}
    if len(operands) == 2 and subject.on_grid:
        shown["operands"] = _grid(subject, patterns, metrics)
    return shown


def chosen_heads(names: Sequence[str], metrics: Mapping[str, Any], most: int = HEADS) -> list[int]:
    """Places in `names` of the heads that are shown, in order: all, or the `most` that score
    highest, taken by turns from the best of each kind.

    >>> scores = {"L0H0": 0.9, "L0H1": 0.8, "L0H2": 0.0}
    >>> same = {"L0H0": 0.1, "L0H1": 0.0, "L0H2": 0.2}
    >>> chosen_heads(list(same), {"induction.score": scores, "same_token.score": same}, 2)
    [0, 2]
    """
    if len(names) <= most:
        return list(range(len(names)))
    scores = [np.array([metrics[kind][n] for n in names]) for kind in RANKED if kind in metrics]
    best = [np.argsort(-np.abs(np.nan_to_num(of)), kind="stable").tolist() for of in scores]
    turns = dict.fromkeys(place for turn in zip(*best, strict=True) for place in turn)
    return sorted([*turns][:most]) if best else list(range(most))


def _view(
    subject: Subject,
    patterns: AttentionPatterns,
    example: int,
    rows: NDArray[np.int64],
    heads: Sequence[int],
) -> Figure:
    order = [example, *(i for i in range(len(rows)) if i != example)][:EXAMPLES]
    names = [patterns.names[place] for place in heads]
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
    all_shown = len(names) == len(patterns.names)
    counted = "every head" if all_shown else f"{len(names)} of {len(patterns.names)} heads"
    return figures.attention(
        names,
        texts,
        _patterns(patterns.sample[:, heads], texts, chosen),
        title=f"Attention of {counted}",
        caption=(
            f"Where each position looks: {next(iter(texts))}."
            + ("" if all_shown else " The heads are those that score highest.")
            + _left_out(len(order), len(rows), int(patterns.lengths[order].max()))
        ),
    )


def _left_out(examples: int, of: int, longest: int) -> str:
    """The examples that the view does not hold, as sentences; "" where it holds all."""
    few = f" The interactive view holds {examples} of {of} examples." if examples < of else ""
    cut = f" Of {longest} tokens the first {LONGEST} are shown." if longest > LONGEST else ""
    return few + cut


def _patterns(
    sample: np.ndarray, texts: Mapping[str, list[str]], chosen: Mapping[str, int | None]
) -> dict[str, np.ndarray]:
    """Attention (head, query, key) by example, cut to its tokens; the mean for None."""
    whole = {name: sample.mean(0) if i is None else sample[i] for name, i in chosen.items()}
    return {name: w[:, : len(texts[name]), : len(texts[name])] for name, w in whole.items()}


def _grid(subject: Subject, patterns: AttentionPatterns, metrics: Mapping[str, Any]) -> Figure:
    """Over the input grid, by how much the answer's position prefers the first operand."""
    rows, columns = subject.task.grid  # type: ignore[union-attr]
    step = (slice(None, None, -(-rows // PIXELS)), slice(None, None, -(-columns // PIXELS)))
    each = patterns.to_operand.astype(np.float64)  # (head, example, operand)
    values = (each[..., 0] - each[..., 1]) / np.maximum(each.sum(-1), 1e-12)
    names = patterns.names
    heads = chosen_heads(names, {PREFERENCE: metrics[PREFERENCE]}, PANELS)
    skipped = f" Every {step[0].step}th row is drawn." if step[0].step > 1 else ""
    if len(heads) < len(names):
        skipped += f" Drawn are {len(heads)} of {len(names)} heads, whose preference is largest."
    return figures.image_grid(
        {names[i]: values[i].reshape(rows, columns)[step] for i in heads},
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
