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
from typing import Any

from mechint.errors import RunError, UnknownNameError
from mechint.system.files import read_json, read_json_lines, write_text

EVERY = 2.0
"""Seconds between two looks at the runs."""
CONFIG, METRICS, NOTES = "config.json", "metrics.jsonl", "logged.json"


class TensorBoard:
    """Event files in RUN/tensorboard."""

    id = "tensorboard"

    def __init__(self, run: Path, config: Mapping[str, Any], known: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run / self.id))
        if not known:
            text = "".join(f"    {line}\n" for line in json.dumps(config, indent=1).splitlines())
            self._writer.add_text("config", text)

    def send(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of one evaluation."""
        for name, value in numbers.items():
            self._writer.add_scalar(name.replace(".", "/", 1), value, step)
        self._writer.flush()

    def close(self) -> None:
        """Write what is left and close the files."""
        self._writer.close()


class WandB:
    """A run of Weights & Biases; WANDB_PROJECT, WANDB_ENTITY and WANDB_MODE (offline) say where."""

    def __init__(self, run: Path, config: Mapping[str, Any], known: str) -> None:
        import wandb

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

    def send(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log the numbers of one evaluation."""
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


LOGGERS: Mapping[str, Callable[[Path, Mapping[str, Any], str], Any]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
}
"""Name, also of its package and extra → what opens a run (its directory, its configuration, the
identifier of an earlier part) and then sends and closes.
"""


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
        self._open: dict[tuple[Path, str], Any] = {}

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
        rows = [row for row in read_json_lines(run / METRICS) if isinstance(row.get("step"), int)]
        for name in self.names:
            last = notes.get(name, {}).get("step", -1)
            for row in (row for row in rows if row["step"] > last):
                writer = self._writer(run, name, notes)
                numbers = {
                    name: float(value)
                    for name, value in row.items()
                    if name != "step" and type(value) in (int, float)
                }
                writer.send(row["step"], numbers)
                notes[name] = {"id": writer.id, "step": row["step"]}
        write_text(run / NOTES, json.dumps(notes))

    def _writer(self, run: Path, name: str, notes: Mapping[str, Any]) -> Any:
        if (run, name) not in self._open:
            config = read_json(run / CONFIG)
            known = notes.get(name, {}).get("id", "")
            try:
                self._open[run, name] = LOGGERS[name](run, config, known)
            except ImportError as error:
                said = f"{name}: {name} is not installed; pip install {name}"
                raise RunError(said) from error
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
    """`report`, which also lets the loggers look at the runs and closes them at the end."""
    forwarder = Forwarder(runs, names)

    def both(progress: Any) -> None:
        forwarder.poll()
        report(progress)

    try:
        yield both
    finally:
        forwarder.close()


def _notes(run: Path) -> dict[str, Any]:
    """Evaluations of a run that were sent: logger → its last step and the service's identifier."""
    try:
        notes = read_json(run / NOTES)
    except RunError:
        return {}
    return notes if isinstance(notes, dict) else {}
