"""The circuits probe's tables and figures; the circuit as a picture of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mechint import figures
from mechint.probe.results import Table
from mechint.probes._circuits.graph import Edge, Graph
from mechint.probes._effects import Curve, Shares, draw_curve

PORTS = {"q": 0.3, "k": 0.0, "v": -0.3}
"""Input of a head → its height beside the head's own."""
SHOWN, OTHERS = 60, 60
"""Edges of the circuit and outside of it that are drawn, those of the largest effects first."""


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
    """The circuit as a flow from the embeddings on the left to the logits on the right; an edge is
    as wide as its effect is large, has the color of the input that it leads to, and ends at the
    query, key or value of a head.
    """
    order = np.argsort(-np.abs(effects), kind="stable")
    members = [i for i in order.tolist() if kept[i]][:SHOWN]
    places = _places([graph.edges[i] for i in members], names)
    ports = {
        str(edge.receiver).replace(".", " "): edge.receiver
        for edge in (graph.edges[i] for i in members)
        if edge.receiver.kind in PORTS
    }

    def ends(i: int) -> tuple[str, str]:
        receiver = graph.edges[i].receiver
        return _sender(graph.edges[i], names), str(receiver).replace(".", " ")

    others = [ends(i) for i in order.tolist() if not kept[i]][:OTHERS]
    return figures.graph(
        places,
        [(*ends(i), float(effects[i])) for i in members],
        title=title,
        kinds=[f"into {graph.edges[i].receiver.kind}" for i in members],
        faint=[pair for pair in others if {*places, *ports} >= set(pair)],
        unit="of the model's score",
        ports={
            name: (places[node.component][0] - 0.2, places[node.component][1] + PORTS[node.kind])
            for name, node in ports.items()
        },
        caption="Edges of the circuit, from what writes to the residual stream to the input that "
        "reads it: query (q), key (k) or value (v) of a head. As wide as their effect, which is "
        "the share of the score that the model loses without them; gray: edges outside the "
        "circuit.",
    )


def _sender(edge: Edge, names: Sequence[str]) -> str:
    """The node that an edge starts at: embeddings are one per position where edges are."""
    if edge.sender.depth >= 0 or edge.group is None:
        return edge.sender.component
    return f"{edge.sender.component} {names[edge.group]}"


def _places(edges: Sequence[Edge], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Node → where it stands; those of one depth above each other, the first on top."""
    nodes: dict[str, tuple[float, int]] = {}
    for edge in edges:
        for node in (edge.sender, edge.receiver):
            embeds = node.depth < 0
            order = (edge.group or 0) if embeds else (node.head or 0)
            nodes[_sender(edge, names) if embeds else node.component] = (node.depth, order)
    places: dict[str, tuple[float, float]] = {}
    for x, depth in enumerate(sorted({depth for depth, _ in nodes.values()})):
        column = sorted((order, name) for name, (at, order) in nodes.items() if at == depth)
        for i, (_, name) in enumerate(column):
            places[name] = (float(x), (len(column) - 1) / 2 - i)
    return places or {"(no edge)": (0.0, 0.0)}


def curve_figure(curve: Curve, shares: Shares, size: int) -> figures.Figure:
    """Faithfulness by the number of edges, with intervals."""
    return draw_curve(
        curve,
        {"first edges by effect": shares},
        title="Faithfulness by size",
        x_title="edges (number)",
        y_title="faithfulness (share of the model's score)",
        levels={"the model": 1.0},
        caption=(
            "With 95% intervals over the examples. Integrated over the share of edges: CPR "
            f"{curve.cpr:.3g}, and its distance from the model: CMD {curve.cmd:.3g}. The circuit "
            f"found, pruned, has {size} edges."
        ),
    )
