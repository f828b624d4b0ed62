"""Probes: calibrated measurements of a subject, their reports and their results."""

from mechint.probe.probe import (
    NEEDS,
    Need,
    Probe,
    Report,
    make_probes,
    quick_probes,
    run,
    run_all,
    unmet_need,
    untrained,
)

__all__ = [
    "NEEDS",
    "Need",
    "Probe",
    "Report",
    "make_probes",
    "quick_probes",
    "run",
    "run_all",
    "unmet_need",
    "untrained",
]
