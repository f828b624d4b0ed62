"""Runs the trials: plants at several noise levels, controls by the hundred, one row of the table
each.
"""

from __future__ import annotations

import datetime
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mechint.calibration.table import check_place, write
from mechint.errors import MechintError, ParameterError, UnknownNameError
from mechint.intervals import clopper_pearson
from mechint.planted import Trial
from mechint.probe import Probe
from mechint.registry import PROBES
from mechint.results import ProbeResult, Table
from mechint.subject import Subject

COLUMNS = (
    "probe",
    "subject",
    "noise",
    "runs",
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
"""What stands under `estimate` on half-trained models, none of which may be made."""


@dataclass(frozen=True)
class Size:
    """noises: relative to the weights (see `mechint.planted`); plants: per noise level; controls:
    per probe, the kinds of all its trials together.
    """

    noises: tuple[float, ...]
    plants: int
    controls: int


SIZES = {
    "smoke": Size((0.0,), 1, 2),
    "laptop": Size((0.0, 0.03), 5, 20),
    "full": Size((0.0, 0.05), 100, 400),
}


def calibrate(
    probes: Sequence[str] | None = None,
    size: str = "smoke",
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Table:
    """Measure power, false positives and errors of `probes` (all when None).

    Args:
        probes: names of the registry; those without a trial are passed over.
        size: "smoke" (seconds; for tests), "laptop" or "full" (the table in the documentation).
        out: directory for ``calibration.json`` and ``calibration.md``, written after each probe;
            rows of other probes that are there already stay.
        progress: called before each model, with the row that it belongs to.

    Returns:
        One row per trial and noise level, one per trial and kind of control, and one per trial with
        half-trained models. `detected` is the share of runs in which the probe detects: the power
        on plants, the rate of false positives on controls, with its 95% Clopper–Pearson interval
        from `low` to `high`; `wrong` the share of plants whose estimate is not the planted truth to
        within the trial's tolerance, and of half-trained models on which something is named that
        removal does not bear out; `error` the median error of the estimate.

    Raises:
        UnknownNameError: no such probe. ParameterError: no such size. RunError: `out` cannot be
            written.
    """
    for name in probes or ():
        if name not in PROBES:
            raise UnknownNameError.of("probe", name, PROBES)
    if size not in SIZES:
        raise ParameterError(f"calibrate: size={size!r}: expected one of {', '.join(SIZES)}")
    if out is not None:
        check_place(Path(out))
    rows: list[dict[str, Any]] = []
    for name in probes or PROBES:
        measured = list(_of_probe(name, SIZES[size], progress or (lambda text: None)))
        if out is not None:  # what is done stays where the next probe is stopped
            write(_table(measured), size, vars(SIZES[size]), Path(out), {name: settings_of(name)})
        rows += measured
    return _table(rows)


def settings_of(name: str) -> list[dict[str, Any]]:
    """With which settings the probe `name` is calibrated, where they are not its defaults: for each
    different choice the "mechanisms" whose trials share it, "plants", and "controls", which half-
    trained models share.

    >>> settings_of("norms")[0]["plants"], settings_of("das")[0]["controls"]["pairs"]
    ({'null_examples': 4}, 64)
    """
    defaults = PROBES[name].from_dict({}).to_dict()
    found: list[dict[str, Any]] = []
    for trial in PROBES[name].calibration().trials:
        both = {
            "plants": trial.settings,
            "controls": {**trial.settings, **trial.control_settings},
        }
        chosen = {
            part: {
                key: value
                for key, value in PROBES[name].from_dict(dict(given)).to_dict().items()
                if value != defaults[key]
            }
            for part, given in both.items()
        }
        same = next((one for one in found if {part: one[part] for part in both} == chosen), None)
        if same is None:
            found.append({"mechanisms": [trial.mechanism], **chosen})
        else:
            same["mechanisms"].append(trial.mechanism)
    return found


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        {column: [row[column] for row in rows] for column in COLUMNS},
        CAPTION,
        {"seconds": "of processor time per run, mean", "made": "date"},
    )


def n_models(probes: Sequence[str], size: str) -> int:
    """How many models `calibrate` points these probes at.

    >>> n_models(["subspace"], "smoke"), n_models(["subspace"], "full")
    (3, 600)
    """
    return sum(
        share.plants * (len(share.noises) + (trial.half_trained is not None))
        + _per_kind(trial, share) * len(trial.controls)
        for name in probes
        for trial, share in _shares(name, SIZES[size])
    )


CAPTION = (
    "Power on planted mechanisms and rate of false positives on controls, at every probe's "
    "default threshold."
)


def _of_probe(name: str, size: Size, progress: Progress) -> Iterator[dict[str, Any]]:
    for trial, share in _shares(name, size):
        yield from run_trial(name, trial, share, progress)


def _shares(name: str, size: Size) -> Iterator[tuple[Trial, Size]]:
    """Every trial of a probe, with its share of the controls."""
    trials = PROBES[name].calibration().trials
    kinds = sum(len(trial.controls) for trial in trials)
    for trial in trials:
        yield trial, replace(size, controls=math.ceil(size.controls * len(trial.controls) / kinds))


def _per_kind(trial: Trial, size: Size) -> int:
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
        runs = [_on_plant(trial, probe, noise, seed) for seed in seeds]
        yield _row(name, trial, f"planted {trial.mechanism}", runs, noise, trial.estimate)
    control: Probe = PROBES[name].from_dict({**trial.settings, **trial.control_settings})
    for kind, build in trial.controls.items():
        seeds = _told(_per_kind(trial, size), f"{name}: control {kind}", progress)
        runs = [_on_control(trial, control, build, seed) for seed in seeds]
        yield _row(name, trial, f"control: {kind}", runs)
    if trial.half_trained is not None:
        seeds = _told(size.plants, f"{name}: half-trained", progress)
        runs = [_on_half_trained(trial, control, seed) for seed in seeds]
        yield _row(name, trial, f"half-trained: {trial.mechanism}", runs, estimate=FALSE_CLAIMS)


def _told(n: int, row: str, progress: Progress) -> Iterator[int]:
    """Seeds from 0, of which `progress` is told one by one."""
    for seed in range(n):
        progress(row)
        yield seed


def _detects(trial: Trial, probe: Probe, result: ProbeResult) -> bool:
    return trial.detects(result) if trial.detects is not None else probe.detects(result)


def _on_plant(
    trial: Trial, probe: Probe, noise: float, seed: int
) -> tuple[bool, float | None, float]:
    def measure() -> tuple[bool, float | None]:
        planted = trial.plant(noise, seed)
        result = probe.run(planted.subject, seed=seed)
        return _detects(trial, probe, result), float(trial.error(result, planted))

    return _timed(measure)


def _on_control(
    trial: Trial, probe: Probe, build: Callable[[int], Subject], seed: int
) -> tuple[bool, float | None, float]:
    return _timed(
        lambda: (_detects(trial, probe, probe.run(build(seed), seed=seed)), None),
    )


def _on_half_trained(trial: Trial, probe: Probe, seed: int) -> tuple[bool, float | None, float]:
    def measure() -> tuple[bool, float | None]:
        assert trial.half_trained is not None and trial.false_claims is not None
        subject = trial.half_trained(seed)
        result = probe.run(subject, seed=seed)
        return _detects(trial, probe, result), trial.false_claims(result, subject)

    return _timed(measure)


def _timed(measure: Callable[[], tuple[bool, float | None]]) -> tuple[bool, float | None, float]:
    """(detected, error of the estimate, seconds of processor time); a probe that refuses its
    subject detects nothing.
    """
    start = time.process_time()
    try:
        detected, error = measure()
    except MechintError:
        detected, error = False, math.inf
    return bool(detected), error, time.process_time() - start


def _row(
    name: str,
    trial: Trial,
    subject: str,
    runs: Sequence[tuple[bool, float | None, float]],
    noise: float | None = None,
    estimate: str = "",
) -> dict[str, Any]:
    hits = sum(detected for detected, _, _ in runs)
    low, high = clopper_pearson(hits, len(runs))
    tolerance = 0.0 if estimate == FALSE_CLAIMS else trial.tolerance
    errors = [error for _, error, _ in runs if error is not None] if estimate else []
    return {
        "probe": name,
        "subject": subject,
        "noise": noise,
        "runs": len(runs),
        "detected": hits / len(runs),
        "low": low,
        "high": high,
        "wrong": sum(error > tolerance for error in errors) / len(errors) if errors else None,
        "error": statistics.median(errors) if errors else None,
        "worst_error": max(errors) if errors else None,
        "estimate": estimate,
        "seconds": round(statistics.fmean(seconds for _, _, seconds in runs), 3),
        "made": datetime.date.today().isoformat(),
    }
