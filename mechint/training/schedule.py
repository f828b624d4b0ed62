"""Steps of the last evaluation and of kept checkpoints, and reports of progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mechint.config import TrainConfig


@dataclass(frozen=True)
class Progress:
    """Progress of an ensemble.

    step of `steps`; metrics: the latest, averaged over the models that still train; models: how
    many those are; part: which ensemble of the plan, counted from 0; done: share of the whole
    plan's work, 0 … 1.
    """

    step: int
    steps: int
    metrics: dict[str, float]
    models: int = 1
    part: int = 0
    done: float = 0.0


class ProgressShares:
    """Turns the progress of the parts of some work into that of the whole.

    work: of each part, in any unit; report: called with every `Progress`, whose part
    and share of the whole are filled in.
    """

    def __init__(self, work: Sequence[float], report: Callable[[Progress], None] | None) -> None:
        self.work, self.report = [max(1, cost) for cost in work], report
        self.done = [0.0] * len(work)

    def of(self, part: int, now: Progress) -> None:
        """Take the progress of one part."""
        self.done[part] = now.done or now.step / max(1, now.steps)
        share = sum(w * d for w, d in zip(self.work, self.done, strict=True)) / sum(self.work)
        if self.report is not None:
            self.report(replace(now, part=part, done=share))


THIN_MOST, THIN_BYTES = 32, 1 << 26
"""The most checkpoints that ``checkpoints=thin`` keeps of a run, and their most bytes."""


def kept_steps(config: TrainConfig, parameters: int = 0) -> set[int]:
    """The steps at which checkpoints are kept besides the last, of a model of so many parameters.

    >>> sorted(kept_steps(TrainConfig(steps=1000, checkpoints="log", n_checkpoints=4)))
    [0, 1, 10, 100, 1000]
    """
    n, steps = config.n_checkpoints, config.steps
    if config.checkpoints == "linear":
        return {round(i * steps / n) for i in range(n + 1)}
    if config.checkpoints == "thin":
        n = min(n, THIN_MOST, THIN_BYTES // (4 * parameters + 1)) - 1
        return {0} | {round(steps ** (i / n)) for i in range(1, n + 1)} if n > 0 else set()
    if config.checkpoints == "log":
        return {0} | {round(steps ** (i / (n - 1 or 1))) for i in range(n)}
    return set()


def loss_of(row: Mapping[str, float]) -> float:
    """The training loss of an evaluation; the test loss, where there is no other."""
    return row["train.loss"] if "train.loss" in row else row["test.loss"]


def loss_change(before: Mapping[str, float], row: Mapping[str, float]) -> float:
    """Change of the loss (`loss_of`) between evaluations; inf where none came before.

    >>> loss_change({"train.loss": 1.0}, {"train.loss": 0.75}), loss_change({}, {"test.loss": 1.0})
    (0.25, inf)
    """
    return abs(loss_of(before) - loss_of(row)) if before else math.inf


def stops(config: TrainConfig, step: int, stale: int, row: Mapping[str, float]) -> bool:
    """Return whether a run ends with the evaluation `row` at `step`.

    stale: evaluations in a row, at multiples of `evaluate_every`, without a change of the loss.
    """
    if step < config.stop_after:
        return False
    if config.stop_patience is not None and stale >= config.stop_patience:
        return True
    accuracies = [value for name, value in row.items() if name.startswith("test.accuracy")]
    goal = config.stop_accuracy
    return goal is not None and bool(accuracies) and min(accuracies) >= goal
