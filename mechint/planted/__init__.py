"""Models whose weights are written, not trained, so that the truth about their mechanism is known.

    plant = mechint.planted.modular_addition(p=53, frequencies=(5, 17))
    plant.subject                      # a Subject like any other: accuracy 1.0 on its task
    plant.truth["frequencies"]         # (5, 17), what a probe has to find

A probe is calibrated on them (`Probe.calibration`, ``mechint/calibration/``): it must find what was
planted, with the right numbers, under noise and in any basis of the residual stream; and it must
stay silent on `lookup_table`.
"""

from mechint.planted._bottleneck import bottleneck
from mechint.planted._composition import composition
from mechint.planted._linear_network import linear_network
from mechint.planted.assembly import Planted
from mechint.planted.calibration import Calibration, Trial
from mechint.planted.groups import group_product
from mechint.planted.induction import induction_head
from mechint.planted.lookup import lookup_table
from mechint.planted.modular import modular_addition
from mechint.planted.ordering import comparison

__all__ = [
    "Calibration",
    "Planted",
    "Trial",
    "bottleneck",
    "comparison",
    "composition",
    "group_product",
    "induction_head",
    "linear_network",
    "lookup_table",
    "modular_addition",
]
