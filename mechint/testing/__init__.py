"""The contracts of every task and every probe, as checks that third parties run on theirs.

`check_task` and `check_probe` run all checks; `probe_checks` yields them one by one, named, and
`calibration_checks` those of a probe's plants and controls.
"""

from mechint.testing.probes import Check, calibration_checks, check_probe, probe_checks
from mechint.testing.tasks import check_task

__all__ = ["Check", "calibration_checks", "check_probe", "check_task", "probe_checks"]
