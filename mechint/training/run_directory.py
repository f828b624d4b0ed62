"""The files of a run, written so that a kill at any moment loses nothing that was committed.

DIR/config.json      task, model and training, as asked for
DIR/manifest.json    versions, git commit, device, threads, plug-ins, digests of the files that its
                     task reads and of its sources, and the ensemble it trains in
DIR/metrics.jsonl    one row per evaluation
DIR/checkpoints/     step-00001000.pt …
DIR/ckpt.pt          the last weights
DIR/status.json      of a run that is done: status, step, error, and the digest of its metrics
DIR/state.pt         in the first run of an ensemble, while one of its runs trains: all that
                     resuming bit for bit needs (`mechint.training.state`)
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.errors import MechintError, RunError
from mechint.system.files import (
    clear_partial,
    make_directory,
    parse_json,
    read_bytes,
    refuse_links,
    regular_file,
    write_error,
    write_text,
)
from mechint.system.locks import locked
from mechint.system.packages import changed_files, loaded_sources, task_files
from mechint.training.manifest import manifest, read_manifest
from mechint.training.state import check_known

if TYPE_CHECKING:
    from mechint.training.run import Spec

UNCOMPARED = ("plugins", "sources")
"""Fields of the manifest that may differ, or are compared by digest: a file may be moved."""
ELSEWHERE = "choose another --out, or delete the directory"


class RunDirectory:
    """The files of the run in `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file, self.manifest_file = path / "config.json", path / "manifest.json"
        self.metrics_file, self.status_file = path / "metrics.jsonl", path / "status.json"
        self.state_file, self.weights_file = path / "state.pt", path / "ckpt.pt"
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
    def asked_for(self) -> dict[str, Any]:
        """Task, model and training of the run that is there, as they were written; RunError where
        the file is damaged.
        """
        file = self.config_file
        try:
            config = parse_json(read_bytes(file), file)
        except RunError as error:
            raise RunError(f"{error}; {ELSEWHERE}") from error
        parts = ("task", "model", "train")
        if not isinstance(config, dict) or not all(isinstance(config.get(p), dict) for p in parts):
            raise RunError(
                f"{file}: damaged: expected a mapping of task, model and train; {ELSEWHERE}"
            )
        if not isinstance(config["task"].get("parameters"), dict):
            raise RunError(f"{file}: damaged: expected the task's name and parameters; {ELSEWHERE}")
        return config

    def check(self, spec: Spec, resume: bool) -> bool:
        """Return whether the run `spec` is there already; nothing is written. A setting that a run
        of an earlier version does not state has its default.

        Raises:
            RunError: the directory holds this run and `resume` is False, or it holds another run,
                a damaged one, or something else, or lies in that of another run.
        """
        if not os.path.lexists(self.config_file):
            if self.path.is_dir() and any(map(_counts, self.path.iterdir())):
                raise RunError(f"{self.path}: is not empty and holds no run; choose another --out")
            if (self.path.parent / "config.json").is_file():
                raise RunError(
                    f"{self.path}: lies in the directory of another run, which hides it; choose "
                    "another --out"
                )
            return False
        there, wanted = self.asked_for(), spec.to_dict()
        if _completed(there, spec) != wanted:
            raise RunError(
                f"{self.path}: holds another run "
                f"({_difference(_completed(there, spec), wanted)}); "
                "choose another --out"
            )
        if not resume:
            raise RunError(
                f"{self.path}: holds this run already; --resume continues it, another "
                "--out starts anew"
            )
        return True

    def open(
        self,
        spec: Spec,
        ensemble: Mapping[str, Any],
        known: Mapping[str, Any] | None,
        goes_on: bool,
    ) -> list[str]:
        """Write what says which run this is, and take the directory back to `known` (None: the
        start): metrics after it go, and a run that trains on has no status.

        ensemble: what it trains in; goes_on: whether it trains on from `known`. Returns the names
        of what is other than when it was stopped; the manifest then says, under "before", what it
        was and up to which step.
        """
        clear_partial(self.path)
        if not self.config_file.exists():
            self._write(self.config_file, spec.to_dict())
        clear_partial(make_directory(self.path / "checkpoints"))
        if known is None or goes_on:
            self.status_file.unlink(missing_ok=True)
        size = 0 if known is None else known["metrics_bytes"]
        if self.metrics_file.exists() and self.metrics_file.stat().st_size > size:
            os.truncate(self.metrics_file, size)
        made, changed = {**manifest(), "ensemble": dict(ensemble)}, list[str]()
        made |= {} if spec.start is None else {"start": spec.start.digest}
        made["files"] = task_files(spec.to_dict())
        made["sources"] = loaded_sources(type(spec.task).__module__)
        there = None if known is None else read_manifest(self.manifest_file)
        if known is not None and there is not None:
            if not goes_on:
                return []
            compared = [name for name in made if name in there and name not in UNCOMPARED]
            changed = [name for name in compared if made[name] != there[name]]
            changed += ["sources"] * bool(changed_files(self.path, made["sources"]))
            before = there.get("before", [])
            if changed:
                was = {name: there[name] for name in changed}
                before = [*before, {"until_step": known["step"], **was}]
            made |= {"before": before} if before else {}
        self._write(self.manifest_file, made)
        return changed

    def withdraw(self) -> None:
        """Take back all that `open` began, where no state was committed and the lock is held."""
        try:
            self.check_held()
        except RunError:  # what is there now is another's
            return
        if os.path.lexists(self.state_file) or os.path.lexists(self.weights_file):
            return
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)
        for file in (self.metrics_file, self.manifest_file, self.config_file):
            file.unlink(missing_ok=True)

    def _write(self, file: Path, value: Mapping[str, Any]) -> None:
        write_text(file, json.dumps(value, indent=1), within=self.path)

    # --- where it stands --------------------------------------------------------------------------
    def status(self) -> Mapping[str, Any] | None:
        """Status, step, error and metrics of a run that is done; None of one that is not."""
        if not os.path.lexists(self.status_file):
            return None
        known = parse_json(read_bytes(self.status_file), self.status_file)
        return check_known(known, self.status_file)

    def keep_status(self, known: Mapping[str, Any]) -> None:
        """Say that the run is done, and how."""
        self.check_held()
        if not self.status_file.exists():
            self._write(self.status_file, known)

    def lacks_weights(self) -> bool:
        """Return whether ckpt.pt is missing or damaged."""
        try:
            regular_file(self.weights_file)
            with zipfile.ZipFile(self.weights_file) as archive:
                return archive.testzip() is not None
        except (RunError, OSError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError):
            return True

    # --- its metrics ------------------------------------------------------------------------------
    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Add one evaluation."""
        self.check_held()
        refuse_links(self.metrics_file, self.path)
        if self.metrics_file.exists():
            regular_file(self.metrics_file)
        try:
            with self.metrics_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise write_error(self.metrics_file, error) from error

    def metrics_digest(self) -> dict[str, Any]:
        """Size and digest of metrics.jsonl, once the disk has it."""
        rows = b""
        if self.metrics_file.exists():
            regular_file(self.metrics_file)
            try:
                with self.metrics_file.open("rb") as file:
                    os.fsync(file.fileno())
                    rows = file.read()
            except OSError as error:
                raise write_error(self.metrics_file, error) from error
        return {"metrics_bytes": len(rows), "metrics_sha256": hashlib.sha256(rows).hexdigest()}

    def metrics_until(self, known: Mapping[str, Any], held_in: Path) -> list[dict[str, Any]]:
        """The evaluations up to `known`, which `held_in` holds; RunError where they are damaged."""
        file, size = self.metrics_file, known["metrics_bytes"]
        remedy = f"delete {held_in} and --resume starts this run anew"
        if not file.exists() and not size:
            return []
        try:
            regular_file(file)
            text = file.read_bytes()
        except RunError as error:
            raise RunError(f"{error}; {remedy}") from error
        except OSError as error:
            raise RunError(f"{file}: cannot be read: {error.strerror}; {remedy}") from error
        if len(text) < size:
            raise RunError(
                f"{file}: damaged: got {len(text)} bytes, expected at least {size}; {remedy}"
            )
        if hashlib.sha256(text[:size]).hexdigest() != known["metrics_sha256"]:
            raise RunError(f"{file}: damaged: not what the run wrote there; {remedy}")
        return [json.loads(line) for line in text[:size].splitlines()]


def _not_locked() -> None:
    """`check_held` of a directory whose lock is not held here."""


def _counts(path: Path) -> bool:
    """Return whether a file makes a directory something other than empty."""
    return path.name != ".lock" and not path.name.endswith(".part")


def _completed(there: dict[str, Any], spec: Spec) -> dict[str, Any]:
    """`there` with the defaults of the settings that `spec` has and it does not state."""
    task = there["task"]
    parts = {"model": (there["model"], spec.model), "train": (there["train"], spec.train)}
    if task.get("name") == spec.task.name:
        parts["parameters"] = (task["parameters"], spec.task)
    whole = dict[str, Any]()
    for name, (stated, settings) in parts.items():
        whole[name] = stated
        with contextlib.suppress(MechintError):  # of a setting that is gone, or of another range
            whole[name] = type(settings).from_dict(stated).to_dict() | stated
    task = {**task, "parameters": whole.pop("parameters", task["parameters"])}
    return {**there, **whole, "task": task}


def _difference(there: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The first setting in which two configurations differ, in words."""
    for part in wanted:
        a, b = there.get(part), wanted[part]
        if part == "task" and a and a.get("name") == b["name"]:
            a, b = a["parameters"], b["parameters"]
        if a != b and isinstance(a, dict):
            name = next(n for n in {**a, **b} if (n in a, a.get(n)) != (n in b, b.get(n)))
            said = [repr(one[name]) if name in one else "not set" for one in (a, b)]
            return f"{part}.{name} is {said[0]} there, {said[1]} here"
    return "other settings"
