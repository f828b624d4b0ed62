"""One row of a table of models: where it is, and what is known of it without opening it."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.errors import CheckpointError, MechintError, UnknownNameError
from mechint.system.files import parse_json, read_bytes, read_json, read_json_lines
from mechint.system.jsonable import is_number
from mechint.system.locks import is_locked
from mechint.system.packages import changed_files

if TYPE_CHECKING:
    from mechint.subject import Subject

CONFIG, METRICS, LAST, KEPT = "config.json", "metrics.jsonl", "ckpt.pt", "checkpoints"
CHANGED = "changed"
"""The column of the files that a run was trained with and that are others now."""
MAX_DIGITS = 12
"""Digits of a step in the name of a file."""
STEP_WORDS = ("step", "iteration", "iter", "it", "epoch", "ep", "checkpoint", "ckpt")
"""Words in the name of a file before its step, the surest first."""
MAX_INTEGERS = 8
"""Integers of a name that are looked at, from the end."""
STEP_PLACES = (*STEP_WORDS, *range(-1, -MAX_INTEGERS - 1, -1))
LOSS = "train.loss_function"
"""The setting ``train.loss``: train.loss is a metric of the table."""


@dataclass(frozen=True)
class Entry:
    """One model: a checkpoint file, a run directory (its last weights), a run at one step, or a
    subject. Of a file that is no run's, the step is what its name says.

    opening: further arguments with which `load_checkpoint` opens it; source: in place of that, the
    subject itself, or a function that opens the file at `path`.
    """

    path: Path
    name: str
    step: int | None = None
    opening: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    source: Subject | Callable[[Path], Subject] | None = None

    @cached_property
    def is_run(self) -> bool:
        """True if it is a run directory, and not a single checkpoint or a model of Hugging Face's:
        its config.json states a task, or is damaged.
        """
        if self.source is not None or not (self.path / CONFIG).is_file():
            return False
        try:
            return "model_type" not in _stated(self.path / CONFIG)
        except MechintError:
            return True

    @property
    def weights(self) -> Path:
        """The file that holds the weights."""
        if not self.is_run:
            return self.path
        if self.step is None:
            return self.path / LAST
        return self.path / KEPT / f"step-{self.step:08d}.pt"

    def steps(self) -> list[Entry]:
        """An entry per kept checkpoint, and itself where the last weights are not among them, as
        of a run that stopped early.
        """
        found = sorted((self.path / KEPT).glob("step-*.pt")) if self.is_run else []
        steps = [int(match[1]) for file in found if (match := re.match(r"step-(\d+)$", file.stem))]
        kept: list[Entry] = [dataclasses.replace(self, step=step) for step in steps]
        last = self._weights_step() if kept else None
        later = last is not None and last > max(steps)
        return [*kept, self] if later or not kept else kept

    def subject(self) -> Subject:
        """The model as probes are given it; CheckpointError where it cannot be opened."""
        from mechint.checkpoints import load_checkpoint
        from mechint.subject import Subject

        if isinstance(self.source, Subject):
            return self.source
        if self.source is not None:
            return self.source(self.path)
        return load_checkpoint(self.weights, **self.opening).subject()

    def weights_changed(self) -> int | None:
        """The time at which the weights were written, in ns since 1970; None where there are none
        to read, and of a subject.
        """
        try:
            return None if self.path == Path() else self.weights.stat().st_mtime_ns
        except OSError:
            return None

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
            # the checkpoints of one's own loop are one run, as its directory would be
            return (
                row
                if self.step is None
                else row | {"path": str(self.path.parent), "step": self.step}
            )
        config = _stated(self.path / CONFIG)
        step = self._weights_step() if self.step is None else self.step
        evaluations = self._evaluations()
        upto = [one for one in evaluations if step is None or one["step"] <= step]
        last = dict(upto[-1]) if upto else {}
        measured_at = last.pop("step", None)
        if step is not None and measured_at not in (None, step):
            last = {} if self.step is not None else last | {"metrics.step": measured_at}
        row["status"] = self._status(config, bool(evaluations))
        row["step"] = measured_at if step is None else step
        if changed := changed_files(self.path):
            row[CHANGED] = changed
        return row | _flat(config) | last

    def _evaluations(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl that can be read; CheckpointError where committed ones are cut
        off.
        """
        file = self.path / METRICS
        expected = self._known().get("metrics_bytes")
        size = file.stat().st_size if file.is_file() else 0
        if isinstance(expected, int) and size < expected:
            raise CheckpointError(
                f"{file}: damaged: got {size} bytes, expected at least {expected}; delete "
                f"{self.path / 'status.json'} and --resume starts this run anew"
            )
        return [one for one in read_json_lines(file) if is_number(one.get("step"))]

    def _known(self) -> dict[str, Any]:
        """The status.json of a run that is done; {} of another, or of a damaged one."""
        try:
            known = read_json(self.path / "status.json")
        except MechintError:
            return {}
        return known if isinstance(known, dict) else {}

    def _weights_step(self) -> int | None:
        """The step of the last weights, as their file says it; None where it does not."""
        from mechint.checkpoints.content import read_plain

        try:
            step = read_plain(self.path / LAST).get("step")
        except CheckpointError:
            return None
        return step if is_number(step) else None

    def _status(self, config: Mapping[str, Any], begun: bool) -> str:
        """The run's status; a run that no process trains any more was interrupted."""
        from mechint.training.run import DONE

        status = self._known().get("status")
        if status in DONE:
            return str(status)
        if is_locked(self.path):
            return "running"
        if not begun and not (self.path / LAST).is_file():
            return "waiting"
        steps = _part(config, "train").get("steps")
        return "finished" if steps is not None and self._weights_step() == steps else "interrupted"


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = config.get(name)
    return part if isinstance(part, dict) else {}


