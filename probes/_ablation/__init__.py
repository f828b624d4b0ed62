"""Ablation: the layers and heads that each answer needs."""

from mechint.probes._ablation.probe import Ablation

__all__ = ["Ablation"]
