"""What a study is: the runs of a paper, and the claims that are held against them.

A study lists its runs and analyses them; it trains nothing and writes nothing. A claim whose runs
failed is not tested, with the error as its note, and the other claims go on.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from mechint.config import Settings, TrainConfig
from mechint.errors import MechintError, TrainingError
from mechint.registry import TASKS
from mechint.results import Claim, Figure, Table
from mechint.training import Run, Spec, spec

SIZES = ("smoke", "laptop", "full")
"""smoke: seconds, judges no claim; laptop: minutes on two cores; full: the paper's own sizes."""


@dataclass(frozen=True)
class Planned:
    """One run of a study: a name of its own (the folder), what is trained, and what the DataFrame
    says of it.
    """

    name: str
    spec: Spec
    labels: Mapping[str, Any]


def plan(
    name: str,
    task: str,
    parameters: Mapping[str, Any] | None = None,
    model: Settings | Mapping[str, Any] | None = None,
    train: TrainConfig | Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    **labels: Any,
) -> Planned:
    """A run of the registry's `task` with `parameters`, its name ending in the seed; `labels` say
    which arm it is of.

    >>> planned = plan("direct", "composition", {"n": 3, "k": 2, "hops": (2,)}, {"d_model": 16},
    ...     {"steps": 5}, seed=1, arm="direct")
    >>> planned.name, dict(planned.labels), planned.spec.train.seed
    ('direct-1', {'arm': 'direct', 'seed': 1}, 1)
    """
    made = TASKS[task](**(parameters or {}))
    return Planned(f"{name}-{seed}", spec(made, model, train, seed=seed), {**labels, "seed": seed})


class Runs(Mapping[str, Run]):
    """Runs by name. Reading one that has failed raises TrainingError, so that only the claims that
    need it are lost.
    """

    def __init__(self, runs: Mapping[str, Run], labels: Mapping[str, Mapping[str, Any]]) -> None:
        self._runs, self.labels = dict(runs), dict(labels)

    def __getitem__(self, name: str) -> Run:
        run = self._runs[name]
        if run.status not in ("finished", "stopped"):
            raise TrainingError(
                f"run {name} has failed: {run.error}"
                if run.status == "failed"
                else f"run {name} has not finished"
            )
        return run

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def select(self, **labels: Any) -> list[Run]:
        """The runs with all these labels, as planned; TrainingError where one has failed."""
        return [self[name] for name in self.names(**labels)]

    def names(self, **labels: Any) -> list[str]:
        """Names of the runs with all these labels."""
        return [
            name
            for name, own in self.labels.items()
            if all(own.get(key) == value for key, value in labels.items())
        ]

    def values_of(self, label: str, **labels: Any) -> list[Any]:
        """The different values of `label` among the runs with all these labels, in the order
        planned.
        """
        return list(
            dict.fromkeys(
                self.labels[name][label]
                for name in self.names(**labels)
                if label in self.labels[name]
            )
        )

    def spec(self, name: str) -> Spec:
        """What was asked for in the run `name`, whether it failed or not."""
        return self._runs[name].spec

    @property
    def failed(self) -> dict[str, str]:
        """Name → error of the runs that failed."""
        return {name: run.error for name, run in self._runs.items() if run.status == "failed"}


@dataclass(frozen=True)
class Stated:
    """A claim as the paper makes it, and how it will be judged: written down before the runs.

    paper: the paper's own figure; criterion: what our runs must show; reason: why that is fair;
    sizes: where it is judged, the smallest first.
    """

    letter: str
    statement: str
    paper: str
    criterion: str
    reason: str
    sizes: tuple[str, ...] = ("laptop", "full")


@dataclass(frozen=True)
class Finding:
    """What our runs show: whether the criterion is met, our figure in words, the numbers behind
    it.
    """

    holds: bool
    ours: str
    values: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


