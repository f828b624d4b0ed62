"""How far a training is: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mechint.cli.common import print_error
from mechint.durations import in_words
from mechint.progress import EVERY, console

if TYPE_CHECKING:
    from mechint.training import Progress


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Callable[[Progress], None]]:
    """Shows on stderr the share that is done, the rate, the time left and the latest accuracies."""
    out = console(err=True)
    if not out.is_terminal:
        yield ProgressReporter(title, print_error)
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[seen]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out) as bar:
        entry = bar.add_task(title, total=1.0, seen="")

        def show(text: str) -> None:
            bar.update(entry, completed=reporter.share, seen=text)

        reporter = ProgressReporter("", show, every=0.0)
        yield reporter


class ProgressReporter:
    """Turns the `Progress` of ensembles into lines of text.

    write: takes a line; every: seconds between two; clock: of time.
    """

    def __init__(
        self,
        title: str,
        write: Callable[[str], None],
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.title, self.write, self.every, self.clock = title, write, every, clock
        self.share = 0.0
        self.started: tuple[float, float] | None = None  # when, and what was done then
        self.written = -float("inf")
        self.steps: dict[int, tuple[float, int]] = {}  # of each part: when it was first seen, step
        self.ended: set[int] = set()

    def __call__(self, now: Progress) -> None:
        at, self.share = self.clock(), now.done
        if self.started is None:
            self.started = at, now.done
        self.steps.setdefault(now.part, (at, now.step))
        last = now.step >= now.steps and now.part not in self.ended
        if not now.metrics or (at - self.written < self.every and not last):
            return
        if last:
            self.ended.add(now.part)
        self.written = at
        head = f"{self.title}: " if self.title else ""
        position = f"step {now.step} of {now.steps} {summary(now.metrics)}"
        self.write(f"{head}{position}{self._rate(now, at)}{self._left(at)}")

    def _rate(self, now: Progress, at: float) -> str:
        first, step = self.steps[now.part]
        if at - first < 1.0 or now.step <= step:
            return ""
        models = f" × {now.models} models" if now.models > 1 else ""
        rate = (now.step - step) / (at - first)
        return f"  {f'{rate:,.0f}' if rate >= 10 else f'{rate:.2g}'} steps/s{models}"

    def _left(self, at: float) -> str:
        assert self.started is not None
        begun, done = self.started
        if at - begun < 2.0 or not done < self.share < 1:
            return ""
        return f"  {in_words((at - begun) * (1 - self.share) / (self.share - done))} left"


def summary(metrics: Mapping[str, Any]) -> str:
    """The accuracies (or losses, where a task has none) in a few words.

    >>> summary({"train.accuracy": 1.0, "test.accuracy": 0.5, "train.loss": 0.1})
    'train 100.0%  test 50.0%'
    """
    accuracies = [
        f"{split} {100 * float(metrics[f'{split}.accuracy']):.1f}%"
        for split in ("train", "test")
        if f"{split}.accuracy" in metrics
    ]
    losses = [
        f"{split} loss {float(metrics[f'{split}.loss']):.3g}"
        for split in ("train", "test")
        if f"{split}.loss" in metrics
    ]
    return "  ".join(accuracies or losses)


def headlines(metrics: Mapping[str, Any]) -> str:
    """The step, and accuracy and loss over all outputs, in one line.

    >>> headlines({"step": 100, "test.accuracy": 0.25, "test.accuracy.q=3": 0.5})
    'step 100  test.accuracy 0.25'
    """
    wanted = ("step", "train.loss", "test.loss", "train.accuracy", "test.accuracy")
    return "  ".join(
        f"{name} {metrics[name]:.6g}"
        for name in wanted
        if isinstance(metrics.get(name), int | float)
    )
