"""Attention heads: their kinds, what they look at of the operands, and a stated target."""

from probes._attention.patterns import Patterns, collect
from probes._attention.probe import Attention
from probes._attention.scores import SCORES, agreement, mass, score, shuffled_keys, targets

__all__ = [
    "SCORES",
    "Attention",
    "Patterns",
    "agreement",
    "collect",
    "mass",
    "score",
    "shuffled_keys",
    "targets",
]
