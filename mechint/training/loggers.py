"""Metrics of runs sent to TensorBoard or Weights & Biases while they are trained.

A `Forwarder` reads what the runs append to their metrics.jsonl, so it serves runs that are trained
in this process, in workers and on a cluster alike, and training waits for nobody. What has been
sent is noted in the run's directory: a run that is stopped and goes on appears once, as one curve.

    forwarder = Forwarder([run.path for run in runs], ["tensorboard"])
    forwarder.poll()  # from time to time
    forwarder.close()
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from mechint.errors import RunError, UnknownNameError
from mechint.files import read_json_lines, write_text

EVERY = 2.0
"""Seconds between two looks at the runs."""
CONFIG, METRICS, NOTES = "config.json", "metrics.jsonl", "logged.json"
EXTRA = "{name}: {package} is not installed; pip install 'mechint[{extra}]'"


class Writer(Protocol):
    """One run at one service; `id` is the identifier under which it goes on another time."""

    id: str

    def send(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Send evaluations, each with its "step"."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class TensorBoard:
    """Event files in RUN/tensorboard; ``tensorboard --logdir`` on the folder of the runs shows them
    under their names.
    """

    def __init__(self, run: Path, config: Mapping[str, Any], known: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            text = {"name": "tensorboard", "package": "tensorboard", "extra": "tensorboard"}
            raise RunError(EXTRA.format(**text)) from error
        self.id = "tensorboard"
        self._writer = SummaryWriter(str(run / self.id))
        if not known:
            text = "".join(f"    {line}\n" for line in json.dumps(config, indent=1).splitlines())
            self._writer.add_text("config", text)

    def send(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows of metrics, each at its step."""
        for row in rows:
            for name, value in _numbers(row).items():
                self._writer.add_scalar(name.replace(".", "/", 1), value, row["step"])
        self._writer.flush()

    def close(self) -> None:
        """Write what is left and close the files."""
        self._writer.close()


class WandB:
    """A run of Weights & Biases; WANDB_PROJECT, WANDB_ENTITY and WANDB_MODE (offline) say where."""

    def __init__(self, run: Path, config: Mapping[str, Any], known: str) -> None:
        try:
            import wandb
        except ImportError as error:
            text = {"name": "wandb", "package": "wandb", "extra": "wandb"}
            raise RunError(EXTRA.format(**text)) from error
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "mechint"),
            name=run.name,
            group=run.parent.name,
            dir=str(run),
            id=known or None,
            resume="allow" if known else None,
            config=dict(config),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )
        self.id = str(self._run.id)

    def send(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log rows of metrics, each at its step."""
        for row in rows:
            self._run.log(_numbers(row), step=row["step"])

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


LOGGERS: Mapping[str, Callable[[Path, Mapping[str, Any], str], Writer]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
}
"""Name → what opens a run (its directory, its configuration, the identifier of an earlier part)."""


class Forwarder:
    """Sends the evaluations of runs to loggers, each once.

    Args:
        runs: the directories, or a function that gives those there are by now; those that have
            written nothing yet are looked at again.
        names: of `LOGGERS`; clock: of time, in seconds.

    Raises:
        UnknownNameError: no such logger. RunError, from `poll`: it is not installed.
    """

    def __init__(
        self,
        runs: Sequence[Path] | Callable[[], Sequence[Path]],
        names: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name in names:
            if name not in LOGGERS:
                raise UnknownNameError.of("logger", name, LOGGERS)
        self.runs, self.names, self.clock = runs, list(dict.fromkeys(names)), clock
        self._looked = -float("inf")
        self._sizes: dict[Path, int] = {}
        self._open: dict[tuple[Path, str], Writer] = {}

    def poll(self, *, now: bool = False) -> None:
        """Send what is new; at most every `EVERY` seconds unless `now`."""
        at = self.clock()
        if not self.names or (at - self._looked < EVERY and not now):
            return
        self._looked = at
        for run in self.runs() if callable(self.runs) else self.runs:
            with contextlib.suppress(FileNotFoundError):
                size = (run / METRICS).stat().st_size
                if size != self._sizes.get(run):
                    self._sizes[run] = size
                    self._send(run)

    def _send(self, run: Path) -> None:
        notes = _notes(run)
        rows = read_json_lines(run / METRICS)
        for name in self.names:
            last = notes.get(name, {}).get("step", -1)
            new = [row for row in rows if isinstance(row.get("step"), int) and row["step"] > last]
            if not new:
                continue
            writer = self._writer(run, name, notes)
            writer.send(new)
            notes[name] = {"id": writer.id, "step": new[-1]["step"]}
        write_text(run / NOTES, json.dumps(notes))

    def _writer(self, run: Path, name: str, notes: Mapping[str, Any]) -> Writer:
        if (run, name) not in self._open:
            config = json.loads((run / CONFIG).read_text(encoding="utf-8"))
            known = notes.get(name, {}).get("id", "")
            self._open[run, name] = LOGGERS[name](run, config, known)
        return self._open[run, name]

    def close(self) -> None:
        """Send the rest and close every run."""
        self.poll(now=True)
        for writer in self._open.values():
            writer.close()
        self._open = {}


@contextlib.contextmanager
def forwarding(
    runs: Sequence[Path] | Callable[[], Sequence[Path]],
    names: Sequence[str],
    report: Callable[[Any], None],
) -> Iterator[Callable[[Any], None]]:
    """`report`, which also lets the loggers look at the runs; they are closed at the end, on Ctrl-C
    too.
    """
    forwarder = Forwarder(runs, names)

    def both(progress: Any) -> None:
        forwarder.poll()
        report(progress)

    try:
        yield both
    finally:
        forwarder.close()


def _notes(run: Path) -> dict[str, Any]:
    """The record of what has been sent of a run: logger → its last step and the service's
    identifier.
    """
    try:
        notes = json.loads((run / NOTES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in row.items()
        if name != "step" and isinstance(value, int | float) and not isinstance(value, bool)
    }
