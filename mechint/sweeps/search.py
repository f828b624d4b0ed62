"""A search for the settings that do best: trials are asked of Optuna, trained together, and told.

DIR/search.json    the search; another one is refused
DIR/search.db      Optuna's study
DIR/trial=0003/    the run of a trial, or a folder of its runs
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import re
import sqlite3
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.config.settings import parse_value, shown, split_named
from mechint.errors import ParameterError, RunError
from mechint.registry import PROBES
from mechint.run_table import Entry, Measurement, measure
from mechint.sweeps.directory import probes_of, refuse_other_sources
from mechint.sweeps.planning import Row, make_spec, run_name
from mechint.system.files import make_directory, parse_json, read_bytes, write_text
from mechint.system.locks import locked
from mechint.task import SPLITS

if TYPE_CHECKING:
    from mechint.training import Run, Spec

SEARCH, STUDY = "search.json", "search.db"
SAMPLERS = ("tpe", "random")


@dataclass(frozen=True)
class Space:
    """The values that one setting is searched in: from `low` to `high`, or one of `choices`.

    log: the logarithm is drawn evenly; whole: integers.
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    choices: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Space:
        """The space of a ``--search``; ParameterError where it is none.

        >>> Space.parse("lr=1e-4..1e-2:log").log, Space.parse("d_mlp=32..64").whole
        (True, True)
        >>> Space.parse("optimizer=adamw,muon").choices
        ('adamw', 'muon')
        """
        where = f"--search {shown(text)}"
        expected = "name=low..high, name=low..high:log or a list"
        name, values = split_named(text, where, expected)
        match = re.fullmatch(r"([^.,:]+(?:\.\d[^.,:]*)?)\.\.([^,:]+?)(:log)?", values)
        if match is None:
            choices = tuple(parse_value(part, where) for part in values.split(","))
            if len({json.dumps(choice) for choice in choices}) < max(2, len(choices)):
                raise ParameterError(f"{where}: expected two values or more, each once")
            return cls(name, choices=choices)
        low, high = (parse_value(part, where) for part in match.groups()[:2])
        numbers = all(isinstance(end, int | float) for end in (low, high))
        if not numbers or isinstance(low, bool) or not -math.inf < low < high < math.inf:
            raise ParameterError(f"{where}: expected two numbers, the smaller one first")
        if match[3] and low <= 0:
            raise ParameterError(f"{where}: expected ends above 0, since it is logarithmic")
        whole = isinstance(low, int) and isinstance(high, int)
        return cls(name, float(low), float(high), bool(match[3]), whole)

    @property
    def ends(self) -> tuple[Any, ...]:
        """Its choices, or its least and largest value."""
        ends = self.choices or (self.low, self.high)
        return tuple(map(int, ends)) if self.whole else ends

    def distribution(self) -> Any:
        """Optuna's object for it."""
        from optuna import distributions

        if self.choices:
            return distributions.CategoricalDistribution(self.choices)
        if self.whole:
            return distributions.IntDistribution(int(self.low), int(self.high), log=self.log)
        return distributions.FloatDistribution(self.low, self.high, log=self.log)


@dataclass(frozen=True)
class SweepSearch:
    """A search.

    settings: ``name=value`` of every run; spaces: of the settings that are searched; over: name →
    values that every trial trains a run each for, the objective being their mean; objective: a
    metric of the last evaluation ("test.accuracy"), or PROBE.METRIC of a probe; at_once: trials
    that are asked for and trained together; trials: how many in all, which a later command may
    raise.
    """

    task: str
    settings: tuple[str, ...]
    spaces: tuple[Space, ...]
    over: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    objective: str = "test.accuracy"
    minimize: bool = False
    sampler: str = "tpe"
    seed: int = 0
    at_once: int = 8
    trials: int = field(default=20, compare=False)

    def __post_init__(self) -> None:
        counts = {"at_once": self.at_once, "trials": self.trials, "seed": self.seed + 1}
        for name, value in counts.items():
            if value < 1:
                raise ParameterError(f"search: {name}: expected a number from 1 on, a seed from 0")
        if self.sampler not in SAMPLERS:
            raise ParameterError(f"--sampler {self.sampler}: expected {' or '.join(SAMPLERS)}")
        first = self.objective.partition(".")[0]
        if first not in SPLITS and first not in PROBES:
            raise ParameterError(
                f"--objective {self.objective}: expected PROBE.METRIC, or a metric of a split such "
                "as test.accuracy"
            )
        if not self.spaces:
            raise ParameterError("search: expected a space, such as --search lr=1e-4..1e-2:log")
        first = {name: values[0] for name, values in self.over.items()}
        for space in self.spaces:  # a name or an end that does not fit is said before any training
            for end in space.ends:
                make_spec(self.task, self.settings, {**first, space.name: end})

    def specs(self, number: int, values: Mapping[str, Any], out: Path) -> list[Spec]:
        """The runs of a trial."""
        place = out / f"trial={number:04d}"
        swept = [
            dict(zip(self.over, some, strict=True))
            for some in itertools.product(*self.over.values())
        ]
        return [
            make_spec(
                self.task, self.settings, {**values, **one}, place / run_name(one) if one else place
            )
            for one in swept
        ]


