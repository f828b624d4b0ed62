"""The quality of every probe as an instrument: power on planted mechanisms, false positives on
controls, error of its estimate.

    mechint calibrate fourier das --size smoke

Every probe says itself what is planted for it (`Probe.calibration`); `engine` runs that and makes
the table, which is kept as ``calibration.json`` and ``calibration.md`` in ``docs/generated``.
"""

from mechint.calibration.engine import SIZES, calibrate

__all__ = ["SIZES", "calibrate"]
