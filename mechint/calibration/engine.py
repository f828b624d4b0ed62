"""Runs the trials of the probes: plants at several noise levels, controls by the hundred."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mechint.calibration.table import check_place, write
from mechint.calibration.trials import COLUMNS, Progress, Size, per_kind, run_trial
from mechint.errors import ParameterError, UnknownNameError
from mechint.planted import Trial
from mechint.probe.results import Table
from mechint.registry import PROBES
from mechint.system.progress import Count

SIZES = {
    "smoke": Size((0.0,), 1, 2),
    "laptop": Size((0.0, 0.03), 5, 20),
    "full": Size((0.0, 0.05), 100, 400),
}


def calibrate(
    probes: Sequence[str] | None = None,
    size: str = "smoke",
    out: str | Path | None = None,
    progress: Count = lambda *_: None,
) -> Table:
    """Measure power, false positives and errors of `probes` (all when None).

    Args:
        probes: names of the registry; of all of them, those without a trial are passed over.
        size: "smoke" (seconds; for tests), "laptop" or "full" (the table in the documentation).
        out: directory for ``calibration.json`` and ``calibration.md``, written after each probe;
            rows of other probes that are there already stay.
        progress: called before each model with how many are done, how many there are, and the row
            that it belongs to.

    Returns:
        One row per trial and noise level, one per trial and kind of control, and one per trial with
        half-trained models. `refused` counts the runs in which the probe did not apply, `abstained`
        those in which it ran and could not tell. `detected` is the share of runs in which the probe
        detects: the power on plants, where a refusal is a miss; elsewhere, as the rate of false
        positives on controls, over the runs that were not refused, and None where all were. Its 95%
        Clopper–Pearson interval is from `low` to `high`. `wrong` is the share of plants whose
        estimate is not the planted truth to within the trial's tolerance, and of half-trained
        models on which something is named that removal does not bear out; `error` the median error
        of the estimate.

    Raises:
        UnknownNameError: no such probe. ParameterError: no such size, or a probe that is named has
            no trial. RunError: `out` cannot be written. MechintError: a plant or a control cannot
            be built.
    """
    for name in probes or ():
        if name not in PROBES:
            raise UnknownNameError.of("probe", name, PROBES)
        if not PROBES[name].calibration().trials:
            raise ParameterError(
                f"calibrate: {name} has no calibration(): it names no plant to find and no control"
            )
    if size not in SIZES:
        raise ParameterError(f"calibrate: size={size!r}: expected one of {', '.join(SIZES)}")
    if out is not None:
        check_place(Path(out))
    rows: list[dict[str, Any]] = []
    done, of = itertools.count(), n_models(probes or tuple(PROBES), size)
    for name in probes or PROBES:
        measured = list(_of_probe(name, SIZES[size], lambda row: progress(next(done), of, row)))
        if out is not None and measured:  # what is done stays where the next probe is stopped
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
        both = {"plants": trial.settings, "controls": {**trial.settings, **trial.control_settings}}
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
    """The number of models `calibrate` points these probes at.

    >>> n_models(["subspace"], "smoke"), n_models(["subspace"], "full")
    (3, 600)
    """
    return sum(
        share.plants * (len(share.noises) + (trial.half_trained is not None))
        + per_kind(trial, share) * len(trial.controls)
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
    kinds = max(1, sum(len(trial.controls) for trial in trials))
    for trial in trials:
        yield trial, replace(size, controls=math.ceil(size.controls * len(trial.controls) / kinds))