def keep_search(search: SweepSearch, out: Path) -> None:
    """Write the search into `out`; RunError if `out` holds something else."""
    file = make_directory(out) / SEARCH
    text = json.dumps(dataclasses.asdict(search), indent=1)
    if file.exists():
        there = read_search(out)
        kept = json.dumps(dataclasses.asdict(dataclasses.replace(there, trials=search.trials)))
        if json.loads(kept) != json.loads(text):
            raise RunError(f"{out}: holds another search; choose another --out")
        if there.trials != search.trials:
            write_text(file, text)
    elif any(path.name != ".lock" and not path.name.endswith(".part") for path in out.iterdir()):
        raise RunError(f"{out}: holds something else; choose an empty directory for the search")
    else:
        write_text(file, text)


def read_search(out: Path) -> SweepSearch:
    """The search in the directory `out`; RunError where there is none."""
    try:
        data = parse_json(read_bytes(out / SEARCH), out / SEARCH)
        spaces = [Space(**{**one, "choices": tuple(one["choices"])}) for one in data["spaces"]]
        return SweepSearch(**{**data, "settings": tuple(data["settings"]), "spaces": tuple(spaces)})
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{out}: holds no search: {error}") from error


def trials(out: Path) -> list[Row]:
    """One row per trial of the search in `out`: id, parameters, status, value; nothing is written.

    Raises:
        RunError: the search or its study is damaged.
    """
    search, file = read_search(out), out / STUDY
    if not file.is_file():
        return []
    try:
        with _study(search, out) as study:
            rows = [_row(trial) for trial in study.trials]
        if not all(isinstance(row["value"], int | float | None) for row in rows):
            raise ValueError("a value is no number")
    except RunError:
        raise
    except Exception as error:  # of what was edited SQLite and Optuna raise nearly anything
        raise _damaged(file, error) from error
    return rows


def run_search(
    out: Path,
    n_trials: int,
    device: str = "cpu",
    progress: Callable[[Any], None] | None = None,
    workers: int = 1,
    other_sources: bool = False,
) -> Iterator[list[Row]]:
    """Go on with the search in `out` until it has `n_trials` trials; yields the rows of each batch.

    other_sources: go on where trials were trained with other sources of the task.

    Raises:
        RunError: Optuna is not installed, the study is damaged, another process searches there, or
            trials there were trained with other sources.
    """
    search = read_search(out)
    if not other_sources:
        refuse_other_sources(out, search.task)
    with locked(out), _study(search, out) as study:
        while batch := _next_batch(search, study, n_trials):
            before = sum(trial.state.is_finished() for trial in study.trials) / n_trials
            report = progress and partial(_share, progress, before, len(batch) / n_trials)
            yield _train(search, study, batch, out, device, report, workers)


def _share(report: Callable[[Any], None], before: float, share: float, now: Any) -> None:
    """Report the progress of a batch as that of the whole search."""
    report(dataclasses.replace(now, done=before + share * now.done))


def _next_batch(search: SweepSearch, study: Any, n_trials: int) -> dict[int, dict[str, Any]]:
    """Number → values of the trials to train next: those that were cut off, filled up with new
    ones. A new one is drawn in memory and written whole: killed while it is asked for, a trial is
    there with all of its values, or not at all and asked for again.
    """
    import optuna

    cut_off = study.get_trials(states=(optuna.trial.TrialState.RUNNING,))
    batch: dict[int, dict[str, Any]] = {trial.number: trial.params for trial in cut_off}
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
    search: SweepSearch,
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
    asked = next((one for one in measured if one.probe.name == probe), None)
    assert run.path is not None
    entry = Entry(run.path, run.path.name, opening={"device": device})
    return measure(entry, asked or Measurement.of(probe))[0]


def _row(trial: Any) -> Row:
    states = {"COMPLETE": "finished", "FAIL": "failed", "RUNNING": "interrupted"}
    return {
        "id": f"trial={trial.number:04d}",
        "parameters": dict(trial.params),
        "status": states.get(trial.state.name, "waiting"),
        "value": trial.value,
    }


def _sampler(search: SweepSearch, number: int) -> Any:
    """The sampler that draws trial `number`, seeded by it."""
    import optuna

    seed = (1_000_003 * search.seed + number) % 2**32
    if search.sampler == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # trials of one batch keep apart although none of them has a value yet
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True)


@contextlib.contextmanager
def _study(search: SweepSearch, out: Path) -> Iterator[Any]:
    """Optuna's study of the search in `out`."""
    try:
        import optuna
    except ImportError as error:
        raise RunError("search: Optuna is not installed; pip install optuna") from error
    from sqlalchemy.exc import SQLAlchemyError  # of Optuna's own storage

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file = out / STUDY
    # not by its URL, in which "?", "%" and "{" of a directory's name would mean something else
    opened = partial(sqlite3.connect, file.resolve(), check_same_thread=False)
    storage = None
    try:
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{STUDY}", engine_kwargs={"creator": opened}
        )
        study = optuna.create_study(
            study_name="search",
            storage=storage,
            load_if_exists=True,
            direction="minimize" if search.minimize else "maximize",
        )
    except Exception as error:  # SQLite, SQLAlchemy and Optuna raise nearly anything
        if storage is not None:
            storage.engine.dispose()
        raise _damaged(file, error) from error
    try:
        yield study
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        raise _damaged(file, error) from error
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _damaged(file: Path, error: Exception) -> RunError:
    text = " ".join(str(error).split())[:160]
    return RunError(f"{file}: damaged ({text}); delete it and the search asks for its trials anew")