def _stated(file: Path) -> dict[str, Any]:
    """The content of a config.json; CheckpointError where it is damaged."""
    data = parse_json(read_bytes(file, error=CheckpointError), file, CheckpointError)
    if not isinstance(data, dict):
        raise CheckpointError(f"{file}: expected an object, got {type(data).__name__}")
    return data


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's config.json as columns: "task", "seed", "task.p", "model.d_model", "train.lr"."""
    task, train = _part(config, "task"), _part(config, "train")
    row = {"task": task.get("name"), "seed": train.get("seed")}
    parts = {"task": _part(task, "parameters"), "model": _part(config, "model"), "train": train}
    for part, values in parts.items():
        for name, value in values.items():
            column = LOSS if (part, name) == ("train", "loss") else f"{part}.{name}"
            if column != "train.seed":
                row[column] = value
    return row


def is_setting(column: str) -> bool:
    """Return whether a column is a part of the configuration, and not a metric of the training
    split.

    >>> is_setting("train.lr"), is_setting("train.loss"), is_setting("seed")
    (True, False, False)
    """
    settings = column.startswith(("task.", "model.", "train."))
    metric = column.startswith(("train.loss", "train.accuracy")) and column != LOSS
    return settings and not metric


# --- models under a path, and their names ---------------------------------------------------------
def find_entries(path: Path) -> list[Entry]:
    """The models under `path`: the file, the run, or all runs in the folder in natural order, or
    where there are none, all models of Hugging Face's.

    Raises:
        CheckpointError: nothing there is a model, or a config.json cannot be read: it may be that
            of a run, which would be missing.
    """
    try:
        if not path.exists():
            raise CheckpointError(f"{path}: there is no such file or directory")
        if path.is_file() or (path / CONFIG).is_file():
            return [Entry(_model_in(path), path.name)]
        found = sorted(path.rglob(CONFIG), key=lambda file: natural(str(file)))
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
    names = {
        file.parent: parse_json(read_bytes(file, error=CheckpointError), file, CheckpointError)
        for file in found
    }
    for mark in ("task", "model_type"):  # of a run, else of a model of Hugging Face's
        if models := [
            place for place, said in names.items() if isinstance(said, dict) and mark in said
        ]:
            return [Entry(_model_in(model), str(model.relative_to(path))) for model in models]
    if any((path / name).exists() for name in ("model.pt", "ckpt.safetensors")) or found:
        return [Entry(path, path.name)]
    raise CheckpointError(f"{path}: holds neither a run nor a checkpoint; expected config.json")


def _model_in(place: Path) -> Path:
    """The file of weights in a folder of `Subject.save_pretrained`; other places as they are."""
    from mechint.checkpoints.open import in_pretrained

    return in_pretrained(place) or place


