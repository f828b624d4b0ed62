"""The papers, run again: what is trained, what is measured of each run, and the claims held
against it.

    import mechint
    done = mechint.reproduce("composition", "smoke")
    done.claims, done.rows

A study is a package: `plan` (what is trained at each size), `measures` (a run → a row of numbers),
`claims` (rows → an estimate with its interval → a verdict), `figures`. Criteria are committed
before the runs that they judge.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mechint.studies.claims import ClaimTest, PositiveControl, Sample
    from mechint.studies.rows import Rows
    from mechint.studies.runner import Reproduction, find_study, left_to_train, reproduce
    from mechint.studies.statistics import Estimate, Planned
    from mechint.studies.study import SIZES, PlannedRun, Study, arm

_HOME = {
    "claims": ("ClaimTest", "PositiveControl", "Sample"),
    "rows": ("Rows",),
    "runner": ("Reproduction", "find_study", "left_to_train", "reproduce"),
    "statistics": ("Estimate", "Planned"),
    "study": ("SIZES", "PlannedRun", "Study", "arm"),
}

__all__ = [
    "SIZES",
    "ClaimTest",
    "Estimate",
    "Planned",
    "PlannedRun",
    "PositiveControl",
    "Reproduction",
    "Rows",
    "Sample",
    "Study",
    "arm",
    "find_study",
    "left_to_train",
    "reproduce",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "studies":  # the short name is an alias of the same module objects
    sys.modules[__name__] = importlib.import_module("mechint.studies")
