"""Gradient interference: do the gradients of a task, its outputs and its background agree?"""

from probes._interference.probe import Interference, TaskGradients, cosines, groups_of, with_whole

__all__ = ["Interference", "TaskGradients", "cosines", "groups_of", "with_whole"]
