"""Activation patching and its linear estimate: which components carry a variable to the answer."""

from probes._patching.measures import (
    KINDS,
    Effects,
    attribution,
    effects_of,
    flipped,
    logit_difference,
    patched,
)
from probes._patching.probe import Patching, at_positions

__all__ = [
    "KINDS",
    "Effects",
    "Patching",
    "at_positions",
    "attribution",
    "effects_of",
    "flipped",
    "logit_difference",
    "patched",
]
