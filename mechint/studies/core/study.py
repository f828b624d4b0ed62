"""What a study is: the runs of a paper, and the claims that are held against them.

A study lists its runs and analyzes them; it trains nothing and writes nothing. A claim whose runs
failed is not tested, with the error as its note, and the other claims go on.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mechint.claim import Claim
from mechint.config import Settings, TrainConfig
from mechint.errors import MechintError, TrainingError
from mechint.registry import TASKS
from mechint.results import Figure, Table
from mechint.studies.core.claims import JUDGED, NOT_TESTED, ClaimSpec, Finding
from mechint.training import Run, Spec, spec

SIZES = ("smoke", *JUDGED)
"""smoke: seconds, judges no claim; laptop: minutes on two cores; overnight: eight hours on two
cores, in parts if need be; full: the paper's own sizes.
"""

FRESH = 1000
"""Judged runs have seeds from here on; smaller ones are for trying things out while designing."""

Say = Callable[[str], None]
"""Takes a line of text: what is measured now."""


def silent(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study: a name of its own (the folder), what is trained, and what the DataFrame
    says of it; runs of an earlier stage are trained before those of a later one.
    """

    name: str
    spec: Spec
    labels: Mapping[str, Any]
    stage: int = 0


def plan(
    name: str,
    task: str,
    parameters: Mapping[str, Any] | None = None,
    model: Settings | Mapping[str, Any] | None = None,
    train: TrainConfig | Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    stage: int = 0,
    **labels: Any,
) -> PlannedRun:
    """A run of the registry's `task` with `parameters`, its name ending in the seed; `labels` say
    which arm it is of.

    >>> planned = plan("direct", "composition", {"n": 3, "k": 2, "hops": (2,)}, {"d_model": 16},
    ...     {"steps": 5}, seed=1, arm="direct")
    >>> planned.name, dict(planned.labels), planned.spec.train.seed
    ('direct-1', {'arm': 'direct', 'seed': 1}, 1)
    """
    made = TASKS[task](**(parameters or {}))
    asked = spec(made, model, train, seed=seed)
    return PlannedRun(f"{name}-{seed}", asked, {**labels, "seed": seed}, stage)


class Runs(Mapping[str, Run]):
    """Runs by name. Reading one that has failed raises TrainingError, so that only the claims that
    need it are lost. `say` takes what is measured of them now; the runs `ahead`, which have stopped
    while others of their ensemble train on, wait for those: what stops first is no fair sample.
    """

    def __init__(
        self,
        runs: Mapping[str, Run],
        labels: Mapping[str, Mapping[str, Any]],
        say: Say = silent,
        ahead: Collection[str] = (),
    ) -> None:
        self._runs, self.labels, self.say, self._ahead = dict(runs), dict(labels), say, set(ahead)

    def __getitem__(self, name: str) -> Run:
        run = self._runs[name]
        if self.status(name) not in ("finished", "stopped"):
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

    def finished(self, **labels: Any) -> list[Run]:
        """The runs with all these labels that have finished so far; TrainingError where one has
        failed, since leaving it out would flatter the rest.
        """
        return [
            self[name]
            for name in self.names(**labels)
            if self.status(name) in ("finished", "stopped", "failed")
        ]

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

    def status(self, name: str) -> str:
        """One of `mechint.training.run_directory.STATUS`; "waiting" ahead of its ensemble."""
        return "waiting" if name in self._ahead else self._runs[name].status

    @property
    def n_finished(self) -> int:
        """How many have finished."""
        return sum(run.status in ("finished", "stopped") for run in self._runs.values())

    @property
    def failed(self) -> dict[str, str]:
        """Name → error of the runs that failed."""
        return {name: run.error for name, run in self._runs.items() if run.status == "failed"}


