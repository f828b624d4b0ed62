"""Direct logit attribution, patching of every component, and its first-order estimate."""

from probes.attribution.measures import Effects, components, measured
from probes.attribution.probe import Attribution

__all__ = ["Attribution", "Effects", "components", "measured"]
