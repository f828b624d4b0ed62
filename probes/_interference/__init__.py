"""Gradient interference: do the gradients of a task, its outputs and its background agree?"""

from probes._interference.gradients import TaskGradients, cosines, groups_of, with_whole
from probes._interference.probe import Interference

__all__ = ["Interference", "TaskGradients", "cosines", "groups_of", "with_whole"]
