"""Attention heads: their kinds, and the operands they attend to."""

from mechint.probes._attention.probe import Attention

__all__ = ["Attention"]
