"""The probes of a table: what one gave on one model, as columns kept beside the run, by one process
or several.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mechint.errors import MechintError
from mechint.probe import Probe
from mechint.registry import PROBES
from mechint.results import ProbeResult
from mechint.run_table.entries import Entry
from mechint.run_table.source import source_digest

if TYPE_CHECKING:
    from mechint.subject import Which

MAX_ITEMS = 12
"""Members of a metric that is a mapping, up to which each becomes a column of its own."""

OUTDATED = "{name}: kept from another version of the probe; --probe {name} measures it again"


@dataclass(frozen=True)
class Measurement:
    """A probe with its settings and seed, as columns of the table.

    answer: which one is asked about, the subject's own choice when None; kept_only: show what is
    kept beside the runs, and measure nothing; figures: keep the probe's figures beside the runs
    too.
    """

    probe: Probe
    seed: int = 0
    answer: Which | None = None
    kept_only: bool = False
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
        given = {"seed": key["seed"], "answer": key.get("answer")}
        return cls.of(key["probe"], **given, **key["settings"])

    @property
    def key(self) -> dict[str, Any]:
        """What the numbers depend on besides the model."""
        name, settings = self.probe.name, self.probe.to_dict()
        # left out where none is named, as in the files of earlier versions
        answer = {} if self.answer is None else {"answer": self.answer}
        return {"probe": name, "settings": settings, "seed": self.seed, **answer}

    @property
    def code(self) -> str | None:
        """Digest of the code that measures; None where its source is not in files."""
        return source_digest(type(self.probe))


Job = tuple[int, Entry, Measurement]


def run_jobs(jobs: Sequence[Job], workers: int) -> Iterable[tuple[int, dict[str, Any]]]:
    """(index of the entry, its columns) of every job. What is kept is read here, and opens no
    model; processes are for what is left.
    """
    left: list[Job] = []
    for job in jobs:
        index, entry, measurement = job
        columns = kept_columns(entry, measurement)
        if columns is None:
            left.append(job)
        else:
            yield index, columns
    if workers == 1 or len(left) < 2:
        yield from map(_job, left)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    context, most = multiprocessing.get_context("spawn"), min(workers, len(left))
    try:
        with ProcessPoolExecutor(most, mp_context=context, initializer=_prepare) as pool:
            yield from pool.map(_job, left)
    except BrokenProcessPool as error:
        raise MechintError(
            "a process that measures was ended, perhaps because memory ran out; what was measured "
            "is kept, and the same command goes on, with a smaller --workers where it was memory"
        ) from error


def _prepare() -> None:
    """A worker has one thread and the plug-ins of this process, and ends when this process does,
    however that ends: it would wait for jobs for ever.
    """
    import multiprocessing
    import os
    import threading

    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()

    import torch

    from mechint.plugins import load_given_plugins

    torch.set_num_threads(1)
    load_given_plugins()


def _job(job: Job) -> tuple[int, dict[str, Any]]:
    index, entry, measurement = job
    return index, measure(entry, measurement)


def kept_columns(entry: Entry, measurement: Measurement) -> dict[str, Any] | None:
    """Cached columns of one probe on one model; None if it must be measured, because nothing is
    cached or another version of the probe wrote it.
    """
    name, kept = measurement.probe.name, entry.cached(measurement.key)
    current = kept is not None and kept["code"] is not None and kept["code"] == measurement.code
    columns = kept["columns"] if kept is not None and current else None
    if measurement.kept_only:
        old = {f"{name}.verdict": "outdated", f"{name}.error": OUTDATED.format(name=name)}
        return columns or ({} if kept is None else old)
    lacks_figures = measurement.figures and entry.kept_figures(measurement.key) is None
    return None if lacks_figures else columns


TRIES = 3
"""How often a model is measured whose weights change meanwhile."""
CHANGING = "its run goes on and its weights changed while they were measured; ask again later"


def measure(entry: Entry, measurement: Measurement) -> dict[str, Any]:
    """The columns of one probe on one model; read from beside the run where they are kept. A model
    whose weights changed meanwhile, because its run was gone on with, is measured again.
    """
    columns = kept_columns(entry, measurement)
    if columns is not None:
        return columns
    name, key, place = measurement.probe.name, measurement.key, entry.place_of(measurement.key)
    for _ in range(TRIES):
        try:
            result = measurement.probe.run(
                entry.subject(), seed=measurement.seed, answer=measurement.answer
            )
        except MechintError as error:
            return {f"{name}.error": " ".join(str(error).split())}
        measured, place = place, entry.place_of(key)
        if measured == place:
            break
    else:
        return {f"{name}.error": CHANGING}
    columns = columns_of(name, result)
    if measurement.code is not None:
        figures = result.figures if measurement.figures else None
        entry.keep(place, key, columns, figures, code=measurement.code)
    return columns


def columns_of(name: str, result: ProbeResult) -> dict[str, Any]:
    """A result's metrics as flat columns, p-values as ``METRIC.p``; long lists as JSON text."""
    columns: dict[str, Any] = {f"{name}.verdict": result.verdict}
    for metric, value in result.to_dict(arrays=False, figures=False)["metrics"].items():
        if isinstance(value, Mapping) and len(value) <= MAX_ITEMS:
            columns |= {f"{name}.{metric}.{key}": _cell(item) for key, item in value.items()}
        else:
            columns[f"{name}.{metric}"] = _cell(value)
        if metric in result.null:
            columns[f"{name}.{metric}.p"] = result.null[metric].p_value
    return columns


def _cell(value: Any) -> Any:
    """A number, text or truth value as it is; anything longer as JSON text."""
    return json.dumps(value) if isinstance(value, list | dict) else value
