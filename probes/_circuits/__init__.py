"""Path patching, edge attribution and the circuit that they find."""

from mechint.probes._circuits.forward import Cut, sender_outputs
from mechint.probes._circuits.graph import Edge, Graph, Node, from_mib, random_circuits, to_mib
from mechint.probes._circuits.probe import Circuits
from mechint.probes._circuits.scoring import Scorer
from mechint.probes._circuits.search import edge_attribution, find_circuit, path_patching

__all__ = [
    "Circuits",
    "Cut",
    "Edge",
    "Graph",
    "Node",
    "Scorer",
    "edge_attribution",
    "find_circuit",
    "from_mib",
    "path_patching",
    "random_circuits",
    "sender_outputs",
    "to_mib",
]