class Analysis:
    """Claims, figures and tables of a study, gathered one by one; what a failed run spoils is left
    out and named.

    claims: in the order judged; figures: name → Figure; sensitivity: name → Table of the
    alternatives to what the paper leaves open; tables: other numbers; missing: name of a figure or
    table → why it could not be made.

    >>> stated = Stated("a", "it learns", "accuracy 1", "accuracy ≥ 0.9", "far above chance")
    >>> book = Analysis("composition", "laptop")
    >>> book.judge(stated, lambda: Finding(True, "0.95")).verdict
    'reproduced'
    """

    def __init__(self, study: str, size: str) -> None:
        self.study, self.size = study, size
        self.claims: list[Claim] = []
        self.figures: dict[str, Figure] = {}
        self.sensitivity: dict[str, Table] = {}
        self.tables: dict[str, Table] = {}
        self.missing: dict[str, str] = {}

    def judge(self, stated: Stated, measure: Callable[[], Finding]) -> Claim:
        """Measure a claim and give the verdict; size smoke measures and judges nothing."""
        if self.size != "smoke" and self.size not in stated.sizes:
            claim = self._claim(
                stated,
                "not tested",
                "not measured at this size",
                note=f"size {stated.sizes[0]} tests it",
            )
        else:
            try:
                found = measure()
            except MechintError as error:
                claim = self._claim(stated, "not tested", "could not be measured", note=str(error))
            else:
                verdict = (
                    "not tested"
                    if self.size == "smoke"
                    else "reproduced"
                    if found.holds
                    else "not reproduced"
                )
                note = (
                    f"size smoke judges no claim; size {stated.sizes[0]} does"
                    if self.size == "smoke"
                    else found.note
                )
                claim = self._claim(stated, verdict, found.ours, found.values, note)
        self.claims.append(claim)
        return claim

    def _claim(
        self,
        stated: Stated,
        verdict: str,
        ours: str,
        values: Mapping[str, Any] | None = None,
        note: str = "",
    ) -> Claim:
        return Claim(
            self.study,
            stated.letter,
            stated.statement,
            stated.paper,
            ours,
            stated.criterion,
            stated.reason,
            verdict,
            values or {},
            note,
        )

    def draw(self, name: str, make: Callable[[], Figure]) -> None:
        """Add a figure."""
        self._add(self.figures, name, make)

    def vary(self, name: str, make: Callable[[], Table]) -> None:
        """Add a sensitivity table."""
        self._add(self.sensitivity, name, make)

    def tabulate(self, name: str, make: Callable[[], Table]) -> None:
        """Add another table."""
        self._add(self.tables, name, make)

    def _add(self, where: dict[str, Any], name: str, make: Callable[[], Any]) -> None:
        try:
            where[name] = make()
        except MechintError as error:
            self.missing[name] = str(error)


class Study(abc.ABC):
    """One paper. Class attributes: `name` (of the registry), `title`, `summary` (the paper in three
    sentences).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]

    @abc.abstractmethod
    def runs(self, size: str) -> list[Planned]:
        """What is trained at `size`, names all different."""

    @abc.abstractmethod
    def analyse(self, runs: Runs, size: str) -> Analysis:
        """Measure every claim on the trained runs; draws the paper's figures from them."""


def task_of(run: Run) -> Any:
    """The run's task, of the family that the study planned."""
    return run.spec.task


def model_of(run: Run) -> Any:
    """The run's model configuration, of the kind that the study planned."""
    return run.spec.model


def mean_and_spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean ± standard deviation over seeds, in words.

    >>> mean_and_spread([0.9, 1.0, 0.95]), mean_and_spread([0.5])
    ('0.95 ± 0.05 (3 runs)', '0.50 (1 run)')
    """
    mean = f"{np.mean(values):.{digits}f}"
    return (
        f"{mean} ± {np.std(values, ddof=1):.{digits}f} ({len(values)} runs)"
        if len(values) > 1
        else f"{mean} (1 run)"
    )
