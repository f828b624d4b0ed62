"""How good every probe is as an instrument: power on planted mechanisms, false positives on
controls, error of its estimate.

    mechint calibrate fourier das --size smoke

`entries` says declaratively what is planted for each probe and what it must find; `engine` runs
that and makes the table, which is kept in ``docs/calibration.json`` and ``docs/calibration.md``.
"""

from mechint.calibration.engine import SIZES, calibrate
from mechint.calibration.entries import ENTRIES, Entry

__all__ = ["ENTRIES", "SIZES", "Entry", "calibrate"]
