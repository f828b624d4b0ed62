"""Attention heads: their kinds, what they look at of the operands, and a stated target."""

from probes.attention.patterns import Patterns, collect
from probes.attention.probe import Attention
from probes.attention.scores import SCORES, agreement, mass, score, shuffled_keys, targets

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
