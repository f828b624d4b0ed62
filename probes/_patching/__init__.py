"""Activation patching: which components carry a variable to the answer."""

from mechint.probes._patching.measures import KINDS, effects_of, flipped
from mechint.probes._patching.probe import Patching, at_positions

__all__ = ["KINDS", "Patching", "at_positions", "effects_of", "flipped"]
