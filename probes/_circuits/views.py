"""The circuits probe's tables and figures; the circuit as a picture of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mechint import figures
from mechint.figures.theme import axis
from mechint.results import Table
from probes._circuits.graph import LOGITS, Edge, Graph

if TYPE_CHECKING:
    from mechint.subject import Subject

KINDS = ("q", "k", "v", "mlp", LOGITS)
ASIDE = {"q": -0.04, "v": 0.04}
"""Edges into one head end side by side."""

SHOWN = 400
"""Edges that are drawn, those of the largest effects first."""


def position_names(subject: Subject, positions: int) -> list[str]:
    """(pos,) each position with its token, where that is the same in all examples."""
    tokens, task = subject.data.tokens[:, :positions], subject.task
    names = []
    for position in range(tokens.shape[1]):
        column = tokens[:, position]
        same = task is not None and bool((column == column[0]).all())
        text = f" '{task.vocabulary.decode(column[:1])}'" if same and task is not None else ""
        names.append(f"{position}{text}")
    return names


def edges_table(
    graph: Graph, kept: np.ndarray, effects: np.ndarray, drops: np.ndarray, names: Sequence[str]
) -> Table:
    """The circuit's edges, the largest effect first."""
    members = np.flatnonzero(kept)
    drop = dict(zip(members.tolist(), drops.tolist(), strict=True))
    order = members[np.argsort(-np.abs(effects[members]), kind="stable")].tolist()
    edges = [graph.edges[i] for i in order]
    columns: dict[str, Sequence[Any]] = {
        "sender": [str(edge.sender) for edge in edges],
        "receiver": [str(edge.receiver) for edge in edges],
        "position": ["all" if e.group is None else names[e.group] for e in edges],
        "effect": [float(effects[i]) for i in order],
        "drop": [drop[i] for i in order],
    }
    caption = (
        "One row per edge of the circuit. effect: what the model loses when the edge alone carries "
        "the source; drop: what the circuit loses without it."
    )
    unit = "share of the model's score"
    return Table(columns, caption, {"effect": unit, "drop": unit})


def graph_figure(
    graph: Graph, kept: np.ndarray, effects: np.ndarray, names: Sequence[str], title: str
) -> figures.Figure:
    """The circuit: embeddings at the bottom, one row per layer of attention and of MLPs, the logits
    on top; an edge has the color of the input that it leads to.
    """
    members = np.flatnonzero(kept)
    members = members[np.argsort(-np.abs(effects[members]), kind="stable")][:SHOWN]
    edges = [graph.edges[i] for i in members]
    places = _places(edges, names)
    data: list[dict[str, Any]] = []
    for color, kind in zip(figures.COLORS, KINDS, strict=False):
        chosen = [edge for edge in edges if edge.receiver.kind == kind]
        ends = [(places[_sender(e, names)], places[e.receiver.component]) for e in chosen]
        x = [value for (a, _), (b, _) in ends for value in (a, b + ASIDE.get(kind, 0), None)]
        y = [value for (_, a), (_, b) in ends for value in (a, b, None)]
        name = f"into {kind}"
        line = {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y}
        data += [{**line, "line": {"color": color, "width": 1.6}, "hoverinfo": "skip"}] * bool(ends)
    data.append(_hovers(edges, effects[members], places, names))
    x, y = zip(*places.values(), strict=True)
    marker = {"size": 15, "color": figures.COLORS[-1]}
    node = {"type": "scatter", "mode": "markers+text", "showlegend": False, "marker": marker}
    data.append({**node, "x": x, "y": y, "text": list(places), "textposition": "top center"})
    rows = len({y for _, y in places.values()})
    across = [min(x) - 0.5, max(x) + 0.5]
    return figures.figure(
        data,
        title,
        "Every line is an edge of the circuit, from what writes to the residual stream to the "
        "input that reads it; hover over its middle for its effect.",
        height=max(360, 120 + 75 * rows),
        xaxis=axis("position of embeddings, head (in order)", showticklabels=False, range=across),
        yaxis=axis("depth (layer; MLPs half a layer up)"),
        hovermode="closest",
    )


def _sender(edge: Edge, names: Sequence[str]) -> str:
    """The node that an edge starts at: embeddings are one per position where edges are."""
    if edge.sender.depth >= 0 or edge.group is None:
        return edge.sender.component
    return f"{edge.sender.component} {names[edge.group]}"


def _places(edges: Sequence[Edge], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Node → where it stands; those of one row side by side, in order."""
    nodes: dict[str, tuple[float, int]] = {}
    for edge in edges:
        for node in (edge.sender, edge.receiver):
            embeds = node.depth < 0
            order = (edge.group or 0) if embeds else (node.head or 0)
            nodes[_sender(edge, names) if embeds else node.component] = (node.depth / 2, order)
    places: dict[str, tuple[float, float]] = {}
    for y in sorted({depth for depth, _ in nodes.values()}):
        row = sorted((order, name) for name, (depth, order) in nodes.items() if depth == y)
        for i, (_, name) in enumerate(row):
            places[name] = (i - (len(row) - 1) / 2, y)
    return places or {"(no edge)": (0.0, 0.0)}


def _hovers(
    edges: Sequence[Edge], effects: np.ndarray, places: Any, names: Sequence[str]
) -> dict[str, Any]:
    """Points in the middle of the edges that say what they are."""
    ends = [(places[_sender(e, names)], places[e.receiver.component]) for e in edges]
    return {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "x": [(a[0] + b[0]) / 2 for a, b in ends],
        "y": [(a[1] + b[1]) / 2 for a, b in ends],
        "text": [f"{edge}: {effect:.3f}" for edge, effect in zip(edges, effects, strict=True)],
        "hoverinfo": "text",
        "marker": {"size": 6, "opacity": 0.35, "color": figures.COLORS[-1]},
    }


def rivals_figure(random: np.ndarray, found: float, size: int) -> Any:
    """Random circuits of the same size beside the found one."""
    return figures.histogram(
        {f"random circuits of {size} edges": random},
        title="Random circuits of the same size",
        x_title="faithfulness (share of the model's score)",
        marks={"found circuit": found},
        caption="A circuit that says something is more faithful than random paths of its size.",
    )
