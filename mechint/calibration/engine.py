"""Runs the trials: plants at several noise levels, controls by the hundred, one row of the table
each.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mechint import __version__
from mechint.errors import MechintError, ParameterError, RunError, UnknownNameError
from mechint.planted import Trial
from mechint.probe import Probe
from mechint.registry import PROBES
from mechint.results import ProbeResult, Table, to_jsonable
from mechint.subject import Subject

COLUMNS = (
    "probe",
    "subject",
    "noise",
    "runs",
    "detected",
    "wrong",
    "error",
    "worst_error",
    "estimate",
    "seconds",
)
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Size:
    """noises: relative to the weights (see `mechint.planted`); plants: per noise level; controls:
    per trial, all kinds together.
    """

    noises: tuple[float, ...]
    plants: int
    controls: int


SIZES = {
    "smoke": Size((0.0,), 1, 2),
    "laptop": Size((0.0, 0.03), 5, 20),
    "full": Size((0.0, 0.01, 0.03, 0.1, 0.3), 10, 200),
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
        out: directory for ``calibration.json`` and ``calibration.md``; rows of other probes that
            are there already stay.
        progress: called with a text before each row.

    Returns:
        One row per trial and noise level, and one per trial and kind of control. `detected` is the
        share of runs in which the probe detects: the power on plants, the rate of false positives
        on controls; `wrong` the share of plants whose estimate is not the planted truth to within
        the trial's tolerance; `error` the median error of the estimate.

    Raises:
        UnknownNameError: no such probe. ParameterError: no such size. RunError: `out` cannot be
            written.
    """
    for name in probes or ():
        if name not in PROBES:
            raise UnknownNameError.of("probe", name, PROBES)
    if size not in SIZES:
        raise ParameterError(f"calibrate: size={size!r}: expected one of {', '.join(SIZES)}")
    rows = [
        row
        for name in probes or PROBES
        for trial in PROBES[name].calibration().trials
        for row in run_trial(name, trial, SIZES[size], progress or (lambda text: None))
    ]
    table = Table(
        {column: [row[column] for row in rows] for column in COLUMNS},
        CAPTION,
        {"seconds": "per run, mean"},
    )
    if out is not None:
        write(table, size, Path(out))
    return table


CAPTION = (
    "Power on planted mechanisms and rate of false positives on controls, at every probe's "
    "default threshold."
)


def run_trial(
    name: str, trial: Trial, size: Size, progress: Progress = lambda text: None
) -> Iterator[dict[str, Any]]:
    """The rows of one trial of the probe `name`: plants, then controls."""
    probe: Probe = PROBES[name].from_dict(dict(trial.settings))
    for noise in size.noises:
        progress(f"{name}: {trial.mechanism}, noise {noise:g}")
        runs = [_on_plant(trial, probe, noise, seed) for seed in range(size.plants)]
        yield _row(name, trial, f"planted {trial.mechanism}", noise, runs)
    control: Probe = PROBES[name].from_dict({**trial.settings, **trial.control_settings})
    each = math.ceil(size.controls / max(1, len(trial.controls)))
    for kind, build in trial.controls.items():
        progress(f"{name}: control {kind}")
        runs = [_on_control(trial, control, build, seed) for seed in range(each)]
        yield _row(name, trial, f"control: {kind}", None, runs)


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


def _timed(measure: Callable[[], tuple[bool, float | None]]) -> tuple[bool, float | None, float]:
    """(detected, error of the estimate, seconds); a probe that refuses its subject detects
    nothing.
    """
    start = time.perf_counter()
    try:
        detected, error = measure()
    except MechintError:
        detected, error = False, math.inf
    return bool(detected), error, time.perf_counter() - start


def _row(
    name: str,
    trial: Trial,
    subject: str,
    noise: float | None,
    runs: Sequence[tuple[bool, float | None, float]],
) -> dict[str, Any]:
    errors = [error for _, error, _ in runs if error is not None] if noise is not None else []
    return {
        "probe": name,
        "subject": subject,
        "noise": noise,
        "runs": len(runs),
        "detected": sum(detected for detected, _, _ in runs) / len(runs),
        "wrong": sum(error > trial.tolerance for error in errors) / len(errors) if errors else None,
        "error": statistics.median(errors) if errors else None,
        "worst_error": max(errors) if errors else None,
        "estimate": trial.estimate if errors else "",
        "seconds": round(statistics.fmean(seconds for _, _, seconds in runs), 3),
    }


# --- the table on disk ----------------------------------------------------------------------------
def write(table: Table, size: str, out: Path) -> None:
    """``calibration.json`` (data) and ``calibration.md`` (to read) in the directory `out`.

    Raises:
        RunError: the directory cannot be written.
    """
    command = f"mechint calibrate --size {size} --out {out.name}"
    table = _beside(table, out / "calibration.json")
    data = {
        "command": command,
        "mechint": __version__,
        "size": to_jsonable(vars(SIZES[size])),
        "columns": to_jsonable(table.columns),
        "caption": table.caption,
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "calibration.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        (out / "calibration.md").write_text(markdown(table, command), encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"calibrate: --out {out}: {error.strerror}; choose a directory that can be written"
        ) from error


def _beside(table: Table, path: Path) -> Table:
    """The table with the rows of the file at `path` for probes that it lacks, by probe."""
    rows = list(zip(*table.columns.values(), strict=True))
    if path.is_file():
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))["columns"]
            rows += [
                row
                for row in zip(*(kept[column] for column in COLUMNS), strict=True)
                if row[0] not in table.columns["probe"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"calibrate: {path} is not a calibration table; move it away") from error
    rows.sort(key=lambda row: row[0])
    return Table(
        dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True)),
        table.caption,
        table.units,
    )


def markdown(table: Table, command: str) -> str:
    """The table as Markdown, with what its columns mean."""
    shown = [column for column in COLUMNS if column != "seconds"]
    lines = [
        "# Calibration",
        "",
        f"{CAPTION} Made by `{command}`.",
        "",
        (
            "`detected` is the power on a plant and the rate of false positives on a control; "
            "noise is relative to the root mean square of every weight;"
        ),
        (
            "`wrong` is the share of plants whose estimate misses the planted truth; `error` and "
            "`worst_error` are the median and the largest error of"
        ),
        (
            "what stands under `estimate`. A control has no truth to miss; a probe that refuses a "
            "subject detects nothing."
        ),
        "",
        "| " + " | ".join(shown) + " |",
        "|" + " --- |" * len(shown),
    ]
    rows = zip(*(table.columns[column] for column in shown), strict=True)
    return (
        "\n".join(
            [*lines, *("| " + " | ".join(_cell(value) for value in row) + " |" for row in rows)]
        )
        + "\n"
    )


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
