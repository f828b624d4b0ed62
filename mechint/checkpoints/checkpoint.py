"""Checkpoint: an opened file or run directory, as a model with what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from mechint.checkpoints.fitting import propose
from mechint.config import ModelConfig
from mechint.subject import Subject
from mechint.task import Task


@dataclass(frozen=True)
class Checkpoint:
    """A model, its task and its history.

    path: the file that was read; format: name of the reader that recognised it; model:
    HookedTransformer, student or TransformerBridge, on its device, in evaluation mode; config: of
    the architecture; task: None where neither the file nor the caller names it; step, metrics,
    seed, train: as recorded; extra: JSON values, "assumed" among them where the reader took
    something for granted; series: step → function that reads the weights at that step, ascending.
    """

    path: Path
    format: str
    model: Any
    config: Any
    task: Task | None = None
    step: int | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    train: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    series: Mapping[int, Callable[[], Mapping[str, Tensor]]] = field(default_factory=dict)

    @property
    def provenance(self) -> dict[str, Any]:
        """path, format, step, metrics, seed and extra, as JSON values."""
        known = {
            "path": str(self.path),
            "format": self.format,
            "step": self.step,
            "metrics": dict(self.metrics),
            "seed": self.seed,
        }
        return known | ({"extra": dict(self.extra)} if self.extra else {})

    @property
    def proposals(self) -> list[str]:
        """Command-line texts that name a task this model fits, where none is known:
        ``--task … --set p=113``.
        """
        return (
            propose(self.config)
            if self.task is None and isinstance(self.config, ModelConfig)
            else []
        )

    def subject(self, **options: Any) -> Subject:
        """What probes are given; `options` are those of `mechint.subject.Subject`.

        The split seed is the recorded one, so that train and test are those the model was trained
        with.
        """
        return Subject(
            self.model,
            self.task,
            **{
                "provenance": self.provenance,
                "series": self.series,
                "split_seed": self.seed,
                **options,
            },
        )
