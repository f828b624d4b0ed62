"""Gradient interference: do the gradients of a task, its outputs and its background agree?"""

from mechint.probes._interference.probe import (
    Interference,
    cosines,
    group_gradients,
    groups_of,
    with_whole,
)

__all__ = ["Interference", "cosines", "group_gradients", "groups_of", "with_whole"]
