"""Many models as one table: a run's steps, the runs of a sweep, or any list of checkpoints.

    table = mechint.runs("runs/sweep").probe("fourier").probe("norms")
    table.frame()                      # one row per model: configuration, metrics, probe columns
    table.over_steps().probe("progress").csv("steps.csv")

A table is lazy: models are opened when `rows`, `frame`, `csv` or `figure` asks first, and again
where their weights have changed since. Memory: one model at a time and worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.errors import CheckpointError, ParameterError, counted
from mechint.models import find_device
from mechint.run_table.entries import (
    Entry,
    find_entries,
    is_setting,
    with_distinct_names,
    with_steps,
)
from mechint.run_table.measuring import CHANGING, Measurement, measure_all
from mechint.system.files import csv_text, write_text
from mechint.system.progress import Count

if TYPE_CHECKING:
    import pandas as pd

    from mechint.probe.results import Figure
    from mechint.subject import Subject
    from mechint.task import Task


@dataclass(frozen=True)
class Runs:
    """A lazy table of models; every method that adds something returns a new table.

    entries: the models, in the order of the paths given; measurements: the probes whose numbers are
    columns; workers: processes that measure, one thread each.
    """

    entries: tuple[Entry, ...]
    measurements: tuple[Measurement, ...] = ()
    workers: int = 1
    _held: dict[tuple[int, int | None], tuple[dict[str, Any], dict[str, Mapping[str, Figure]]]] = (
        field(default_factory=dict, init=False, repr=False, compare=False)
    )
    """Columns and figures by the index of an entry and the time of its weights."""

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        names = ", ".join(measurement.probe.name for measurement in self.measurements)
        return f"Runs({counted(len(self), 'model')}{f', probes {names}' if names else ''})"

    # --- what is asked ----------------------------------------------------------------------------
    def probe(self, name: str, *, seed: int = 0, answer: Any = None, **settings: Any) -> Runs:
        """The table with the numbers of a probe as columns ``NAME.metric``.

        Args:
            name: of the registry; settings: fields of the probe.
            answer: which answer is asked about, as in `mechint.Subject.with_answer`.

        Raises:
            UnknownNameError, ParameterError: no such probe or setting.
        """
        added = Measurement.of(name, seed=seed, answer=answer, **settings)
        return replace(self, measurements=(*self.measurements, added))

    def explain(
        self, family: str | None = None, *, seed: int = 0, answer: Any = None, examples: int = 3000
    ) -> Runs:
        """The table with the best explanation of every model as columns ``explain.family``,
        ``explain.standing``, ``explain.reason``, ``explain.accounted``, ``explain.parts``,
        ``explain.blocks`` and ``explain.name``.

        Args: as of `mechint.explanation.explain`; answer: as of `probe`.
        """
        from mechint.explanation.table import BestExplanation

        made = Measurement(BestExplanation(family, examples), seed, answer)
        return replace(self, measurements=(*self.measurements, made))

    def over_steps(self) -> Runs:
        """One row per kept checkpoint of every run, in place of one per run; training metrics stand
        in the rows at whose step the run was evaluated. The steps of files of one's own training
        loop are those in their names: step300.pt, step1000.pt.

        Raises:
            CheckpointError: no run here keeps checkpoints.
        """
        entries = [step for entry in self.entries for step in entry.steps()]
        if all(entry.step is None for entry in entries):
            numbered = with_steps(entries)
            if numbered is None:
                raise CheckpointError(
                    f"{self.entries[0].path}: keeps no checkpoints to look at over steps; train "
                    "with --set checkpoints=log, or give files with the step in their names"
                )
            entries = numbered
        return replace(self, entries=tuple(entries))

    def with_figures(self) -> Runs:
        """The table that draws the probes' figures too, for `figures_of`."""
        drawn = (replace(one, figures=True) for one in self.measurements)
        return replace(self, measurements=tuple(drawn))

    def figures_of(self, name: str) -> list[Mapping[str, Figure]]:
        """Per model, the figures of the probe `name` in a table made `with_figures`."""
        self.rows()
        return [self._held[i, one.weights_changed()][1][name] for i, one in enumerate(self.entries)]

    # --- what is answered -------------------------------------------------------------------------
    def rows(self, progress: Count | None = None) -> list[dict[str, Any]]:
        """One mapping per model: path, name, status, step, configuration, metrics, probe columns.

        progress: called with how many models are done, how many there are, and the latest name.

        A model that a probe refuses, or whose weights change meanwhile because its run goes on, has
        the reason under ``NAME.error``; the others go on.
        """
        rows = list(self.each(progress))
        names = {name for row in rows for name in row if is_setting(name)}
        same = {n for n in names if len(rows) > 1 and all(r.get(n) == rows[0].get(n) for r in rows)}
        return [{n: value for n, value in row.items() if n not in same} for row in rows]

    def each(self, progress: Count | None = None) -> Iterator[dict[str, Any]]:
        """The rows one by one, each as soon as it and those before it are measured; the settings in
        which no row differs are left in.

        progress: as of `rows`.
        """
        # no row has the step of other weights than those that were measured
        before = [entry.weights_changed() for entry in self.entries]
        rows = [entry.describe() for entry in self.entries]
        jobs = [
            (index, entry, measurement)
            for index, entry in enumerate(self.entries)
            if (index, before[index]) not in self._held
            for measurement in self.measurements
        ]
        missing = Counter(index for index, _, _ in jobs)
        made: list[tuple[dict[str, Any], dict[str, Any]]] = [({}, {}) for _ in rows]
        shown = 0
        outcomes = measure_all(jobs, self.workers)
        for done in range(len(jobs) + 1):
            while shown < len(rows) and not missing[shown]:
                columns, _ = self._held.setdefault((shown, before[shown]), made[shown])
                if self.entries[shown].weights_changed() != before[shown]:
                    columns = {f"{one.partition('.')[0]}.error": CHANGING for one in columns}
                yield rows[shown] | columns
                shown += 1
            if done < len(jobs):
                index, (found, drawn) = next(outcomes)
                made[index][0].update(found)
                made[index][1][next(iter(found)).partition(".")[0]] = drawn
                missing[index] -= 1
                if progress is not None:
                    progress(done + 1, len(jobs), self.entries[index].name)

    def frame(self, progress: Count | None = None) -> pd.DataFrame:
        """The table as a DataFrame, one row per model."""
        import pandas as pd

        return pd.DataFrame(self.rows(progress))

    def csv(self, path: str | Path, progress: Count | None = None) -> Path:
        """Write the table as CSV, lists as JSON text; RunError if `path` cannot be written."""
        write_text(path, csv_text(self.rows(progress)))
        return Path(path)

    def figure(self, x: str, y: str | Sequence[str], color: str | None = None) -> Figure:
        """Columns `y` over column `x`; one curve per value of column `color`, means over the rest
        with the range of the rows as a band. Over the steps of runs, training metrics are drawn at
        every evaluation.

        Raises:
            ParameterError: no such column.
        """
        from mechint.run_table.dynamics import with_evaluations
        from mechint.run_table.page import figure_of

        rows = self.rows()
        if x == "step" and any(entry.step is not None for entry in self.entries):
            rows = with_evaluations(rows)
        return figure_of(rows, x, [y] if isinstance(y, str) else list(y), color)


