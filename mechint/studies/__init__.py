"""The papers, re-run: which runs, which measurements, which claims hold.

    from mechint.studies import reproduce
    done = reproduce("composition", "smoke")
    done.claims, done.frame

A study is one package: runs, measures, claims with their criteria, figures. Claims are written
before the runs.
"""

from mechint.studies.core.claims import (
    VERDICTS,
    ClaimSpec,
    Criterion,
    Finding,
    Part,
    Replaced,
    claim,
)
from mechint.studies.core.runner import (
    Reproduction,
    find_study,
    left_to_train,
    reproduce,
)
from mechint.studies.core.study import (
    SIZES,
    Analysis,
    PlannedRun,
    Runs,
    Study,
    mean_and_spread,
    plan,
)
from mechint.training import workers_on

__all__ = [
    "SIZES",
    "VERDICTS",
    "Analysis",
    "ClaimSpec",
    "Criterion",
    "Finding",
    "Part",
    "PlannedRun",
    "Replaced",
    "Reproduction",
    "Runs",
    "Study",
    "claim",
    "find_study",
    "left_to_train",
    "mean_and_spread",
    "plan",
    "reproduce",
    "workers_on",
]
