"""Path patching, edge attribution and the circuit that they find."""

from probes.circuits.effects import edge_attribution, path_patching
from probes.circuits.forward import PatchedForward, sender_outputs
from probes.circuits.graph import Edge, Graph, Node, random_circuits
from probes.circuits.probe import Circuits
from probes.circuits.scoring import Scorer
from probes.circuits.search import find_circuit

__all__ = [
    "Circuits",
    "Edge",
    "Graph",
    "Node",
    "PatchedForward",
    "Scorer",
    "edge_attribution",
    "find_circuit",
    "path_patching",
    "random_circuits",
    "sender_outputs",
]
