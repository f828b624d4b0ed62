"""The probes of a table: the numbers that one gives on one model, as columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mechint.errors import MechintError
from mechint.probe import Probe
from mechint.probe.results import ProbeResult
from mechint.registry import PROBES
from mechint.run_table import cache
from mechint.run_table.entries import Entry
from mechint.system.parallel import run_jobs

if TYPE_CHECKING:
    from mechint.subject import Subject, Which

MAX_ITEMS = 12
"""Members of a metric that is a mapping, up to which each becomes a column of its own."""
CHANGING = "its run goes on and its weights changed while they were measured; ask again later"


@dataclass(frozen=True)
class Measurement:
    """A probe with its settings and seed, as columns of the table.

    answer: which one is asked about, the subject's own choice when None; kept_only: show what is
    kept of the runs, and measure nothing; figures: keep the probe's figures too; trusted: take what
    others kept in their runs as it is.
    """

    probe: Probe
    seed: int = 0
    answer: Which | None = None
    kept_only: bool = False
    figures: bool = False
    trusted: bool = False

    @classmethod
    def of(cls, name: str, *, seed: int = 0, answer: Any = None, **settings: Any) -> Measurement:
        """The probe of that name with some of its settings.

        Raises:
            UnknownNameError, ParameterError: no such probe or setting.
        """
        return cls(PROBES[name].from_dict(settings), seed, answer)

    @classmethod
    def from_key(cls, key: Mapping[str, Any]) -> Measurement:
        """The measurement that has this `key`."""
        given = {"seed": key["seed"], "answer": key["answer"]}
        return cls.of(key["probe"], **given, **key["settings"])

    @property
    def key(self) -> dict[str, Any]:
        """All that the numbers depend on besides the model."""
        name, settings = self.probe.name, self.probe.to_dict()
        return {"probe": name, "settings": settings, "seed": self.seed, "answer": self.answer}


Job = tuple[int, Entry, Measurement]


def measure_all(jobs: Sequence[Job], workers: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """(index of the entry, its columns) of every job. What is kept is read here, and opens no
    model; processes are for what is left.

    Raises:
        MechintError: a process was ended; what was measured is kept.
    """
    left: list[Job] = []
    for index, entry, measurement in jobs:
        columns = kept_columns(entry, measurement)
        if columns is None:
            left.append((index, entry, measurement))
        else:
            yield index, columns
    if workers == 1 or len(left) < 2 or any(entry.source is not None for _, entry, _ in left):
        yield from ((index, measure(entry, measurement)) for index, entry, measurement in left)
        return
    pairs = [(entry, measurement) for _, entry, measurement in left]
    for place, outcome in run_jobs(measure, pairs, workers):
        if isinstance(outcome, MechintError):
            raise MechintError(
                f"measuring: {outcome}; what was measured is kept, and the same command goes on, "
                "with a smaller --workers where it was memory"
            )
        yield left[place][0], outcome


def kept_columns(entry: Entry, measurement: Measurement) -> dict[str, Any] | None:
    """Kept columns of one probe on one model; None if it must be measured, because nothing is kept
    or something that the numbers depend on has changed.
    """
    kept = cache.read(entry, measurement)
    if kept is None or (measurement.figures and kept["figures"] is None):
        return {} if measurement.kept_only else None
    columns = kept["columns"]
    if measurement.kept_only and measurement.probe != type(measurement.probe)():
        columns.pop(f"{measurement.probe.name}.verdict", None)
    return columns


def measure(entry: Entry, measurement: Measurement) -> dict[str, Any]:
    """The columns of one probe on one model, from the cache where they are kept. A model whose
    weights change meanwhile, because its run goes on, has the error `CHANGING`.
    """
    columns = kept_columns(entry, measurement)
    if columns is not None:
        return columns
    name = measurement.probe.name
    place = cache.place_of(entry, measurement.key)
    try:
        subject = entry.subject()
        result = measurement.probe.run(subject, seed=measurement.seed, answer=measurement.answer)
    except MechintError as error:
        return {f"{name}.error": " ".join(str(error).split())}
    except Exception as error:  # of a plug-in: it does not lose the rest of the table
        return {f"{name}.error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    if place != cache.place_of(entry, measurement.key):
        return {f"{name}.error": CHANGING}
    columns = columns_of(name, result)
    if not entry.is_run:  # whose evaluations nobody kept
        columns |= quality_columns(subject)
    cache.keep(place, entry, measurement, columns, result.figures if measurement.figures else None)
    return columns


def quality_columns(subject: Subject) -> dict[str, float]:
    """Accuracy and loss as columns, means over the outputs: of all answers, and of the held-out
    ones as "test.accuracy" where the split is known; {} where nothing is classified.
    """
    from mechint.checkpoints import performance

    measured = performance.measure(subject, subject.split)
    if measured is None or not measured.accuracy:
        return {}
    parts = {"accuracy": measured.accuracy, "loss": measured.loss}
    if measured.held_out:
        parts["test.accuracy"] = measured.held_out
    return {name: math.fsum(part.values()) / len(part) for name, part in parts.items()}


def columns_of(name: str, result: ProbeResult) -> dict[str, Any]:
    """A result's verdict and metrics (numbers, texts, lists) as flat columns, p-values as
    ``METRIC.p``.
    """
    columns: dict[str, Any] = {f"{name}.verdict": result.verdict}
    for metric, value in result.to_dict(arrays=False, figures=False)["metrics"].items():
        column = metric if metric.startswith(f"{name}.") else f"{name}.{metric}"
        if isinstance(value, Mapping) and len(value) <= MAX_ITEMS:
            columns |= {f"{column}.{key}": item for key, item in value.items()}
        else:
            columns[column] = value
        if metric in result.null:
            columns[f"{column}.p"] = result.null[metric].p_value
    return columns
