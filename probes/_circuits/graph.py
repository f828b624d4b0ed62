"""The graph of a model: what writes to the residual stream, what reads it, and every edge between.

A sender is the token embedding, the position embedding, a head or an MLP; a receiver is the query,
key or value input of a head, the input of an MLP, or the logits. Each edge says that a sender is
read by a receiver later in the forward, at one group of positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mechint.config import ModelConfig
from mechint.errors import DataError

LOGITS = "logits"


@dataclass(frozen=True)
class Node:
    """A sender or a receiver.

    kind: embed, pos, head or mlp of senders; q, k, v, mlp or logits of receivers. depth: place in
    the order of computation, 2 layer for attention and 2 layer + 1 for an MLP; what embeds has -1.

    >>> print(Node("head", 1, 2), "|", Node("q", 0, 3), "|", Node("mlp", 1), "|", Node("embed"))
    L1H2 | L0H3.q | L1 MLP | embed
    """

    kind: str
    layer: int = 0
    head: int | None = None

    @property
    def depth(self) -> int:
        if self.kind in ("embed", "pos"):
            return -1
        return 2 * self.layer + (self.kind == "mlp")

    @property
    def component(self) -> str:
        """The head or MLP that it belongs to; logits and embeddings are their own."""
        if self.head is not None:
            return f"L{self.layer}H{self.head}"
        return f"L{self.layer} MLP" if self.kind == "mlp" else self.kind

    def __str__(self) -> str:
        letter = f".{self.kind}" if self.kind in "qkv" else ""
        return f"{self.component}{letter}"


@dataclass(frozen=True)
class Edge:
    """A sender read by a receiver at one group of positions, None where all are one.

    >>> print(Edge(Node("embed"), Node("v", 0, 1), 2))
    embed → L0H1.v @ 2
    """

    sender: Node
    receiver: Node
    group: int | None = None

    def __str__(self) -> str:
        where = "" if self.group is None else f" @ {self.group}"
        return f"{self.sender} → {self.receiver}{where}"


@dataclass(frozen=True)
class Shape:
    """Sizes that a graph is made from, of a bridge; a ModelConfig has those of a HookedTransformer.

    key_heads: heads that have keys and values of their own. parallel: the MLP of a block reads what
    its attention reads. The token embedding stands for all that the first block reads.
    """

    depth: int
    d_model: int
    n_heads: int
    key_heads: int
    attn_only: bool
    parallel: bool
    embeds_positions: bool = False
    reads_back_only: bool = True


@dataclass(frozen=True)
class Graph:
    """All edges of a model in the order of their receivers' depth.

    groups: number of groups of positions: 1, or one per position. reads: the positions at which
    answers are read, beyond which no edge can lead to one.
    """

    config: ModelConfig | Shape
    groups: int = 1
    reads: tuple[int, ...] = ()
    constant: tuple[str, ...] = ()
    """Kinds of senders that never differ between the runs: their edges are left out."""

    @property
    def embeddings(self) -> list[Node]:
        """Everything before the first block: tokens and, where they are added, positions."""
        return [Node("embed"), Node("pos")] if self.config.embeds_positions else [Node("embed")]

    @cached_property
    def senders(self) -> tuple[Node, ...]:
        nodes = self.embeddings
        for layer in range(self.config.depth):
            nodes += [Node("head", layer, head) for head in range(self.config.n_heads)]
            nodes += [] if self.config.attn_only else [Node("mlp", layer)]
        return tuple(nodes)

    @property
    def key_heads(self) -> int:
        """Heads of a block that have keys and values of their own."""
        return getattr(self.config, "key_heads", self.config.n_heads)

    def _bound(self, receiver: Node) -> int:
        """The depth before which what is written is in the stream that `receiver` is given."""
        beside = receiver.kind == "mlp" and getattr(self.config, "parallel", False)
        return 2 * receiver.layer if beside else receiver.depth

    @cached_property
    def receivers(self) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for layer in range(self.config.depth):
            for letter in "qkv":
                heads = self.config.n_heads if letter == "q" else self.key_heads
                nodes += [Node(letter, layer, head) for head in range(heads)]
            nodes += [] if self.config.attn_only else [Node("mlp", layer)]
        return (*nodes, Node(LOGITS, self.config.depth))

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        return tuple(
            Edge(sender, receiver, None if self.groups == 1 else group)
            for receiver in self.receivers
            for sender in self.senders
            if sender.depth < self._bound(receiver) and sender.kind not in self.constant
            for group in self._groups_of(receiver)
        )

    @property
    def n_edges(self) -> int:
        """The number of edges of one group of positions, without listing them."""
        before = [sender.depth for sender in self.senders]
        return int(np.searchsorted(before, list(map(self._bound, self.receivers))).sum())

    def _groups_of(self, receiver: Node) -> Sequence[int]:
        """The groups at which `receiver` can reach an answer."""
        last = receiver.layer == self.config.depth - 1 and receiver.kind in ("q", "mlp")
        if self.groups > 1 and (last or receiver.kind == LOGITS):
            return self.reads
        return range(self.groups)

    @cached_property
    def index(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(edge,) the receiver, the sender and the group of each edge."""
        receivers = {node: i for i, node in enumerate(self.receivers)}
        senders = {node: i for i, node in enumerate(self.senders)}
        rows = [(receivers[e.receiver], senders[e.sender], e.group or 0) for e in self.edges]
        return tuple(np.array(rows, np.int64).reshape(-1, 3).T)  # type: ignore[return-value]

    @cached_property
    def depths(self) -> np.ndarray:
        """(edge,) depth of the receiver."""
        return np.array([edge.receiver.depth for edge in self.edges])

    def mask(self, kept: Tensor) -> Tensor:
        """(circuit, receiver, sender, group) from kept (circuit, edge), zero where no edge is."""
        shape = (len(kept), len(self.receivers), len(self.senders), self.groups)
        result = kept.new_zeros(shape)
        receiver, sender, group = (
            torch.from_numpy(column).to(kept.device) for column in self.index
        )
        result[:, receiver, sender, group] = kept
        return result

    def components(self, kept: Bool[np.ndarray, " edge"]) -> list[str]:
        """Heads and MLPs with an edge in and an edge out, in the order of computation."""
        chosen = [self.edges[i] for i in np.flatnonzero(kept)]
        reads = {edge.receiver.component for edge in chosen}
        writes = {edge.sender.component for edge in chosen}
        return [
            sender.component
            for sender in self.senders
            if sender.depth >= 0 and sender.component in reads & writes
        ]

    # --- random circuits --------------------------------------------------------------------------
    @cached_property
    def _into(self) -> dict[tuple[str, int], list[int]]:
        """(receiver, group) → the edges that lead there."""
        found: dict[tuple[str, int], list[int]] = {}
        for i, edge in enumerate(self.edges):
            found.setdefault((str(edge.receiver), edge.group or 0), []).append(i)
        return found

    def random_circuit(self, size: int, generator: np.random.Generator) -> np.ndarray:
        """(edge,) a circuit of `size` edges, made of random paths from the embedding to the logits.

        What the last path has too many is dropped from it at random (Shi et al. 2024, Sec. 3).
        """
        kept = np.zeros(len(self.edges), bool)
        stale = 0
        while kept.sum() < size:
            path = [i for i in self._random_path(generator) if not kept[i]]
            stale = 0 if path else stale + 1
            if stale > 100:  # hardly a path is left that adds an edge
                path = list(np.flatnonzero(~kept))
            room = size - int(kept.sum())
            kept[generator.permutation(np.array(path, np.int64))[:room]] = True
        return kept

    def _random_path(self, generator: np.random.Generator) -> list[int]:
        ends = [key for key in self._into if key[0] == LOGITS]
        place: tuple[str, int] | None = ends[generator.integers(len(ends))]
        path: list[int] = []
        while place is not None:
            choices = self._into[place]
            path.append(choices[generator.integers(len(choices))])
            place = self._reader_of(self.edges[path[-1]], generator)
        return path

    def _reader_of(self, edge: Edge, generator: np.random.Generator) -> tuple[str, int] | None:
        """An input, chosen at random, of the component that sends along `edge`; None for an
        embedding.
        """
        if edge.sender.depth < 0:
            return None
        group, sender = edge.group or 0, edge.sender
        if sender.kind == "mlp":
            return (str(sender), group)
        letter = "qkv"[generator.integers(3)]
        shared = 1 if letter == "q" else self.config.n_heads // self.key_heads
        name = str(Node(letter, sender.layer, (sender.head or 0) // shared))
        if letter == "q":
            return (name, group)
        seen = group + 1 if self.config.reads_back_only else self.groups
        return (name, int(generator.integers(seen)))


def random_circuits(
    graph: Graph, size: int, n: int, seed: int, apart_from: Bool[np.ndarray, " edge"] | None = None
) -> Bool[np.ndarray, "circuit edge"]:
    """(circuit, edge) `n` circuits of `size` edges (see `Graph.random_circuit`), no two alike and
    none like `apart_from`; fewer where `n` draws in a row bring no other.
    """
    generator = np.random.default_rng(seed)
    known = set() if apart_from is None else {apart_from.tobytes()}
    found: list[np.ndarray] = []
    stale = 0
    while len(found) < n and stale < n:
        one = graph.random_circuit(size, generator)
        stale += 1
        if one.tobytes() not in known:
            known.add(one.tobytes())
            found.append(one)
            stale = 0
    return np.stack(found) if found else np.zeros((0, len(graph.edges)), bool)


# --- the JSON of MIB and EAP-IG: nodes input, a0.h1, m0, logits -----------------------------------
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
            "parallel_attn_mlp": getattr(config, "parallel", False),
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
