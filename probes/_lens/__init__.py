"""The lens: what the residual stream already answers at every depth, and who wrote it there."""

from probes._lens.probe import Lens
from probes._lens.readout import Readout

__all__ = ["Lens", "Readout"]
