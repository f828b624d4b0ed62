"""The files of a run, written so that a kill at any moment loses nothing that was committed.

DIR/config.json      task, model and training, as asked for
DIR/manifest.json    versions, git commit, device, threads, plug-ins, digests of the files that its
                     task reads and of its sources, and the ensemble it trains in
DIR/metrics.jsonl    one row per evaluation
DIR/checkpoints/     step-00001000.pt …
DIR/ckpt.pt          the last weights
DIR/status.json      of a run that is done: status, step, error, and the digest of its metrics
DIR/state.pt         in the first run of an ensemble, while one of its runs trains: all that
                     resuming bit for bit needs (`mechint.training.run_directory`)
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import mechint
from mechint.checkpoints.content import check_file, read_content
from mechint.errors import CheckpointError, MechintError, RunError
from mechint.registry.registry import installed_points
from mechint.system.files import (
    clear_partial,
    make_directory,
    parse_json,
    read_bytes,
    read_json,
    refuse_links,
    regular_file,
    write_bytes,
    write_error,
    write_text,
)
from mechint.system.locks import locked
from mechint.system.packages import changed_files, loaded_sources, task_files

if TYPE_CHECKING:
    from mechint.training.run import Spec

UNCOMPARED = ("plugins", "sources")
"""Fields of the manifest that may differ, or are compared by digest: a file may be moved."""
PARTS = ("task", "model", "train")
"""Mappings of config.json."""
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
        parts = [config.get(part) for part in PARTS] if isinstance(config, dict) else [None]
        task = parts[0] if isinstance(parts[0], dict) else {}
        if not all(isinstance(part, dict) for part in (*parts, task.get("parameters"))):
            raise RunError(
                f"{file}: damaged: expected mappings task, with its parameters, model and train; "
                f"{ELSEWHERE}"
            )
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
        content, changed = {**manifest(), "ensemble": dict(ensemble)}, list[str]()
        content |= {} if spec.start is None else {"start": spec.start.digest}
        content["files"] = task_files(spec.to_dict())
        content["sources"] = loaded_sources(type(spec.task).__module__)
        there = None if known is None else read_manifest(self.manifest_file)
        if known is not None and there is not None:
            if not goes_on:
                return []
            compared = [name for name in content if name in there and name not in UNCOMPARED]
            changed = [name for name in compared if content[name] != there[name]]
            changed += ["sources"] * bool(changed_files(self.path, content["sources"]))
            before = there.get("before", [])
            if changed:
                was = {name: there[name] for name in changed}
                before = [*before, {"until_step": known["step"], **was}]
            content |= {"before": before} if before else {}
        self._write(self.manifest_file, content)
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
            check_file(self.weights_file)
        except (RunError, CheckpointError):
            return True
        return False

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
            said = [repr(config[name]) if name in config else "not set" for config in (a, b)]
            return f"{part}.{name} is {said[0]} there, {said[1]} here"
    return "other settings"


# --- saved state ----------------------------------------------------------------------------------
State = dict[str, Any]
"""The saved state of an ensemble of n runs, of which m still train.

ensemble: its identifier; runs: n mappings of status, step, error, metrics_bytes and metrics_sha256
(of metrics.jsonl up to there); step, threads, device ("cpu" or "cuda"); values (m, parameter);
optimizer: name → (m, …); generators: m states of random generators; stale_evaluations: m numbers;
file: where it was read from, of one that was.
"""

_KINDS = {
    "ensemble": str,
    "runs": list,
    "step": int,
    "threads": int,
    "device": str,
    "values": torch.Tensor,
    "optimizer": dict,
    "generators": list,
    "stale_evaluations": list,
}
_RUN_KINDS = {"status": str, "step": int, "error": str, "metrics_bytes": int, "metrics_sha256": str}
REMEDY = "delete it and --resume starts its runs anew"


def write_state(file: Path, state: State) -> None:
    """Make `state` the saved state, durably."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_bytes(file, buffer.getvalue(), within=file.parent)


def read_state(file: Path) -> State:
    """The state in `file`, whole and of the right types; RunError where it is not."""
    regular_file(file)
    try:
        state = read_content(file)
    except CheckpointError as error:
        said = str(error).removeprefix(f"{file}: ")
        raise RunError(f"{file}: damaged ({said}); {REMEDY}") from error
    wrong = "state" if not isinstance(state, dict) else _wrong(state, _KINDS)
    if wrong is None:
        wrong = next(filter(None, (_wrong(run, _RUN_KINDS) for run in state["runs"])), None)
    if wrong is not None:
        raise RunError(f"{file}: damaged: {wrong} is missing or of a wrong type; {REMEDY}")
    return state


def check_known(known: Any, file: Path) -> Mapping[str, Any]:
    """`known`, the status of one run that `file` holds; RunError where it is none."""
    wrong = _wrong(known, _RUN_KINDS)
    if wrong is not None:
        raise RunError(f"{file}: damaged: {wrong} is missing or of a wrong type; {REMEDY}")
    return known


def _wrong(values: Any, kinds: Mapping[str, type]) -> str | None:
    """The first name that `values` lacks, or has with another type; None where all is right."""
    if not isinstance(values, dict):
        return "status"
    return next((name for name in kinds if not isinstance(values.get(name), kinds[name])), None)


# --- manifest -------------------------------------------------------------------------------------
def manifest() -> dict[str, Any]:
    """Versions, git commit, machine and plug-ins, as JSON values."""
    return {
        "versions": _versions(),
        "commit": _commit(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "plugins": {
            group: [point.name for point in installed_points().select(group=group)]
            for group in ("mechint.tasks", "mechint.probes", "mechint.checkpoint_formats")
        },
    }


@functools.cache
def _versions() -> dict[str, str]:
    packages = {name: _version(name) for name in ("torch", "transformer-lens", "numpy")}
    return {"mechint": mechint.__version__, **packages, "python": sys.version.split()[0]}


def _version(name: str) -> str:
    """ "unknown" of a package that is on the path without having been installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


@functools.cache
def _commit() -> str | None:
    """The git commit of this code; None where it is not a checkout."""
    try:
        git = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return git.stdout.strip() or None


def read_manifest(file: Path) -> dict[str, Any] | None:
    """The content of manifest.json; None where it is missing or damaged."""
    try:
        content = read_json(file)
    except RunError:
        return None
    return content if isinstance(content, dict) else None
