"""The files of a run, written so that a kill at any moment loses nothing that was committed.

DIR/config.json      task, model and training, as asked for
DIR/manifest.json    versions, git commit, device, threads, plug-ins, and the ensemble it trains in
DIR/metrics.jsonl    one row per evaluation
DIR/checkpoints/     step-00001000.pt …
DIR/ckpt.pt          the last weights
DIR/state.pt         all that resuming bit for bit needs
DIR/state.next.pt    the state to come, while an ensemble commits the states of all its models

A model of an ensemble must go on from the step that the others go on from. So the states of an
ensemble are written in two phases: first every ``state.next.pt``, then each is renamed to
``state.pt``. After a kill in the first phase all models still have the old state; after a kill in
the second all have the new one, under one name or the other (`mechint.training.resume`).
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import platform
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import torch

import mechint
from mechint.errors import RunError
from mechint.files import make_directory, write_bytes, write_error, write_text
from mechint.locks import clear_partial, locked

State = dict[str, Any]
"""step, commit (the step of the ensemble when it was written), status, error, ensemble (its
identifier), metrics_bytes, values, optimizer, generator, stale_evaluations."""

BOOKKEEPING = {".lock"}
"""Names in a directory that make it no less empty."""


class RunDirectory:
    """The files of the run in `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics_file, self.manifest_file = path / "metrics.jsonl", path / "manifest.json"
        self.state_file, self.next_file = path / "state.pt", path / "state.next.pt"

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Be the run's one writer; RunError when another process is."""
        return locked(self.path)

    # --- what the run is --------------------------------------------------------------------------
    def check(self, spec: Mapping[str, Any], resume: bool) -> bool:
        """Whether the run `spec` (`Spec.to_dict`) is there already; nothing is written.

        Raises:
            RunError: the directory holds this run and `resume` is False, or it holds another run,
                a damaged one, or something else.
        """
        file = self.path / "config.json"
        if not os.path.lexists(file):
            if self.path.is_dir() and any(map(_counts, self.path.iterdir())):
                raise RunError(f"{self.path}: is not empty and holds no run; choose another --out")
            return False
        there, wanted = _read_config(file), json.loads(json.dumps(spec))
        _fill_defaults(there, wanted)
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
        return True

    def create(self, spec: Mapping[str, Any], ensemble: Mapping[str, Any]) -> None:
        """Write what says which run this is, where it is missing, and the ensemble it trains in."""
        clear_partial(self.path)
        if not (self.path / "config.json").exists():
            write_text(self.path / "config.json", json.dumps(spec, indent=1))
        clear_partial(make_directory(self.path / "checkpoints"))
        if not _is_json(self.manifest_file):
            text = json.dumps({**manifest(), "ensemble": dict(ensemble)}, indent=1)
            write_text(self.manifest_file, text)

    # --- its state --------------------------------------------------------------------------------
    def states(self) -> list[State]:
        """The states to go on from, the committed one first; empty where none was written.

        Raises:
            RunError: state.pt is damaged.
        """
        committed = [_read_state(self.state_file)] if os.path.lexists(self.state_file) else []
        prepared = []
        if self.next_file.is_file():
            with contextlib.suppress(RunError):
                prepared = [_read_state(self.next_file)]
        return committed + prepared

    @property
    def has_committed(self) -> bool:
        return os.path.lexists(self.state_file)

    def prepare(self, state: State) -> None:
        """First phase of a commit: write `state` beside the committed one."""
        _flush(self.metrics_file)
        size = self.metrics_file.stat().st_size if self.metrics_file.exists() else 0
        buffer = io.BytesIO()
        torch.save({**state, "metrics_bytes": size}, buffer)
        write_bytes(self.next_file, buffer.getvalue())

    def commit(self) -> None:
        """Second phase: what was prepared is the state."""
        try:
            self.next_file.replace(self.state_file)
        except OSError as error:
            raise write_error(self.state_file, error) from error

    def adopt(self, state: State | None) -> None:
        """Be at `state` (None: at the start): no other state, no metrics beyond it.

        Raises:
            RunError: the metrics before `state` are damaged.
        """
        if state is None:
            for file in (self.state_file, self.next_file, self.metrics_file):
                file.unlink(missing_ok=True)
            return
        if self.next_file.exists():
            if state["file"] == self.next_file.name:
                self.commit()
            else:
                self.next_file.unlink()
        rows = self.metrics_until(state)
        size = state["metrics_bytes"]
        if size is None:  # a run of an earlier version
            write_text(self.metrics_file, "".join(json.dumps(row) + "\n" for row in rows))
        elif self.metrics_file.exists() and self.metrics_file.stat().st_size > size:
            os.truncate(self.metrics_file, size)

    # --- its metrics ------------------------------------------------------------------------------
    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Add one evaluation."""
        try:
            with self.metrics_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise write_error(self.metrics_file, error) from error

    def metrics_until(self, state: State) -> list[dict[str, Any]]:
        """The evaluations up to `state`; RunError where they are damaged."""
        file, size = self.metrics_file, state["metrics_bytes"]
        if not file.exists() and not size:
            return []
        try:
            text = file.read_bytes()
        except OSError as error:
            raise RunError(f"{file}: cannot be read: {error.strerror}; {self._anew()}") from error
        if size is not None and len(text) < size:
            raise RunError(
                f"{file}: damaged: got {len(text)} bytes, expected at least {size}; {self._anew()}"
            )
        rows: list[dict[str, Any]] = []
        for number, line in enumerate(text[:size].splitlines(), 1):
            row = _parse_row(line)
            if row is None and size is None:  # an earlier version: a line that a kill cut short
                continue
            if row is None:
                raise RunError(f"{file}: line {number} is damaged; {self._anew()}")
            if row["step"] <= state["step"]:
                rows.append(row)
        return rows

    def _anew(self) -> str:
        return f"delete {self.state_file} and --resume starts this run anew"

    def lacks_weights(self) -> bool:
        """Whether ckpt.pt is missing or damaged."""
        try:
            with zipfile.ZipFile(self.path / "ckpt.pt") as archive:
                return archive.testzip() is not None
        except (OSError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError):
            return True


def _counts(path: Path) -> bool:
    """Whether a file makes a directory something other than empty."""
    return path.name not in BOOKKEEPING and not path.name.endswith(".part")


def _read_config(file: Path) -> dict[str, Any]:
    remedy = "choose another --out, or delete the directory"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{file}: damaged ({_brief(error)}); {remedy}") from error
    parts = ("task", "model", "train")
    if not isinstance(config, dict) or not all(isinstance(config.get(p), dict) for p in parts):
        raise RunError(f"{file}: damaged: expected a mapping of task, model and train; {remedy}")
    if not isinstance(config["task"].get("parameters"), dict):
        raise RunError(f"{file}: damaged: expected the task's name and parameters; {remedy}")
    return config


def _fill_defaults(there: dict[str, Any], wanted: Mapping[str, Any]) -> None:
    """Give a configuration of an earlier version the fields that came later, at their defaults."""
    from mechint.config import TrainConfig

    defaults = TrainConfig().to_dict()
    for name in wanted["train"]:
        if name not in there["train"]:
            there["train"][name] = defaults[name]


def _read_state(file: Path) -> State:
    """The state in `file`, whole and of the right types, with the name of its file."""
    remedy = "delete it and --resume starts this run anew"
    if not file.is_file():
        raise RunError(f"{file}: it is no regular file, expected a saved state; {remedy}")
    try:
        state = torch.load(file, weights_only=True)
    except Exception as error:  # torch and pickle raise nearly anything on a damaged file
        raise RunError(f"{file}: damaged ({_brief(error)}); {remedy}") from error
    if not isinstance(state, dict):
        raise RunError(f"{file}: damaged: got {type(state).__name__}, expected a state; {remedy}")
    made = {
        "step": state.get("step"),
        "commit": state.get("commit", state.get("step")),
        "status": state.get("status"),
        "error": state.get("error", ""),
        "ensemble": state.get("ensemble", ""),
        "metrics_bytes": state.get("metrics_bytes"),
        "values": state.get("values"),
        "optimizer": state.get("optimizer", state.get("optimiser")),
        "generator": state.get("generator"),
        "stale_evaluations": state.get("stale_evaluations", state.get("still", 0)),
        "file": file.name,
    }
    kinds: dict[str, type | tuple[type, ...]] = {
        "step": int,
        "commit": int,
        "status": str,
        "error": str,
        "ensemble": str,
        "metrics_bytes": (int, type(None)),
        "values": torch.Tensor,
        "optimizer": dict,
        "generator": torch.Tensor,
        "stale_evaluations": int,
    }
    for name, kind in kinds.items():
        if not isinstance(made[name], kind):
            raise RunError(f"{file}: damaged: {name} is missing or of a wrong type; {remedy}")
    return made


def _parse_row(line: bytes) -> dict[str, Any] | None:
    """One line of metrics.jsonl; None where it is no row."""
    try:
        row = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None


def _is_json(file: Path) -> bool:
    try:
        json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return True


def _flush(file: Path) -> None:
    """Wait until the disk has what was appended."""
    if file.exists():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def _brief(error: BaseException) -> str:
    """The first line of an error's text, in at most 120 characters."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if len(text) <= 120 else text[:117] + "…"


def _difference(there: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The first setting in which two configurations differ, in words."""
    for part in wanted:
        a, b = there.get(part), wanted[part]
        if part == "task" and a and a.get("name") == b["name"]:
            a, b = a["parameters"], b["parameters"]
        if a != b and isinstance(a, dict):
            name = next(name for name in {**a, **b} if a.get(name) != b.get(name))
            return f"{part}.{name} is {a.get(name)!r} there, {b.get(name)!r} here"
    return "other settings"


def manifest() -> dict[str, Any]:
    """Versions, git commit, machine and plug-ins, as JSON values."""
    return {
        "versions": _versions(),
        "commit": _commit(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "plugins": {
            group: [point.name for point in entry_points(group=group)]
            for group in ("mechint.tasks", "mechint.probes", "mechint.checkpoint_formats")
        },
    }


@functools.cache
def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("torch", "transformer-lens", "numpy")}
    return {"mechint": mechint.__version__, **packages, "python": sys.version.split()[0]}


@functools.cache
def _commit() -> str | None:
    """The git commit of this code; None where it is no checkout."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return found.stdout.strip() or None
