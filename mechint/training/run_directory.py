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
import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from mechint.errors import RunError
from mechint.files import (
    make_directory,
    regular_file,
    write_bytes,
    write_error,
    write_text,
)
from mechint.locks import clear_partial, locked
from mechint.training.manifest import manifest, of_resumption, read_manifest
from mechint.training.run_config import difference, read_as_today, read_config
from mechint.training.state import State, read_state

BOOKKEEPING = {".lock"}
"""Names in a directory that make it no less empty."""


class RunDirectory:
    """The files of the run in `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics_file, self.manifest_file = path / "metrics.jsonl", path / "manifest.json"
        self.state_file, self.next_file = path / "state.pt", path / "state.next.pt"
        self.check_held = _not_locked

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Be the run's one writer; RunError when another process is. Meanwhile `check_held` raises
        one where the directory is no longer the one that was locked.
        """
        try:
            with locked(self.path) as self.check_held:
                yield
        finally:
            self.check_held = _not_locked

    # --- what the run is --------------------------------------------------------------------------
    def check(self, spec: Mapping[str, Any], resume: bool) -> bool:
        """Whether the run `spec` (`Spec.to_dict`) is there already; nothing is written.

        Raises:
            RunError: the directory holds this run and `resume` is False, or it holds another run,
                a damaged one, or something else, or lies in that of another run.
        """
        file = self.path / "config.json"
        if not os.path.lexists(file):
            if self.path.is_dir() and any(map(_counts, self.path.iterdir())):
                raise RunError(f"{self.path}: is not empty and holds no run; choose another --out")
            if (self.path.parent / "config.json").is_file():
                raise RunError(
                    f"{self.path}: lies in the directory of another run, which hides it; choose "
                    "another --out"
                )
            return False
        there, wanted = read_config(file), json.loads(json.dumps(spec))
        read_as_today(there, wanted)
        if there != wanted:
            raise RunError(
                f"{self.path}: holds another run ({difference(there, wanted)}); "
                "choose another --out"
            )
        if not resume:
            raise RunError(
                f"{self.path}: holds this run already; --resume continues it, another "
                "--out starts anew"
            )
        return True

    def create(
        self,
        spec: Mapping[str, Any],
        ensemble: Mapping[str, Any],
        state: State | None = None,
        goes_on: bool = False,
    ) -> list[str]:
        """Write what says which run this is, where it is missing, and with what it trains.

        state: what the run is at, None at the start; goes_on: whether it trains on from there.
        Returns the names of what in the manifest is other from `state` on than it was before.
        """
        clear_partial(self.path)
        if not (self.path / "config.json").exists():
            write_text(self.path / "config.json", json.dumps(spec, indent=1))
        clear_partial(make_directory(self.path / "checkpoints"))
        there, now = read_manifest(self.manifest_file), {**manifest(), "ensemble": dict(ensemble)}
        made = there
        if made is None or state is None:
            threads = None if state is None else state["threads"]
            made = now | ({"threads": threads} if threads else {})
        if state is not None and goes_on:
            made = of_resumption(made, now, state["step"])
        if made == there:
            return []
        if self.manifest_file.is_fifo():  # writing to it would wait for a reader
            self.manifest_file.unlink()
        write_text(self.manifest_file, json.dumps(made, indent=1))
        last = made.get("resumed", [{}])[-1]
        begins = state is not None and last.get("from_step") == state["step"]
        return [name for name in last if name != "from_step" and begins and goes_on]

    def withdraw(self) -> None:
        """Take back all that was written since `create` began this run, where no state was
        committed: of a run that is refused before its first step nothing is left that another run
        would stumble over. Not for a directory that an earlier call has written to.
        """
        try:
            self.check_held()
        except RunError:  # what is there now is another's
            return
        if self.has_committed:
            return
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)
        written = (self.metrics_file, self.path / "ckpt.pt", self.next_file, self.manifest_file)
        for file in (*written, self.path / "config.json"):
            file.unlink(missing_ok=True)

    # --- its state --------------------------------------------------------------------------------
    def states(self) -> list[State]:
        """The states to go on from, the committed one first; empty where none was written.

        Raises:
            RunError: state.pt is damaged.
        """
        committed = [read_state(self.state_file)] if os.path.lexists(self.state_file) else []
        prepared = []
        if self.next_file.is_file():
            with contextlib.suppress(RunError):
                prepared = [read_state(self.next_file)]
        return committed + prepared

    @property
    def has_committed(self) -> bool:
        """Whether a state to resume from is there."""
        return os.path.lexists(self.state_file)

    def prepare(self, state: State) -> None:
        """First phase of a commit: write `state` beside the committed one."""
        self.check_held()
        rows = self._flushed_metrics()
        known = {"metrics_bytes": len(rows), "metrics_sha256": hashlib.sha256(rows).hexdigest()}
        buffer = io.BytesIO()
        torch.save({**state, **known}, buffer)
        write_bytes(self.next_file, buffer.getvalue())

    def commit(self) -> None:
        """Second phase: what was prepared is the state."""
        self.check_held()
        try:
            self.next_file.replace(self.state_file)
        except OSError as error:
            raise write_error(self.state_file, error) from error

    def adopt(self, state: State | None) -> None:
        """Make `state` the only state and drop metrics recorded after it; None resets to the start.

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
        self.check_held()
        try:
            with self.metrics_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise write_error(self.metrics_file, error) from error

    def _flushed_metrics(self) -> bytes:
        """What metrics.jsonl holds, once the disk has it."""
        if not self.metrics_file.exists():
            return b""
        try:
            with self.metrics_file.open("rb") as file:
                os.fsync(file.fileno())
                return file.read()
        except OSError as error:
            raise write_error(self.metrics_file, error) from error

    def metrics_until(self, state: State) -> list[dict[str, Any]]:
        """The evaluations up to `state`; RunError where they are damaged."""
        file, size = self.metrics_file, state["metrics_bytes"]
        if not file.exists() and not size:
            return []
        try:
            regular_file(file)
            text = file.read_bytes()
        except RunError as error:
            raise RunError(f"{error}; {self._anew()}") from error
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
        digest = state["metrics_sha256"]
        if digest not in (None, hashlib.sha256(text[:size]).hexdigest()):
            raise RunError(f"{file}: damaged: not what the run wrote there; {self._anew()}")
        return rows

    def _anew(self) -> str:
        return f"delete {self.state_file} and --resume starts this run anew"

    def untidy(self) -> bool:
        """Whether a finished run left temporary files or uncommitted metrics, or its manifest is
        damaged.
        """
        state = self.states()[0]
        size = self.metrics_file.stat().st_size if self.metrics_file.exists() else 0
        left = [*self.path.glob(".*.part"), *self.path.glob("checkpoints/.*.part")]
        more = size > (state["metrics_bytes"] or 0)
        whole = read_manifest(self.manifest_file) is not None
        return bool(left) or more or self.next_file.exists() or not whole

    def lacks_weights(self) -> bool:
        """Whether ckpt.pt is missing or damaged."""
        try:
            regular_file(self.path / "ckpt.pt")
            with zipfile.ZipFile(self.path / "ckpt.pt") as archive:
                return archive.testzip() is not None
        except (RunError, OSError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError):
            return True


def _not_locked() -> None:
    """`check_held` of a directory whose lock is not held here."""


def _counts(path: Path) -> bool:
    """Whether a file makes a directory something other than empty."""
    return path.name not in BOOKKEEPING and not path.name.endswith(".part")


def _parse_row(line: bytes) -> dict[str, Any] | None:
    """One line of metrics.jsonl; None where it is not a row."""
    try:
        row = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None
