"""The logit lens: what the residual stream already answers at every depth."""

from mechint.probes._lens.probe import Lens, Readout

__all__ = ["Lens", "Readout"]