class Analysis:
    """Claims, figures and tables of a study, gathered one by one; what a failed run spoils is left
    out and named.

    claims: in the order judged; figures: name → Figure; sensitivity: name → Table of the
    alternatives to what the paper leaves open; tables: other numbers; missing: name of a figure or
    table → why it could not be made.
    """

    def __init__(self, study: str, size: str, say: Say = silent) -> None:
        self.study, self.size, self._say = study, size, say
        self.claims: list[Claim] = []
        self.figures: dict[str, Figure] = {}
        self.sensitivity: dict[str, Table] = {}
        self.tables: dict[str, Table] = {}
        self.missing: dict[str, str] = {}

    def add_claim(self, spec: ClaimSpec, measures: Any) -> Claim:
        """Measure a claim and give the verdict; size smoke measures and judges nothing."""
        claim = unmeasured(self.study, self.size, spec)
        if claim is None:
            self._say(f"measuring claim {spec.letter}")
            try:
                found = spec(measures)
            except MechintError as error:
                claim = untested(self.study, spec, "could not be measured", str(error))
            else:
                claim = judged(self.study, spec, found)
                if self.size == "smoke":
                    note = f"size smoke judges no claim; size {spec.sizes[0]} does"
                    claim = dataclasses.replace(claim, verdict=NOT_TESTED, note=note)
        self.claims.append(claim)
        return claim

    def add_figure(self, name: str, make: Callable[[], Figure]) -> None:
        """Add a figure."""
        self._add(self.figures, name, make)

    def add_sensitivity(self, name: str, make: Callable[[], Table]) -> None:
        """Add a sensitivity table."""
        self._add(self.sensitivity, name, make)

    def add_table(self, name: str, make: Callable[[], Table]) -> None:
        """Add another table."""
        self._add(self.tables, name, make)

    def _add(self, where: dict[str, Any], name: str, make: Callable[[], Any]) -> None:
        self._say(f"drawing {name}")
        try:
            where[name] = make()
        except MechintError as error:
            self.missing[name] = str(error)


def judged(study: str, spec: ClaimSpec, found: Finding) -> Claim:
    """The claim with the verdict of what was found."""
    return dataclasses.replace(
        untested(study, spec, found.ours, found.note),
        verdict=found.verdict,
        values=found.values,
        n=found.n,
        parts=[part.to_dict() for part in found.parts],
        control=found.control.to_dict() if found.control else None,
    )


def unmeasured(study: str, size: str, spec: ClaimSpec) -> Claim | None:
    """The claim as one that `size` does not measure; None where it does."""
    if size == "smoke" or size in spec.sizes:
        return None
    note = f"size {spec.sizes[0]} tests it"
    return untested(study, spec, "not measured at this size", note)


def untested(study: str, spec: ClaimSpec, ours: str, note: str = "") -> Claim:
    """The claim as one that was not judged."""
    return Claim(
        study,
        spec.letter,
        spec.statement,
        spec.paper,
        ours,
        str(spec.criterion),
        spec.reason,
        NOT_TESTED,
        note=note,
        replaced=[dataclasses.asdict(one) for one in spec.replaced],
    )


class Study(abc.ABC):
    """One paper. Class attributes: `name` (of the registry), `title`, `paper` (authors, if known,
    and title), `summary` (what the paper says, in three sentences), `claims` (in the order of
    their letters), `setting` (how the runs here differ, where they do in kind).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    summary: ClassVar[str]
    claims: ClassVar[tuple[ClaimSpec, ...]]
    setting: ClassVar[str] = ""

    @classmethod
    def abstract(cls) -> str:
        """What stands above the claims: the paper's word, and how the runs here differ."""
        here = f"{cls.setting} What came out here stands below.".lstrip()
        return f"The paper ({cls.paper}) says: {cls.summary} {here}"

    @abc.abstractmethod
    def runs(self, size: str) -> list[PlannedRun]:
        """What is trained at `size`, names all different."""

    @abc.abstractmethod
    def analyze(self, runs: Runs, size: str) -> Analysis:
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
