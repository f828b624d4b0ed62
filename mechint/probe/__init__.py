"""Probes: calibrated measurements of a subject, their reports and their results."""

from mechint.probe.probe import (
    NEEDS,
    Need,
    Probe,
    Report,
    quick_probes,
    run,
    run_all,
    unmet_need,
)

__all__ = ["NEEDS", "Need", "Probe", "Report", "quick_probes", "run", "run_all", "unmet_need"]
