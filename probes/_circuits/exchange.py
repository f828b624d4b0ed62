"""Circuits in the JSON of MIB and EAP-IG: nodes ``input``, ``a0.h1``, ``m0``, ``logits``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from mechint.errors import DataError
from probes._circuits.graph import LOGITS, Edge, Graph, Node


def to_mib(
    graph: Graph, kept: Bool[np.ndarray, " edge"], effects: Float[np.ndarray, " edge"]
) -> dict[str, Any]:
    """Nodes and edges with their scores, as ``json.dump`` takes them; the position embedding is no
    node there. Of an edge per position the scores are added, and it is kept where any is.
    """
    config = graph.config
    edges: dict[str, dict[str, Any]] = {}
    for edge, score, inside in zip(graph.edges, effects, kept, strict=True):
        if edge.sender.kind == "pos":
            continue
        entry = edges.setdefault(_name(edge), {"score": 0.0, "in_graph": False})
        entry["score"] += float(score)
        entry["in_graph"] |= bool(inside)
    within = {end for name, one in edges.items() if one["in_graph"] for end in _ends(name)}
    nodes = [*map(_node, graph.senders), LOGITS]
    return {
        "cfg": {
            "n_layers": config.depth,
            "n_heads": config.n_heads,
            "d_model": config.d_model,
            "parallel_attn_mlp": False,
        },
        "nodes": {name: {"in_graph": name in within} for name in nodes if name != "pos"},
        "edges": edges,
    }


def from_mib(
    graph: Graph, circuit: Mapping[str, Any]
) -> tuple[Bool[np.ndarray, " edge"], Float[np.ndarray, " edge"]]:
    """(edge,) which edges of `graph` are in the circuit, and their scores, 0 where it gives none.

    Raises:
        DataError: it has an edge that the graph lacks.
    """
    given: Mapping[str, Mapping[str, Any]] = circuit["edges"]
    names = [_name(edge) for edge in graph.edges]
    strangers = [name for name in given if name not in set(names)]
    if strangers:
        raise DataError(
            f"circuit: edge {strangers[0]!r} is none of this model's {len(set(names))}, such as "
            f"{names[0]!r}"
        )
    found = [given.get(name, {}) for name in names]
    kept = np.array([bool(one.get("in_graph")) for one in found])
    return kept, np.array([float(one.get("score") or 0.0) for one in found])


def _node(node: Node) -> str:
    if node.kind in ("embed", "pos", LOGITS):
        return {"embed": "input"}.get(node.kind, node.kind)
    return f"m{node.layer}" if node.kind == "mlp" else f"a{node.layer}.h{node.head}"


def _name(edge: Edge) -> str:
    letter = f"<{edge.receiver.kind}>" if edge.receiver.kind in "qkv" else ""
    return f"{_node(edge.sender)}->{_node(edge.receiver)}{letter}"


def _ends(name: str) -> tuple[str, str]:
    sender, _, receiver = name.partition("->")
    return sender, receiver.partition("<")[0]
