"""Direct logit attribution, patching of every component, and its first-order estimate."""

from mechint.probes._attribution.measures import AttributionEffects, components, measured
from mechint.probes._attribution.probe import Attribution

__all__ = ["Attribution", "AttributionEffects", "components", "measured"]
