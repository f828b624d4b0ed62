"""Runs with outcomes written by hand, and the verdicts that studies give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mechint.claim import Claim
from mechint.studies import Analysis, ClaimSpec, PlannedRun, Runs, find_study
from mechint.training import Run


def runs_of(made: Iterable[tuple[PlannedRun, Run]]) -> Runs:
    """The runs as a study gets them."""
    pairs = list(made)
    return Runs(
        {planned.name: run for planned, run in pairs},
        {planned.name: planned.labels for planned, _ in pairs},
    )


def judge(study: str, letter: str, measures: Any, size: str = "laptop") -> Claim:
    """The verdict of claim `letter` on these measures."""
    return Analysis(study, size).add_claim(spec_of(study, letter), measures)


def spec_of(study: str, letter: str) -> ClaimSpec:
    """The claim `letter` of a study."""
    return next(spec for spec in find_study(study).claims if spec.letter == letter)


def outcomes(claim: Claim) -> Mapping[str, str]:
    """Part → met, missed or undecided."""
    return {part["part"]: part["outcome"] for part in claim.parts}
