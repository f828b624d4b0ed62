"""The lens: what the residual stream already answers at every depth, and who wrote it there."""

from probes.lens.probe import Lens
from probes.lens.readout import Readout

__all__ = ["Lens", "Readout"]
