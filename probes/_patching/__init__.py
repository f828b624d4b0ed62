"""Activation patching: which components carry a variable to the answer."""

from mechint.probes._patching.measures import (
    KINDS,
    Effects,
    effects_of,
    flipped,
    logit_difference,
    runs_of,
)
from mechint.probes._patching.probe import Patching, at_positions

__all__ = [
    "KINDS",
    "Effects",
    "Patching",
    "at_positions",
    "effects_of",
    "flipped",
    "logit_difference",
    "runs_of",
]
