"""One row of a table of models: where it is, what is known of it without opening it, and what is
kept beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.errors import CheckpointError, MechintError, RunError
from mechint.figures import Figure
from mechint.files import parse_json, read_bytes, read_json, read_json_lines, write_text
from mechint.locks import is_locked
from mechint.run_table.numbers import is_number

if TYPE_CHECKING:
    from mechint.subject import Subject

CONFIG, METRICS, LAST, KEPT = "config.json", "metrics.jsonl", "ckpt.pt", "checkpoints"
LOSS = "train.loss_function"
"""The setting ``train.loss``: train.loss is a metric of the table."""
CACHE = "probes/table"
"""Where a run keeps the columns that probes gave."""
FIGURES = "figures"
"""The folder in it of the figures of checkpoints, where a page asked for them."""


@dataclass(frozen=True)
class Entry:
    """One model: a checkpoint file, a run directory (its last weights), or a run at one step; what
    else `load_checkpoint` is given to open it is `opening`.
    """

    path: Path
    name: str
    step: int | None = None
    opening: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    @cached_property
    def is_run(self) -> bool:
        """Whether it is a run directory, and not a single checkpoint or a model of Hugging Face's:
        its config.json states a task, or is damaged.
        """
        return (self.path / CONFIG).is_file() and "model_type" not in stated(self.path)

    @property
    def weights(self) -> Path:
        """The file that holds the weights."""
        if not self.is_run:
            return self.path
        if self.step is None:
            return self.path / LAST
        return self.path / KEPT / f"step-{self.step:08d}.pt"

    def steps(self) -> list[Entry]:
        """An entry per kept checkpoint; itself where none is kept."""
        found = sorted((self.path / KEPT).glob("step-*.pt")) if self.is_run else []
        steps = [int(match[1]) for file in found if (match := re.match(r"step-(\d+)$", file.stem))]
        return [dataclasses.replace(self, step=step) for step in steps] or [self]

    def subject(self) -> Subject:
        """The model as probes are given it.

        Raises:
            CheckpointError: it cannot be opened.
        """
        from mechint.checkpoints import load_checkpoint

        return load_checkpoint(self.weights, **self.opening).subject()

    def describe(self) -> dict[str, Any]:
        """Path, name, status, step, settings and the metrics at that step, without the model.

        The step is that of the weights. A kept checkpoint at whose step the run was not evaluated
        has no metrics; a run that was cut short between two evaluations has those of the last one
        before its weights, with its step as "metrics.step".

        Raises:
            CheckpointError: config.json is damaged, or metrics.jsonl is shorter than the run left
                it.
        """
        row: dict[str, Any] = {"name": self.name, "path": str(self.path)}
        if not self.is_run:
            return row
        config = _json(self.path / CONFIG)
        step = self._weights_step() if self.step is None else self.step
        evaluations = self._evaluations()
        upto = [one for one in evaluations if step is None or one["step"] <= step]
        last = dict(upto[-1]) if upto else {}
        measured_at = last.pop("step", None)
        if step is not None and measured_at not in (None, step):
            last = {} if self.step is not None else last | {"metrics.step": measured_at}
        row["status"] = self._status(config, bool(evaluations))
        row["step"] = measured_at if step is None else step
        return row | _flat(config) | last

    def _evaluations(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl that can be read; CheckpointError where committed ones are cut
        off.
        """
        file, state = self.path / METRICS, self.path / "state.pt"
        expected = _plain(state).get("metrics_bytes")  # read first: the metrics may grow meanwhile
        size = file.stat().st_size if file.is_file() else 0
        if isinstance(expected, int) and size < expected:
            raise CheckpointError(
                f"{file}: damaged: got {size} bytes, expected at least {expected}; delete {state} "
                "and --resume starts this run anew"
            )
        return [one for one in read_json_lines(file) if is_number(one.get("step"))]

    def _weights_step(self) -> int | None:
        """The step of the last weights, as their file says it; None where it does not."""
        step = _plain(self.path / LAST).get("step")
        return step if is_number(step) else None

    def _status(self, config: Mapping[str, Any], begun: bool) -> str:
        """The run's status (`mechint.training.run.STATUS`) as it was committed last; "running" of
        one that no process trains any more is "interrupted".
        """
        from mechint.training.run import DONE

        committed = _plain(self.path / "state.pt").get("status")
        if committed in DONE:
            return committed
        if is_locked(self.path):
            return "running"
        if committed is not None or not (self.path / LAST).is_file():
            return "interrupted" if committed is not None or begun else "waiting"
        train = config.get("train") or {}  # the state is gone, the weights are there
        if self._weights_step() == train.get("steps"):
            return "finished"
        stops = [train.get(name) for name in ("stop_accuracy", "stop_patience")]
        return "interrupted" if stops == [None, None] else "stopped"

    # --- what is kept beside it -------------------------------------------------------------------
    def weights_changed(self) -> int | None:
        """When the weights were written, in ns since 1970; None where there are none to read."""
        try:
            return self.weights.stat().st_mtime_ns
        except OSError:
            return None

    def place_of(self, key: Mapping[str, Any]) -> Path | None:
        """Where the columns of `key` are kept: named by the probe, its settings and the weights as
        they are now; None where nothing is, or the weights cannot be read.
        """
        if not self.is_run:
            return None
        try:
            weights = _digest_of(self.weights)
        except OSError:
            return None
        text = json.dumps({**key, "weights": weights}, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self.path / CACHE / f"{key['probe']}-{digest}.json"

    def cached(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """What is kept under `key`: "columns", and "code", the digest of the code that gave them;
        None where there is nothing, or it cannot be read.
        """
        try:
            file = self.place_of(key)
            kept = read_json(file) if file else None
            return None if kept is None else {"code": kept.get("code"), "columns": kept["columns"]}
        except (MechintError, OSError, KeyError, TypeError, AttributeError):
            return None

    def kept_keys(self) -> list[dict[str, Any]]:
        """What the run was measured by, whatever its weights were then."""
        found = []
        for file in sorted((self.path / CACHE).glob("*.json")) if self.is_run else []:
            with contextlib.suppress(MechintError, OSError, ValueError, KeyError, TypeError):
                found.append(dict(read_json(file)["key"]))
        return found

    def keep(
        self,
        file: Path | None,
        key: Mapping[str, Any],
        columns: Mapping[str, Any],
        figures: Mapping[str, Figure] | None = None,
        *,
        code: str,
    ) -> None:
        """Keep `columns` in `file`, the `place_of` the weights that were measured, which the code
        of digest `code` gave, and `figures` where there are any to keep; a directory that cannot be
        written keeps nothing.
        """
        if file is None:
            return
        with contextlib.suppress(OSError, RunError):
            drawn = file.parent / FIGURES / file.name
            if figures is None:  # those of other code are not the figures of these columns
                drawn.unlink(missing_ok=True)
            else:
                texts = {name: figure.to_dict() for name, figure in figures.items()}
                write_text(drawn, json.dumps(texts))
            kept = {"key": dict(key), "code": code, "columns": dict(columns)}
            write_text(file, json.dumps(kept))

    def kept_figures(self, key: Mapping[str, Any]) -> dict[str, Figure] | None:
        """The figures kept under `key`; None where there are none, or they cannot be read."""
        try:
            file = self.place_of(key)
            if file is None:
                return None
            texts = read_json(file.parent / FIGURES / file.name)
            return {name: Figure.from_dict(text) for name, text in texts.items()}
        except (MechintError, OSError, TypeError, AttributeError):
            return None


@cache
def _digest(path: Path, size: int, changed: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest_of(path: Path) -> str:
    stat = path.stat()
    return _digest(path, stat.st_size, stat.st_mtime_ns)


def _plain(file: Path) -> dict[str, Any]:
    """What a saved file says in numbers and texts; {} where there is none, or it is damaged."""
    from mechint.checkpoints.content import read_plain

    try:
        return read_plain(file)
    except CheckpointError:
        return {}


def _json(file: Path) -> dict[str, Any]:
    data = parse_json(read_bytes(file, error=CheckpointError), file, CheckpointError)
    if not isinstance(data, dict):
        raise CheckpointError(f"{file}: expected an object, got {type(data).__name__}")
    return data


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's config.json as columns: "task", "seed", "task.p", "model.d_model", "train.lr"."""
    task, train = config.get("task") or {}, config.get("train") or {}
    row = {"task": task.get("name"), "seed": train.get("seed")}
    parts = {"task": task.get("parameters") or {}, "model": config.get("model") or {}}
    for part, values in {**parts, "train": train}.items():
        for name, value in values.items():
            column = f"{part}.{name}"
            column = LOSS if column == "train.loss" else column
            if column != "train.seed":
                row[column] = json.dumps(value) if isinstance(value, list | dict) else value
    return row


def is_setting(column: str) -> bool:
    """Whether a column is a part of the configuration, and not a metric of the training split.

    >>> is_setting("train.lr"), is_setting("train.loss"), is_setting("seed")
    (True, False, False)
    """
    settings = column.startswith(("task.", "model.", "train."))
    metric = column.startswith(("train.loss", "train.accuracy")) and column != LOSS
    return settings and not metric


def stated(directory: Path) -> dict[str, Any]:
    """What the config.json in `directory` says: a run's states its task, that of a Hugging Face
    model does not; {} where there is none, or it is damaged.
    """
    try:
        return _json(directory / CONFIG)
    except MechintError:
        return {}
