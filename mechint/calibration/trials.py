"""One trial of a probe: its plants, its controls and its half-trained models, a row of the table
each. What a probe refused, or abstained from, stands beside what it detected.
"""

from __future__ import annotations

import datetime
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mechint.decide.evidence import clopper_pearson
from mechint.errors import DataError, NotApplicableError
from mechint.planted import Planted, Trial
from mechint.probe import Probe
from mechint.probe.results import ProbeResult
from mechint.registry import PROBES
from mechint.subject import Subject

COLUMNS = (
    "probe",
    "subject",
    "noise",
    "runs",
    "refused",
    "abstained",
    "detected",
    "low",
    "high",
    "wrong",
    "error",
    "worst_error",
    "estimate",
    "seconds",
    "made",
)
Progress = Callable[[str], None]
FALSE_CLAIMS = "claims that removal does not bear out"
"""The `estimate` of half-trained models, none of which may be made."""


@dataclass(frozen=True)
class Size:
    """noises: relative to the weights (see `mechint.planted`); plants: per noise level; controls:
    per probe, the kinds of all its trials together.
    """

    noises: tuple[float, ...]
    plants: int
    controls: int


@dataclass(frozen=True)
class TrialRun:
    """The outcome of one subject. error: of the estimate, inf where it is no number, None where
    nothing was estimated; refused: the probe did not apply, so it was not tested on this subject;
    abstained: it ran and said that it cannot tell; seconds: of processor time, building included.
    """

    detected: bool
    error: float | None
    refused: bool
    abstained: bool
    seconds: float


def per_kind(trial: Trial, size: Size) -> int:
    """Models of each kind of control of a trial."""
    return math.ceil(size.controls / max(1, len(trial.controls)))


def run_trial(
    name: str, trial: Trial, size: Size, progress: Progress = lambda text: None
) -> Iterator[dict[str, Any]]:
    """The rows of one trial of the probe `name`: plants, then `size.controls` of its controls, then
    as many half-trained models as plants.
    """
    probe: Probe = PROBES[name].from_dict(dict(trial.settings))
    for noise in size.noises:
        row = f"{name}: {trial.mechanism}, noise {noise:g}"
        seeds = _told(size.plants, row, progress)
        runs = [
            _run(trial, probe, seed, partial(trial.plant, noise), trial.error) for seed in seeds
        ]
        yield _row(name, trial, f"planted {trial.mechanism}", runs, noise, trial.estimate)
    control: Probe = PROBES[name].from_dict({**trial.settings, **trial.control_settings})
    for kind, build in trial.controls.items():
        seeds = _told(per_kind(trial, size), f"{name}: control {kind}", progress)
        runs = [_run(trial, control, seed, build) for seed in seeds]
        yield _row(name, trial, f"control: {kind}", runs)
    if trial.half_trained is not None:
        seeds = _told(size.plants, f"{name}: half-trained", progress)
        runs = [
            _run(trial, control, seed, trial.half_trained, trial.false_claims) for seed in seeds
        ]
        yield _row(name, trial, f"half-trained: {trial.mechanism}", runs, estimate=FALSE_CLAIMS)


def _told(n: int, row: str, progress: Progress) -> Iterator[int]:
    """Seeds from 0, of which `progress` is told one by one."""
    for seed in range(n):
        progress(row)
        yield seed


def _run(
    trial: Trial,
    probe: Probe,
    seed: int,
    build: Callable[[int], Planted | Subject],
    wrong: Callable[[ProbeResult, Any], float] | None = None,
) -> TrialRun:
    """The outcome of the probe on what `build` makes, with its error by `wrong`. Errors but a
    refusal are mistakes in the trial, which must not pass for silence.
    """
    start = time.process_time()
    built = build(seed)
    subject = built.subject if isinstance(built, Planted) else built
    try:
        result = probe.run(subject, seed=seed)
    except (NotApplicableError, DataError):
        # a plant that is refused is missed, with all of its truth
        error = math.inf if isinstance(built, Planted) else None
        return TrialRun(False, error, True, False, time.process_time() - start)
    error = None if wrong is None else float(wrong(result, built))
    if error is not None and math.isnan(error):
        error = math.inf  # an estimate that is no number is as wrong as can be
    detected, abstained = (trial.detects or probe.detects)(result), result.verdict == "unclear"
    return TrialRun(bool(detected), error, False, abstained, time.process_time() - start)


def _row(
    name: str,
    trial: Trial,
    subject: str,
    runs: Sequence[TrialRun],
    noise: float | None = None,
    estimate: str = "",
) -> dict[str, Any]:
    """A row of the table. A refusal is a miss on a plant; elsewhere it is no evidence of silence,
    so that the share and its interval are over the runs that the probe answered.
    """
    refused = sum(run.refused for run in runs)
    counted = len(runs) - (0 if noise is not None else refused)
    hits = sum(run.detected for run in runs)
    low, high = clopper_pearson(hits, counted) if counted else (None, None)
    tolerance = 0.0 if estimate == FALSE_CLAIMS else trial.tolerance
    errors = [run.error for run in runs if run.error is not None] if estimate else []
    return {
        "probe": name,
        "subject": subject,
        "noise": noise,
        "runs": len(runs),
        "refused": refused,
        "abstained": sum(run.abstained for run in runs),
        "detected": hits / counted if counted else None,
        "low": low,
        "high": high,
        "wrong": sum(error > tolerance for error in errors) / len(errors) if errors else None,
        "error": statistics.median(errors) if errors else None,
        "worst_error": max(errors) if errors else None,
        "estimate": estimate,
        "seconds": round(statistics.fmean(run.seconds for run in runs), 3),
        "made": datetime.date.today().isoformat(),
    }
