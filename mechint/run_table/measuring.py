"""The probes of a table: the numbers that one gives on one model, as columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mechint.errors import MechintError
from mechint.probe import Probe
from mechint.probe.results import Figure, ProbeResult
from mechint.registry import PROBES
from mechint.run_table.entries import Entry
from mechint.system.jsonable import to_jsonable
from mechint.system.parallel import run_jobs

if TYPE_CHECKING:
    from mechint.subject import Subject, Which

MAX_ITEMS = 12
"""Members of a metric that is a mapping, up to which each becomes a column of its own."""
CHANGING = "its run goes on and its weights changed while they were measured; ask again later"


@dataclass(frozen=True)
class Measurement:
    """A probe with its settings and seed, as columns of the table.

    answer: which one is asked about, the subject's own choice when None; figures: give the probe's
    figures too.
    """

    probe: Probe
    seed: int = 0
    answer: Which | None = None
    figures: bool = False

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


Measured = tuple[dict[str, Any], Mapping[str, Figure]]
"""Columns, and the figures where the measurement asks for them."""


def measure_all(
    jobs: Sequence[tuple[int, Entry, Measurement]], workers: int
) -> Iterator[tuple[int, Measured]]:
    """(index of the entry, what was measured) of every job; of one whose process was ended, the
    error that says so.
    """
    pairs = [(entry, measurement) for _, entry, measurement in jobs]
    if workers == 1 or len(jobs) < 2 or any(entry.source is not None for entry, _ in pairs):
        yield from ((index, measure(entry, measurement)) for index, entry, measurement in jobs)
        return
    for place, outcome in run_jobs(measure, pairs, workers):
        if isinstance(outcome, MechintError):
            told = f"{outcome}; where it was memory, a smaller --workers takes less"
            outcome = {f"{jobs[place][2].probe.name}.error": told}, {}
        yield jobs[place][0], outcome


def measure(entry: Entry, measurement: Measurement) -> Measured:
    """Run one probe on one model; the reason stands in the column ``NAME.error`` where it gives
    nothing.
    """
    name = measurement.probe.name
    try:
        subject = entry.subject()
        result = measurement.probe.run(subject, seed=measurement.seed, answer=measurement.answer)
    except MechintError as error:
        return {f"{name}.error": " ".join(str(error).split())}, {}
    except Exception as error:  # of a plug-in: it does not lose the rest of the table
        return {f"{name}.error": f"{type(error).__name__}: {' '.join(str(error).split())}"}, {}
    columns = columns_of(name, result)
    if not entry.is_run:  # which nothing evaluated
        columns |= quality_columns(subject)
    return columns, result.figures if measurement.figures else {}


def quality_columns(subject: Subject) -> dict[str, float]:
    """Accuracy and loss as columns, means over the outputs: of all answers, and of the held-out
    ones as "test.accuracy" where the split is known; {} where nothing is classified.
    """
    from mechint.checkpoints.checkpoint import measure_performance

    measured = measure_performance(subject, subject.split)
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
    for metric, value in to_jsonable(result.metrics).items():
        column = metric if metric.startswith(f"{name}.") else f"{name}.{metric}"
        if isinstance(value, Mapping) and len(value) <= MAX_ITEMS:
            columns |= {f"{column}.{key}": item for key, item in value.items()}
        else:
            columns[column] = value
        if metric in result.null:
            columns[f"{column}.p"] = result.null[metric].p_value
    return columns
