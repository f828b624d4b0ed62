"""The papers, re-run: which runs, which measurements, which claims hold.

    from mechint.studies import reproduce
    done = reproduce("composition", "smoke")
    done.claims, done.frame

A study is one module: its claims with their criteria are constants at the top, written before the
runs.
"""

from mechint.studies.core.runner import Reproduction, duration, find_study, in_words, reproduce
from mechint.studies.core.study import (
    SIZES,
    Analysis,
    Finding,
    Planned,
    Runs,
    Stated,
    Study,
    mean_and_spread,
    plan,
)

__all__ = [
    "SIZES",
    "Analysis",
    "Finding",
    "Planned",
    "Reproduction",
    "Runs",
    "Stated",
    "Study",
    "duration",
    "find_study",
    "in_words",
    "mean_and_spread",
    "plan",
    "reproduce",
]
