"""Ablation: which layers, heads, neurons and directions does each answer need?"""

from probes._ablation.measures import AblatedScores, neuron_importance
from probes._ablation.probe import Ablation

__all__ = ["AblatedScores", "Ablation", "neuron_importance"]
