"""Attention heads: their kinds, the operands they attend to, and a stated target."""

from probes._attention.probe import Attention

__all__ = ["Attention"]