def runs(
    models: str
    | Path
    | Subject
    | Iterable[str | Path | Subject]
    | Mapping[str, str | Path | Subject],
    *,
    workers: int = 1,
    task: str | Task | None = None,
    data: str | Path | Sequence[Any] | None = None,
    device: str = "cpu",
    opener: Callable[[Path], Subject] | None = None,
    **parameters: Any,
) -> Runs:
    """A table of models: checkpoints, runs, folders of runs, sweeps, subjects.

    Args:
        models: one, several, or name → model. A folder is searched for runs to any depth, in
            natural order.
        workers: processes that measure; subjects are measured in this one.
        task: of checkpoint files that do not name it, as in `mechint.load`; `parameters` are the
            task's. A run states both.
        data: prompts that checkpoints of a language model are asked about, as in `mechint.load`.
        device: where the models are measured: "cpu", "cuda" or "cuda:1".
        opener: opens a file as a subject, in place of `mechint.load`: for checkpoints of one's own,
            with `mechint.wrap`.

    Raises:
        CheckpointError: a path that is not there, or that holds neither a checkpoint nor a run.
        ParameterError: a device that is not there, or a task or parameters where a path is a run.

    Example:
        >>> from mechint import planted
        >>> adders = {f"mod {p}": planted.modular_addition(p, (1, 2)).subject for p in (7, 11)}
        >>> runs(adders).probe("norms").frame()["name"].tolist()
        ['mod 7', 'mod 11']
    """
    from mechint.subject import Subject

    find_device(device)
    if not 1 <= workers <= 256:
        raise ParameterError(f"runs: workers={workers}: expected 1 to 256")
    opening = {"task": task, "parameters": parameters, "device": device, "data": data}
    if isinstance(models, str | Path | Subject):
        models = [models]
    named: list[tuple[Any, str | Path | Subject]] = (
        list(models.items()) if isinstance(models, Mapping) else [("", one) for one in models]
    )
    entries: list[Entry] = []
    for place, (name, model) in enumerate(named):
        if isinstance(model, Subject):
            entries.append(Entry(Path(), name or f"model-{place}", source=model))
            continue
        path = Path(model)
        if opener is not None:
            found = [Entry(path, path.name, source=opener)]
        else:
            found = [replace(one, opening=opening) for one in find_entries(path)]
        entries += [replace(found[0], name=name)] if name and len(found) == 1 else found
    if not entries:
        raise CheckpointError("runs: expected at least one path of a checkpoint or a run")
    asked = {"task": task, "data": data}
    given = [*(name for name, value in asked.items() if value is not None), *parameters]
    run = next((entry for entry in entries if entry.is_run), None)
    if given and run is not None:
        raise ParameterError(
            f"{run.path}: a run states its task and the task's parameters; expected these, and "
            f"data, for checkpoint files alone, got {', '.join(given)}"
        )
    return Runs(tuple(with_distinct_names(entries)), workers=workers)
