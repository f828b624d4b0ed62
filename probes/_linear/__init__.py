"""Linear probes: which causal variables an activation holds linearly, and where."""

from mechint.probes._linear.estimators import Discriminant, Ridge, choose_penalty
from mechint.probes._linear.probe import Linear

__all__ = ["Discriminant", "Linear", "Ridge", "choose_penalty"]
