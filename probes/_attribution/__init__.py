"""Direct logit attribution, patching of every component, and its first-order estimate."""

from probes._attribution.measures import Effects, components, measured
from probes._attribution.probe import Attribution

__all__ = ["Attribution", "Effects", "components", "measured"]
