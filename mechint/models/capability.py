"""What models are asked whether they can."""

from __future__ import annotations

from enum import Enum


class Capability(Enum):
    """What some models can do and others cannot."""

    REINITIALIZE = "draw new initial weights"
    RESUME = "resume a forward from a site of the residual stream"
    EDIT_WEIGHTS = "load edited weights"
    HEAD_WEIGHTS = "show its heads' weights as W_Q, W_K, W_V and W_O"
