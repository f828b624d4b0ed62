"""A run: what was asked for, and what came out of it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from mechint.checkpoints import save_checkpoint
from mechint.config import Settings, TrainConfig
from mechint.errors import UnknownNameError
from mechint.system.files import read_json_lines, refuse_links
from mechint.task import Task
from mechint.training.run_directory import RunDirectory

if TYPE_CHECKING:
    from mechint.subject import Subject

SUCCEEDED = ("finished", "stopped")
DONE = (*SUCCEEDED, "failed")
"""A run with this status trains no further: the same steps would give the same end."""


@dataclass(frozen=True)
class Start:
    """Weights that a training starts from, and the digest of the file that they were read from."""

    digest: str
    weights: Mapping[str, Tensor] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Spec:
    """One run as asked for: a task, an architecture, how it is trained, and where it goes.

    out: the run directory; None keeps the run in memory. start: weights in place of the initial
    ones of the seed.
    """

    task: Task
    model: Settings
    train: TrainConfig
    out: Path | None = None
    start: Start | None = None

    @property
    def data_seed(self) -> int:
        """Seed of the split and of the order of examples."""
        return self.train.seed if self.train.data_seed is None else self.train.data_seed

    def to_dict(self) -> dict[str, Any]:
        """Task, model and training as JSON values, and the digest of a start."""
        task = {"name": self.task.name, "parameters": self.task.to_dict()}
        asked = {"task": task, "model": self.model.to_dict(), "train": self.train.to_dict()}
        return asked if self.start is None else {**asked, "start": self.start.digest}


class Metrics(dict[str, Any]):
    """An evaluation, or what a study keeps of a run: name → value; UnknownNameError
    for what was not measured.

    >>> Metrics({"test.accuracy": 1.0})["test.acc"]
    Traceback (most recent call last):
    mechint.errors.UnknownNameError: unknown metric 'test.acc'; did you mean 'test.accuracy'? ...
    """

    def __missing__(self, name: str) -> Any:
        raise UnknownNameError.of("metric", name, self)


@dataclass
class Run:
    """One run and what is known of it.

    metrics: one row per evaluation, each with "step"; status: "waiting", "running", "finished",
    "stopped", "interrupted" or "failed"; error: why it failed; weights: the last ones; series:
    step → weights of the kept checkpoints, where the run has no directory.
    """

    spec: Spec
    metrics: list[dict[str, Any]] = field(default_factory=list)
    status: str = "waiting"
    error: str = ""
    step: int = 0
    weights: dict[str, Tensor] = field(default_factory=dict)
    series: dict[int, dict[str, Tensor]] = field(default_factory=dict)

    def __repr__(self) -> str:
        place = "in memory" if self.path is None else str(self.path)
        return (
            f"Run({self.spec.task.name}, seed {self.spec.train.seed}, {self.status} at step "
            f"{self.step}, {place})"
        )

    def _repr_html_(self) -> str:
        """The run, its last metrics, and its training curve."""
        from mechint.system.jsonable import as_html

        text = f"<p>{html.escape(repr(self))}</p>"
        if self.error:
            text += f"<p>{html.escape(self.error)}</p>"
        table = as_html(("metric", "value"), list(self.final.items()))
        from mechint.figures import training_curve

        curve = training_curve(self.metrics)
        return text + table + ("" if curve is None else curve.drawing_html("training"))

    @property
    def path(self) -> Path | None:
        """The run directory; None for a run that is not kept."""
        return self.spec.out

    @cached_property
    def directory(self) -> RunDirectory | None:
        """The files of the run; None where it is kept in memory."""
        return None if self.spec.out is None else RunDirectory(self.spec.out)

    @property
    def final(self) -> Metrics:
        """The last evaluation."""
        return Metrics(self.metrics[-1] if self.metrics else {})

    def load(self) -> Run:
        """Take step, status and metrics from the directory, which stays as it is.

        Raises:
            RunError: the directory holds another run, or a damaged one.
        """
        directory = self.directory
        if directory is None or not directory.check(self.spec, resume=True):
            return self
        known = directory.status()
        if known is not None:
            self.take(known, directory.status_file)
            return self
        rows = read_json_lines(directory.metrics_file)
        self.metrics = [row for row in rows if isinstance(row.get("step"), int)]
        self.step = self.metrics[-1]["step"] if self.metrics else 0
        self.status = "interrupted" if self.metrics else "waiting"
        return self

    def take(self, known: Mapping[str, Any] | None, held_in: Path | None = None) -> None:
        """Restore step, status and metrics from `known`, of the file `held_in`; None resets."""
        assert self.directory is not None
        if known is None:
            self.step, self.status, self.error, self.metrics = 0, "waiting", "", []
            return
        assert held_in is not None
        self.metrics = self.directory.metrics_until(known, held_in)
        self.step, self.status, self.error = known["step"], known["status"], known["error"]

    def known(self) -> dict[str, Any]:
        """The content of the run's status file: the inverse of `take`."""
        assert self.directory is not None
        now = {"status": self.status, "step": self.step, "error": self.error}
        return now | self.directory.metrics_digest()

    def subject(self, **options: Any) -> Subject:
        """The trained model as a Subject; `options` as in `mechint.Subject`."""
        if self.path is not None:
            from mechint.checkpoints import load_checkpoint

            return load_checkpoint(self.path, self.spec.task).subject(**options)
        from mechint.models import build
        from mechint.subject import Subject

        model = build(self.spec.model, seed=self.spec.train.seed)
        model.load_weights(self.weights)
        provenance = {
            "path": f"a run of {self.spec.task.name}, seed {self.spec.train.seed}",
            "format": "memory",
            "step": self.step,
            "metrics": self.final,
        }
        series = {step: (lambda kept=kept: kept) for step, kept in self.series.items()}
        return Subject(
            model.eval(),
            self.spec.task,
            provenance=provenance,
            series=series,
            split_seed=self.spec.data_seed,
            **options,
        )

    # --- what training hands over -----------------------------------------------------------------
    def record(self, row: dict[str, Any]) -> None:
        """Append one evaluation."""
        self.metrics.append(row)
        if self.directory is not None:
            self.directory.append_metrics(row)

    def keep_checkpoint(self, step: int, weights: dict[str, Tensor]) -> None:
        """Keep the weights of `step` in the series of the run."""
        if self.path is None:
            self.series[step] = weights
        else:
            self._save(self.path / "checkpoints" / f"step-{step:08d}.pt", step, weights, False)

    def save_last(self, step: int, weights: dict[str, Tensor]) -> None:
        """Write ckpt.pt."""
        self.step, self.weights = step, weights
        if self.path is not None:
            self._save(self.path / "ckpt.pt", step, weights)

    def _save(
        self, path: Path, step: int, weights: dict[str, Tensor], durable: bool = True
    ) -> None:
        spec, directory = self.spec, self.directory
        if directory is not None:
            directory.check_held()
            refuse_links(path, directory.path)
        save_checkpoint(
            path,
            config=spec.model,
            weights=weights,
            task=spec.task,
            step=step,
            metrics=self.final,
            train=spec.train,
            seed=spec.data_seed,
            durable=durable,
        )
