"""The logit lens: what the residual stream already answers at every depth."""

from probes._lens.probe import Lens
from probes._lens.readout import Readout

__all__ = ["Lens", "Readout"]