def natural(text: str) -> list[Any]:
    """A key under which "seed=10" comes after "seed=9".

    >>> sorted(["seed=10", "seed=9"], key=natural)
    ['seed=9', 'seed=10']
    """
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"(\d+)", text)
    ]


def with_steps(entries: Sequence[Entry]) -> list[Entry] | None:
    """Files of one's own training loop with the steps that their names hold, in their order; None
    where a name has none, or two in one folder have the same.

    The step is the number behind one of `STEP_WORDS`, or else an integer, that differs between all
    files of a folder; of several integers the last. A warning says which, where a name has others.

    >>> files = [Entry(Path(f"own/step{step}.pt"), f"step{step}.pt") for step in (1000, 300)]
    >>> [one.step for one in with_steps(files)]
    [300, 1000]
    """
    folders, found = dict[Path, list[Entry]](), list[Entry]()
    for one in entries:
        folders.setdefault(one.path.parent, []).append(one)
    for some in folders.values():
        held = [{} if one.is_run else numbers_in(Path(one.name).stem) for one in some]
        places = [
            place
            for place in held[0]
            if len({numbers.get(place) for numbers in held} - {None}) == len(some)
        ]
        if not places:
            return None
        place = min(places, key=STEP_PLACES.index)
        index = next((i for i, one in enumerate(held) if len({*one.values()}) > 1), None)
        if index is not None:
            behind = f"behind {place!r} in" if isinstance(place, str) else "in"
            step, name = held[index][place], some[index].name
            warnings.warn(f"the step is taken to be {step}, {behind} {name}", stacklevel=2)
        found += [
            dataclasses.replace(one, step=numbers[place])
            for one, numbers in zip(some, held, strict=True)
        ]
    found.sort(key=lambda one: (str(one.path.parent), one.step or 0))
    return found if len(found) > 1 else None


def numbers_in(name: str) -> dict[str | int, int]:
    """The integers in the name of a file that may be its step, by the word before them and by their
    places from the end.

    >>> numbers_in("epoch=3-val_loss=0.91"), numbers_in("model_8_v2")
    ({'epoch': 3, -1: 3}, {-2: 8, -1: 2})
    """
    integers = re.findall(rf"(?<!\d)(?<!\d\.)\d{{1,{MAX_DIGITS}}}(?!\d|\.\d)", name)
    words = re.findall(
        rf"(?<![a-z])({'|'.join(STEP_WORDS)})[^a-z\d]*(\d{{1,{MAX_DIGITS}}})(?!\d)", name.lower()
    )
    last = integers[-MAX_INTEGERS:]
    return {word: int(text) for word, text in words} | {
        place - len(last): int(text) for place, text in enumerate(last)
    }


def with_distinct_names(entries: Sequence[Entry]) -> list[Entry]:
    """`entries`, those of several models of one name called by their paths.

    >>> files = [Entry(Path("a/model.pt"), "model.pt"), Entry(Path("b/model.pt"), "model.pt")]
    >>> [one.name for one in with_distinct_names(files)]
    ['a/model.pt', 'b/model.pt']
    """
    places: dict[str, set[Path]] = {}
    for one in entries:
        places.setdefault(one.name, set()).add(one.path)
    alone = {name for name, paths in places.items() if len(paths) == 1}
    return [
        one if one.name in alone else dataclasses.replace(one, name=str(one.path))
        for one in entries
    ]


# --- cells that count as numbers -----------------------------------------------------------------
Row = Mapping[str, Any]


def in_words(column: str) -> str:
    """A column of measured numbers as a title: the probe, and what it measured.

    >>> in_words("norms.norms.L0 MLP"), in_words("lens.final_accuracy"), in_words("test.loss")
    ('norms: L0 MLP', 'lens: final accuracy', 'test loss')
    """
    first, dot, rest = column.partition(".")
    words = rest.removeprefix(f"{first}.").replace("_", " ").replace(".", " ")
    if first in ("train", "test"):
        return f"{first} {words}"
    return f"{first}: {words}" if dot else column


def check_column(rows: Sequence[Row], column: str) -> None:
    """Raise UnknownNameError where no row has `column`."""
    names = {name for row in rows for name in row}
    if column not in names:
        raise UnknownNameError.of("column", column, names)
