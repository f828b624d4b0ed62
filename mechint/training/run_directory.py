"""A run: what was asked for, what came out, and its directory.

DIR/config.json      task, model and training, as asked for
DIR/manifest.json    versions, git commit, device, threads, plug-ins
DIR/metrics.jsonl    one row an evaluation
DIR/checkpoints/     step-00001000.pt …
DIR/ckpt.pt          the last weights
DIR/state.pt         all that resuming bit for bit needs
"""

from __future__ import annotations

import io
import json
import platform
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import mechint
from mechint.checkpoints import save_checkpoint
from mechint.config import Settings, TrainConfig
from mechint.errors import RunError
from mechint.files import make_directory, write_bytes, write_text
from mechint.task import Task

if TYPE_CHECKING:
    from mechint.subject import Subject

STATUS = ("waiting", "running", "finished", "stopped", "interrupted", "failed")


@dataclass(frozen=True)
class Spec:
    """One run as asked for: a task, an architecture, how it is trained, and where it goes (None:
    nowhere).
    """

    task: Task
    model: Settings
    train: TrainConfig
    out: Path | None = None

    @property
    def data_seed(self) -> int:
        """Seed of the split and of the order of examples."""
        return self.train.seed if self.train.data_seed is None else self.train.data_seed

    def to_dict(self) -> dict[str, Any]:
        """Task, model and training as JSON values."""
        task = {"name": self.task.name, "parameters": self.task.to_dict()}
        return {"task": task, "model": self.model.to_dict(), "train": self.train.to_dict()}


@dataclass
class Run:
    """One run and what is known of it.

    metrics: a row an evaluation, each with "step"; status: one of `STATUS`; error: why it failed;
    weights: the last ones; series: step → weights of the kept checkpoints, where there is no
    directory.
    """

    spec: Spec
    metrics: list[dict[str, Any]] = field(default_factory=list)
    status: str = "waiting"
    error: str = ""
    step: int = 0
    weights: dict[str, Tensor] = field(default_factory=dict)
    series: dict[int, dict[str, Tensor]] = field(default_factory=dict)

    @property
    def path(self) -> Path | None:
        return self.spec.out

    @property
    def final(self) -> dict[str, Any]:
        """The last evaluation."""
        return self.metrics[-1] if self.metrics else {}

    def subject(self, **options: Any) -> Subject:
        """The trained model as a Subject; `options` as in `mechint.Subject`."""
        if self.path is not None:
            from mechint.checkpoints import load_checkpoint

            return load_checkpoint(self.path).subject(**options)
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

    # --- the directory ----------------------------------------------------------------------------
    def open(self, resume: bool) -> dict[str, Any] | None:
        """Make or check the directory; the saved state where there is one to go on from.

        Raises:
            RunError: the directory holds this run already and `resume` is False, or holds another
                one.
        """
        if self.path is None:
            return None
        config = self.path / "config.json"
        text = json.dumps(self.spec.to_dict(), indent=1)
        if config.exists():
            there, wanted = json.loads(config.read_text(encoding="utf-8")), json.loads(text)
            if there != wanted:
                raise RunError(
                    f"{self.path}: holds another run ({_difference(there, wanted)}); "
                    "choose another --out"
                )
            if not resume:
                raise RunError(
                    f"{self.path}: holds this run already; --resume continues it, another "
                    "--out starts anew"
                )
            return self._restore()
        if self.path.is_dir() and any(self.path.iterdir()):
            raise RunError(f"{self.path}: is not empty and holds no run; choose another --out")
        write_text(config, text)  # first: a run killed right after is known again
        make_directory(self.path / "checkpoints")
        write_text(self.path / "manifest.json", json.dumps(manifest(), indent=1))
        return None

    def _restore(self) -> dict[str, Any] | None:
        assert self.path is not None
        file = self.path / "state.pt"
        if not file.exists():
            return None
        state = torch.load(file, weights_only=True)
        self.step, self.status = state["step"], state["status"]
        lines = (
            (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            if (self.path / "metrics.jsonl").exists()
            else []
        )
        rows = [row for line in lines if (row := _row(line)) is not None]
        self.metrics = [row for row in rows if row["step"] <= self.step]
        write_text(
            self.path / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in self.metrics)
        )
        return state

    def record(self, row: dict[str, Any]) -> None:
        """Append one evaluation."""
        self.metrics.append(row)
        if self.path is not None:
            with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def keep_checkpoint(self, step: int, weights: dict[str, Tensor]) -> None:
        """Keep the weights of `step` in the series of the run."""
        if self.path is None:
            self.series[step] = weights
        else:
            self._save(self.path / "checkpoints" / f"step-{step:08d}.pt", step, weights)

    def save_last(self, step: int, weights: dict[str, Tensor]) -> None:
        """Write ckpt.pt."""
        self.step, self.weights = step, weights
        if self.path is not None:
            self._save(self.path / "ckpt.pt", step, weights)

    def _save(self, path: Path, step: int, weights: dict[str, Tensor]) -> None:
        spec = self.spec
        save_checkpoint(
            path,
            config=spec.model,
            weights=weights,
            task=spec.task,
            step=step,
            metrics=self.final,
            train=spec.train,
            seed=spec.data_seed,
        )

    def save_state(self, state: dict[str, Any]) -> None:
        """Write state.pt: tensors and plain values."""
        if self.path is not None:
            buffer = io.BytesIO()
            torch.save({**state, "status": self.status}, buffer)
            write_bytes(self.path / "state.pt", buffer.getvalue())


def _config(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{file}: cannot be read: {error}; choose another --out") from error


def _row(line: str) -> dict[str, Any] | None:
    """One line of metrics.jsonl; None for a last line that a kill cut short."""
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None


def _difference(there: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The first setting in which two configurations differ, in words."""
    for part in wanted:
        a, b = there.get(part), wanted[part]
        a, b = (
            (a["parameters"], b["parameters"])
            if part == "task" and a and a["name"] == b["name"]
            else (a, b)
        )
        if a != b and isinstance(a, dict):
            name = next(name for name in {**a, **b} if a.get(name) != b.get(name))
            return f"{part}.{name} is {a.get(name)!r} there, {b.get(name)!r} here"
    return "other settings"


def manifest() -> dict[str, Any]:
    """Versions, git commit, machine and plug-ins, as JSON values."""
    packages = {
        "mechint": mechint.__version__,
        **{name: version(name) for name in ("torch", "transformer-lens", "numpy")},
    }
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
        commit = found.stdout.strip() or None
    except OSError:
        commit = None
    plugins = {
        group: [point.name for point in entry_points(group=group)]
        for group in ("mechint.tasks", "mechint.probes", "mechint.checkpoint_formats")
    }
    return {
        "versions": {**packages, "python": sys.version.split()[0]},
        "commit": commit,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "plugins": plugins,
    }
