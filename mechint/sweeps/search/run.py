"""Running a search: trials are asked of Optuna, trained together, and told."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sqlite3
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.errors import ParameterError, RunError
from mechint.locks import locked
from mechint.registry import PROBES
from mechint.run_table import Entry, Measurement, measure
from mechint.sweeps.measuring import measure_rows, probes_of
from mechint.sweeps.plan import Row
from mechint.sweeps.search.plan import Search, read_search

if TYPE_CHECKING:
    from mechint.training import Run, Spec

STUDY = "search.db"
NAMES = 12
"""Metrics that a message names at most."""
MISSING = "search: Optuna is not installed; pip install 'mechint[search]'"


def trials(out: Path) -> list[Row]:
    """One row per trial of the search in `out`: id, parameters, status, value."""
    with _study(read_search(out), out) as study:
        return [_row(trial) for trial in study.trials]


def run_search(
    out: Path,
    n_trials: int,
    device: str = "cpu",
    progress: Callable[[Any], None] | None = None,
    workers: int = 1,
) -> Iterator[list[Row]]:
    """Go on with the search in `out` until it has `n_trials` trials; yields the rows of each batch.

    Raises:
        RunError: Optuna is not installed, or another process searches there.
    """
    search = read_search(out)
    with locked(out), _study(search, out) as study:
        while batch := _next_batch(search, study, n_trials):
            offset = sum(trial.state.is_finished() for trial in study.trials)
            report = _share(progress, offset, batch, n_trials)
            yield _train(search, study, batch, out, device, report, workers)


def _share(
    progress: Callable[[Any], None] | None, before: int, batch: Mapping[int, Any], n_trials: int
) -> Callable[[Any], None] | None:
    """The progress of a batch as that of the whole search."""
    if progress is None:
        return None
    part, whole = len(batch) / n_trials, before / n_trials
    return lambda now: progress(dataclasses.replace(now, done=whole + part * now.done))


def _next_batch(search: Search, study: Any, n_trials: int) -> dict[int, dict[str, Any]]:
    """Number → values of the trials to train next: those that were cut off, filled up with new
    ones. A new one is drawn in memory and written whole: killed while it is asked for, a trial is
    there with all of its values, or not at all and asked for again.
    """
    import optuna

    batch: dict[int, dict[str, Any]] = {}
    names = {space.name for space in search.spaces}
    for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        if set(trial.params) == names:
            batch[trial.number] = trial.params
        else:  # cut off while an earlier version asked for it
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    first = min(batch, default=len(study.trials))
    end = min(n_trials, (first // search.at_once + 1) * search.at_once)
    spaces = {space.name: space.distribution() for space in search.spaces}
    drawn = optuna.create_study(direction=study.direction)
    drawn.add_trials(study.trials)
    for number in range(len(study.trials), end):
        drawn.sampler = _sampler(search, number)
        batch[number] = drawn.ask(spaces).params
        study.add_trial(drawn.trials[number])
    return batch


def _train(
    search: Search,
    study: Any,
    batch: Mapping[int, Mapping[str, Any]],
    out: Path,
    device: str,
    progress: Callable[[Any], None] | None,
    workers: int,
) -> list[Row]:
    """Train a batch, tell the study what came of it, and give its rows."""
    import optuna

    from mechint.training import train_many

    specs = {number: search.specs(number, values, out) for number, values in batch.items()}
    flat = [spec for some in specs.values() for spec in some]
    runs = train_many(
        flat, resume=True, device=device, progress=progress, workers=min(workers, len(flat))
    )
    left, measured = iter(runs), probes_of(out)
    for number, some in specs.items():
        own = list(itertools.islice(left, len(some)))
        measure_rows(
            [{"id": str(number), "status": r.status, "path": str(r.path)} for r in own], out, device
        )
        value = objective_of(own, search.objective, measured, device)
        if value is None:
            study.tell(number, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(number, value)
    if not any(trial.value is not None for trial in study.trials):
        _check_there(runs, search.objective, measured, device)
    return [_row(trial) for trial in study.trials if trial.number in batch]


def _check_there(
    runs: Sequence[Run], name: str, measured: Sequence[Measurement], device: str
) -> None:
    """ParameterError where runs were trained and none has a number `name`."""
    held = [_held(run, name, measured, device) for run in runs if run.status != "failed"]
    if held and not any(name in one for one in held):
        known = ", ".join(dict.fromkeys(key for one in held for key in one if key != "step"))
        raise ParameterError(
            f"--objective {name}: no run has it; expected one of {known[:400]}, with another --out"
        )


def check_objective(name: str, spec: Spec) -> None:
    """Raise ParameterError, before anything is trained, where runs such as `spec` have no metric
    `name`: an untrained model is evaluated. Which numbers a probe gives depends on what it finds;
    of PROBE.METRIC the probe alone is looked up.
    """
    import torch

    from mechint.training.learners import learner_of

    if name.partition(".")[0] in PROBES:
        return
    learner = learner_of([spec.model], [spec.task], spec.train, torch.device("cpu"))
    precision = torch.float64 if spec.train.precision == "float64" else torch.float32
    initial = learner.initial(0, spec.train.seed)
    weights = {key: value[None].to(precision) for key, value in initial.items()}
    (metrics,) = learner.evaluate(weights, [spec.data_seed], 2)
    if name not in {"step", *metrics}:
        known = sorted(metrics, key=lambda one: one.count("."))  # those over all outputs first
        shown = ", ".join(known[:NAMES]) + (" …" if len(known) > NAMES else "")
        raise ParameterError(f"--objective {name}: expected PROBE.METRIC, or one of {shown}")


def objective_of(
    runs: Sequence[Run], name: str, measured: Sequence[Measurement] = (), device: str = "cpu"
) -> float | None:
    """The mean of the metric `name` over runs; None where one failed or has no such number. A probe
    is asked with the settings that it has among `measured`, else with its defaults, on `device`.
    """
    if any(run.status == "failed" for run in runs):
        return None
    found = [_held(run, name, measured, device).get(name) for run in runs]
    numbers = [value for value in found if isinstance(value, int | float) and math.isfinite(value)]
    return statistics.fmean(numbers) if len(numbers) == len(found) else None


def _held(run: Run, name: str, measured: Sequence[Measurement], device: str) -> Mapping[str, Any]:
    """The numbers of a run among which `name` is looked for: its metrics, or those of a probe."""
    probe = name.partition(".")[0]
    if name in run.final or probe not in PROBES:
        return run.final
    assert run.path is not None
    asked = next((one for one in measured if one.probe.name == probe), None)
    entry = Entry(run.path, run.path.name, opening={"device": device})
    return measure(entry, asked or Measurement.of(probe))


def _row(trial: Any) -> Row:
    states = {"COMPLETE": "finished", "FAIL": "failed", "RUNNING": "interrupted"}
    return {
        "id": f"trial={trial.number:04d}",
        "parameters": dict(trial.params),
        "status": states.get(trial.state.name, "waiting"),
        "value": trial.value,
    }


def _sampler(search: Search, number: int) -> Any:
    """What draws trial `number`, seeded by it."""
    import optuna

    seed = (1_000_003 * search.seed + number) % 2**32
    if search.sampler == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # trials of one batch keep apart although none of them has a value yet
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True)


class _study:
    """Optuna's study of the search in `out`, opened and closed."""

    def __init__(self, search: Search, out: Path) -> None:
        try:
            import optuna
        except ImportError as error:
            raise RunError(MISSING) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # not by its URL, in which "?", "%" and "{" of a directory's name would mean something else
        opened = partial(sqlite3.connect, (out / STUDY).resolve(), check_same_thread=False)
        self.storage = optuna.storages.RDBStorage(
            f"sqlite:///{STUDY}", engine_kwargs={"creator": opened}
        )
        self.study = optuna.create_study(
            study_name="search",
            storage=self.storage,
            load_if_exists=True,
            direction="minimize" if search.minimize else "maximize",
        )

    def __enter__(self) -> Any:
        return self.study

    def __exit__(self, *_: object) -> None:
        self.storage.remove_session()
        self.storage.engine.dispose()
