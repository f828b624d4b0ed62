"""Ablation: the layers, heads and neurons that each answer needs."""

from mechint.probes._ablation.measures import neuron_importance
from mechint.probes._ablation.probe import Ablation

__all__ = ["Ablation", "neuron_importance"]
