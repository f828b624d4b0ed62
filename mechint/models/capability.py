"""Abilities of models, by which probes ask whether a model serves them."""

from __future__ import annotations

from enum import Enum


class Capability(Enum):
    """Abilities that some models have and others lack."""

    REINITIALIZE = "draw new initial weights"
    RESUME = "resume a forward from a site of the residual stream"
    EDIT_WEIGHTS = "load edited weights"
    HEAD_WEIGHTS = "show its heads' weights as W_Q, W_K, W_V and W_O"
